package forward

import (
	"context"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

var _ edge.Coordinating = (*Host)(nil)

// aware says that a node that asks for coordinators keeps memberships, and reads what
// follows them in the answer. Who does not know that passes it over, and answers without.
const aware = "m"

// Coordinators implements edge.Coordinating.
func (h *Host) Coordinators(ctx context.Context, p kernel.Protocol) (broker.Coordination, error) {
	r, err := h.ask(ctx, askCoordinators, "", string(p), aware, nil)
	if err != nil {
		return broker.Coordination{}, err
	}
	c := broker.Coordination{Nodes: several(r, r.tenure)}
	if len(r.B) > 0 {
		c.Last, c.Keeps = r.Uint(), r.flag()
	}
	if err := r.Done(); err != nil {
		return broker.Coordination{}, either(nil, err)
	}
	return c, nil
}

// office asks what a coordinator asks: in which office, of which group of which tenant.
func (h *Host) office(ctx context.Context, what byte, by broker.Office, tenant, group string, value []byte) (*reader, error) {
	b := codec.AppendString(appendTenure([]byte{what}, by.Tenure), string(by.Protocol))
	b = codec.AppendString(codec.AppendString(b, tenant), group)
	return h.call(ctx, appendBytes(b, value))
}

// Membership implements edge.Coordinating.
func (h *Host) Membership(ctx context.Context, by broker.Office, tenant, group string) ([]byte, error) {
	r, err := h.office(ctx, askMembership, by, tenant, group, nil)
	if err != nil {
		return nil, err
	}
	value := r.bytes()
	return value, either(nil, r.Done())
}

// KeepMembership implements edge.Coordinating.
func (h *Host) KeepMembership(ctx context.Context, by broker.Office, tenant, group string, value []byte) error {
	r, err := h.office(ctx, askKeepMembership, by, tenant, group, value)
	if err != nil {
		return err
	}
	return either(nil, r.Done())
}

// Memberships implements edge.Coordinating.
func (h *Host) Memberships(ctx context.Context, by broker.Office, tenant string) ([]string, error) {
	r, err := h.office(ctx, askMemberships, by, tenant, "", nil)
	if err != nil {
		return nil, err
	}
	names := several(r, r.String)
	return names, either(nil, r.Done())
}

// answerCoordinators answers who coordinates groups of a protocol.
func answerCoordinators(ctx context.Context, b *broker.Broker, from, protocol, knows string) ([]byte, error) {
	c, err := b.CoordinatorsFor(ctx, kernel.Protocol(protocol), from, knows == aware)
	if err != nil {
		return nil, err
	}
	answer := appendTenures(appendError(nil, nil), c.Nodes)
	if knows == aware {
		answer = codec.AppendFlags(codec.AppendUint(answer, c.Last), c.Keeps)
	}
	return answer, nil
}

// answerOffice answers what a coordinator asks, which speaks for itself only.
func (s *Server) answerOffice(ctx context.Context, from string, req []byte) ([]byte, error) {
	r := read(req)
	what, by := r.Byte(), broker.Office{Tenure: r.tenure(), Protocol: kernel.Protocol(r.String())}
	tenant, group, value := r.String(), r.String(), r.bytes()
	if err := r.Done(); err != nil || by.Node != from {
		return nil, fmt.Errorf("%w: a question of a coordinator: %w", errMalformed, err)
	}
	b := s.serving()
	if b == nil {
		return appendError(nil, errGone()), nil
	}
	answer := appendError(nil, nil)
	var err error
	switch what {
	case askMembership:
		if value, err = b.Membership(ctx, by, tenant, group); err == nil {
			answer = appendBytes(answer, value)
		}
	case askKeepMembership:
		err = b.KeepMembership(ctx, by, tenant, group, value)
	default:
		var names []string
		if names, err = b.Memberships(ctx, by, tenant); err == nil {
			answer = appendNames(answer, names)
		}
	}
	if err != nil {
		return appendError(nil, err), nil
	}
	return answer, nil
}
