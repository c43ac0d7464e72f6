package edge

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
)

// BeginScram is broker.Broker.BeginScram, with the host that serves. It does not wait
// for one: see Await. A login does not go on at another host.
func (e *Edge) BeginScram(mechanism, tenant string, remote net.Addr) (Scram, bool) {
	h, _ := e.current()
	if h == nil {
		return noScram{}, true
	}
	return h.BeginScram(mechanism, tenant, remote)
}

// noScram is a login that nobody answers.
type noScram struct{}

// Step implements Scram.
func (noScram) Step(context.Context, []byte) ([]byte, bool, error) { return nil, false, errNobody }

// Identity implements Scram.
func (noScram) Identity() kernel.Identity { return kernel.Identity{} }

// Await waits for a host until ctx ends: CodeUnavailable.
func (e *Edge) Await(ctx context.Context) error {
	return e.ask(ctx, func(*served) error { return nil })
}
