package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Coordinating is the part of a Host that knows which nodes coordinate groups of readers
// of a protocol, and keeps for these nodes what they have to remember of the groups. Its methods
// are those of broker.Broker.
type Coordinating interface {
	Coordinators(ctx context.Context, p kernel.Protocol) (broker.Coordination, error)
	Membership(ctx context.Context, by broker.Office, tenant, group string) ([]byte, error)
	KeepMembership(ctx context.Context, by broker.Office, tenant, group string, value []byte) error
	Memberships(ctx context.Context, by broker.Office, tenant string) ([]string, error)
}

// Coordinators is Coordinating.Coordinators.
func (e *Edge) Coordinators(ctx context.Context, p kernel.Protocol) (broker.Coordination, error) {
	return told(ctx, e, func(h *served) (broker.Coordination, error) { return h.Coordinators(ctx, p) })
}

// Membership is Coordinating.Membership.
func (e *Edge) Membership(ctx context.Context, by broker.Office, tenant, group string) ([]byte, error) {
	return told(ctx, e, func(h *served) ([]byte, error) { return h.Membership(ctx, by, tenant, group) })
}

// KeepMembership is Coordinating.KeepMembership. A host that is lost may have kept it.
func (e *Edge) KeepMembership(ctx context.Context, by broker.Office, tenant, group string, value []byte) error {
	return e.ask(ctx, func(h *served) error { return h.KeepMembership(ctx, by, tenant, group, value) })
}

// Memberships is Coordinating.Memberships.
func (e *Edge) Memberships(ctx context.Context, by broker.Office, tenant string) ([]string, error) {
	return told(ctx, e, func(h *served) ([]string, error) { return h.Memberships(ctx, by, tenant) })
}
