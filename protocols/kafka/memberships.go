package kafka

import (
	"context"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// memberships is where the groups of this node are kept (group.Store): at the node that serves.
type memberships struct{ srv *Server }

func (m memberships) office(tenure uint64) broker.Office {
	return broker.Office{Protocol: protocol, Tenure: broker.Tenure{Node: m.srv.cfg.Node, Number: tenure}}
}

// Load implements group.Store.
func (m memberships) Load(ctx context.Context, tenure uint64, key group.Key) ([]byte, group.Error) {
	if !m.srv.views.keeps() {
		return nil, group.OK
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	value, err := m.srv.node.Membership(ctx, m.office(tenure), key.Tenant, key.Group)
	if kernel.CodeOf(err) == kernel.CodeCorrupt {
		return []byte{}, group.OK // there is one, which nobody can read
	}
	return value, m.outcome(err)
}

// Keep implements group.Store.
func (m memberships) Keep(ctx context.Context, tenure uint64, key group.Key, value []byte) group.Error {
	if !m.srv.views.keeps() {
		return group.OK
	}
	return m.outcome(m.srv.node.KeepMembership(ctx, m.office(tenure), key.Tenant, key.Group, value))
}

// outcome is what an error says about a group.
func (m memberships) outcome(err error) group.Error {
	switch kernel.CodeOf(err) {
	case kernel.CodeNotImplemented, kernel.CodePressure:
		// An earlier version coordinates, too, or the disk is full: they are here only.
		return group.OK
	case kernel.CodeFenced:
		m.srv.views.overtaken()
		return group.NotCoordinator
	case kernel.CodeTooLarge:
		return group.Full
	}
	if err != nil {
		return group.NotAvailable
	}
	return group.OK
}

// Unreadable implements group.Store.
func (m memberships) Unreadable(key group.Key, err error) {
	m.srv.cfg.Log.Error().Err(err).Str("tenant", key.Tenant).Str("group", key.Group).
		Msg("who the members of a group are cannot be read: they have to join again")
}

// loading is how many groups a listing loads at a time.
const loading = 16

// loadAll loads the groups of the connection's tenant that this node coordinates.
func (c *conn) loadAll() error {
	s := c.srv
	ctx, cancel := context.WithTimeout(c.ctx, patience)
	defer cancel()
	if _, err := s.views.view(ctx, 2*viewEvery); err != nil || !s.views.keeps() {
		return err
	}
	tenant := c.client.Identity().Tenant
	names, err := s.node.Memberships(ctx, memberships{s}.office(s.views.tenure().Number), tenant)
	if err != nil {
		return err
	}
	var work sync.WaitGroup
	places := make(chan struct{}, loading)
	for _, name := range names {
		places <- struct{}{}
		work.Go(func() {
			s.groups.Load(ctx, group.Key{Tenant: tenant, Group: name}) // what fails is not listed
			<-places
		})
	}
	work.Wait()
	return nil
}
