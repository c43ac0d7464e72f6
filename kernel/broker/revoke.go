package broker

import (
	"github.com/trivium-mq/trivium/kernel"
)

// recheck has the open connections looked at: who may do what, or what there is
// to be read, has changed.
func (b *Broker) recheck() {
	select {
	case b.access.changed <- struct{}{}:
	default: // it is about to be done anyway
	}
}

// watchAccess ends what open connections may have no longer, until the broker
// stops. Publishes need no watching: they ask the directory.
func (b *Broker) watchAccess() {
	for {
		select {
		case <-b.access.changed:
		case <-b.ctx.Done():
			return
		}
		b.mu.Lock()
		conns := b.connections()
		b.mu.Unlock()
		for _, c := range conns {
			if b.ctx.Err() != nil {
				return
			}
			c.revoke()
		}
	}
}

// revoke ends what the connection's user may do no longer: all, or some of what
// he reads.
func (c *Conn) revoke() {
	if c.isClosed() {
		return
	}
	if err := c.b.MayEnter(c.identity); err != nil {
		c.askToEnd(err)
		return
	}
	for _, m := range c.members() {
		if err := m.allowed(); err != nil {
			m.end(err)
		}
	}
	for _, s := range c.sessions() {
		s.revoke()
	}
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// allowed returns CodeAccessRefused if the member may not read any more. Those of
// a session are the session's to check.
func (m *Member) allowed() error {
	if m.about.Session != "" {
		return nil
	}
	return m.conn.allowGroup(m.group.spec.Address)
}

// end ends a membership from the broker's side.
func (m *Member) end(reason error) {
	m.m.Stop()
	if m.tap != nil {
		m.tap.Ended(reason)
	}
	m.Leave()
}

// revoke ends the feeds of subscriptions that the session may not have any more.
// The subscriptions stay: they are fed again when the right is back and the
// client comes back.
func (h *Session) revoke() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.over {
		return
	}
	for filter, f := range h.feeds {
		sub := h.s.subs[filter]
		if sub == nil {
			continue
		}
		if err := h.conn.allowSubscription(sub); err != nil {
			h.stopFeeding(filter)
			if f.to != nil {
				f.to.Ended(err)
			}
		}
	}
}

// becameOwned has subscriptions that read the name of a topic which no
// subscription made looked at: there was no such topic when they were allowed.
func (t *tenant) becameOwned(kt *kernel.Topic) {
	if kt.Kind == kernel.Plain && !kt.Auto && len(t.table.Load().Log(kt.Name)) > 0 {
		t.b.recheck()
	}
}
