package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// sessionMember is one subscription of a session, and its place in a share group if it
// has one (broker.Member). The session's mutex guards it.
type sessionMember struct {
	s      *session
	spec   broker.SubscribeSpec
	live   bool           // it is fed from memory
	inner  SessionMember  // at the host in use; nil = none
	before *sessionMember // which it has replaced: the client may hold something of it
	credit int            // granted, and not handed out
	// settles are for the next host.
	settles []settlement
}

// settlement is a range of records with one outcome.
type settlement struct {
	outcome     kernel.Outcome
	partition   int32
	first, last int64
}

// Subscribe is broker.Session.SubscribeAll.
func (s *session) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []Subscribed {
	list := s.makeMembers(specs)
	inner := innerSpecs(list)
	var out []Subscribed
	fresh := make([]bool, len(specs)) // it is known that there was none before
	err := s.do(ctx, func(l *link, in Session) error {
		out = in.Subscribe(ctx, inner)
		for i := range out {
			if again(out[i].Err) {
				return out[i].Err
			}
			fresh[i] = fresh[i] || out[i].Err == nil && !out[i].Existed
		}
		return s.note(l, func() {
			for i, m := range list {
				if out[i].Err == nil {
					m.enterLocked(out[i].Member)
				}
			}
		})
	})
	if len(out) != len(specs) {
		out = make([]Subscribed, len(specs))
	}
	for i, m := range list {
		if err != nil && out[i].Err == nil {
			out[i].Err = err
		}
		switch {
		case out[i].Err != nil:
			out[i].Member = nil
		case out[i].Member != nil:
			out[i].Member = m
		}
		out[i].Existed = out[i].Existed && !fresh[i]
	}
	return out
}

// makeMembers makes a member for each spec.
func (s *session) makeMembers(specs []broker.SubscribeSpec) []*sessionMember {
	list := make([]*sessionMember, len(specs))
	for i := range specs {
		list[i] = &sessionMember{s: s, spec: specs[i]}
	}
	return list
}

// innerSpecs are what the host is told of members.
func innerSpecs(list []*sessionMember) []broker.SubscribeSpec {
	specs := make([]broker.SubscribeSpec, len(list))
	for i, m := range list {
		specs[i] = m.spec
		specs[i].To = sessionTap{m}
	}
	return specs
}

// enterLocked makes a member that of its filter. s.mu is held.
func (m *sessionMember) enterLocked(in SessionMember) {
	filter := m.spec.Subscription.Filter
	if old := m.s.subs[filter]; old != nil && !old.live {
		old.before, m.before = nil, old
	}
	m.inner, m.live = in, in == nil
	m.s.subs[filter] = m
	if in != nil && m.credit != 0 {
		in.Credit(m.credit)
	}
}

// Attach is broker.Session.Attach.
func (s *session) Attach(ctx context.Context, spec broker.SubscribeSpec) (SessionMember, error) {
	list := s.makeMembers([]broker.SubscribeSpec{spec})
	m, inner := list[0], innerSpecs(list)[0]
	err := s.do(ctx, func(l *link, in Session) error {
		member, err := in.Attach(ctx, inner)
		if err != nil {
			return err
		}
		return s.note(l, func() { m.enterLocked(member) })
	})
	if err != nil || m.live {
		return nil, err
	}
	return m, nil
}

// Unsubscribe is broker.Session.Unsubscribe.
func (s *session) Unsubscribe(ctx context.Context, filter string) (existed bool, err error) {
	err = s.do(ctx, func(l *link, in Session) error {
		there, err := in.Unsubscribe(ctx, filter)
		existed = existed || there
		if err != nil {
			return err
		}
		return s.note(l, func() { delete(s.subs, filter) })
	})
	return existed, err
}

// sessionTap is what a host hands records out to.
type sessionTap struct{ m *sessionMember }

// Deliver implements kernel.Consumer.
func (t sessionTap) Deliver(batch []kernel.Delivery) {
	s := t.m.s
	s.mu.Lock()
	t.m.credit -= len(batch)
	s.mu.Unlock()
	t.m.spec.To.Deliver(batch)
}

// Admit implements kernel.Admitter.
func (t sessionTap) Admit(records, bytes int) bool {
	a, ok := t.m.spec.To.(kernel.Admitter)
	return !ok || a.Admit(records, bytes)
}

// Ended implements kernel.Consumer. That the host stops ends no subscription.
func (t sessionTap) Ended(reason error) {
	if !again(reason) {
		t.m.spec.To.Ended(reason)
	}
}

// Credit is broker.Member.Credit.
func (m *sessionMember) Credit(n int) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.credit += n
	if m.inner != nil {
		m.inner.Credit(n)
	}
}

// Settle is broker.Member.Settle.
func (m *sessionMember) Settle(o kernel.Outcome, partition int32, first, last int64) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	switch {
	case m.inner != nil:
		m.inner.Settle(o, partition, first, last)
	case !m.s.over && !lostAcks:
		m.settles = append(m.settles, settlement{o, partition, first, last})
	}
}

// Hold is broker.Member.Hold.
func (m *sessionMember) Hold(places []kernel.Place) []bool {
	if in := m.there(); in != nil {
		return in.Hold(places)
	}
	return make([]bool, len(places))
}

// Read is broker.Member.Read. It does not wait for a host.
func (m *sessionMember) Read(p kernel.Place, fn func(*kernel.View)) (bool, error) {
	if in := m.there(); in != nil {
		return in.Read(p, fn)
	}
	return false, errNobody
}

// there returns the membership in use, nil = none.
func (m *sessionMember) there() SessionMember {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	return m.inner
}
