package sharegroup

import (
	"errors"
	"math"
)

// ErrExclusive says that an exclusive consumer is there, or that one cannot come
// because others are.
var ErrExclusive = errors.New("sharegroup: exclusive consumer")

// ErrNoMember says that the member is unknown: it never joined this leader, or
// has left.
var ErrNoMember = errors.New("sharegroup: no such member")

// Options say how a member joins.
type Options struct {
	// Lock is the time limit of a hand-out in nanoseconds, 0 for session-bound.
	Lock int64
	// Auto accepts by handing out.
	Auto bool
	// Exclusive wants to be the only pushed-to member.
	Exclusive bool
	// Pull is a member that only calls Acquire (basic.get, ShareFetch): it is never
	// pushed to and does not count for Exclusive.
	Pull bool
}

// member is a consumer in a Group.
type member struct {
	Taker
	credit    int
	exclusive bool
	pull      bool
	stopped   bool

	// The ring of those whose turn comes.
	prev, next *member
	out        int    // index of its hand-out of pump number stamp
	stamp      uint64 // pump that out belongs to
}

// Join adds a member without credit.
func (g *Group) Join(opt Options) (MemberID, error) {
	if !opt.Pull && (g.exclusive || opt.Exclusive && g.consumers > 0) {
		return 0, ErrExclusive
	}
	for {
		if g.lastID++; g.lastID == 0 {
			continue
		}
		if _, taken := g.members[g.lastID]; !taken {
			break
		}
	}
	m := &member{
		Taker:     Taker{Member: g.lastID, Lock: opt.Lock, Auto: opt.Auto, Pull: opt.Pull},
		exclusive: opt.Exclusive && !opt.Pull, pull: opt.Pull,
	}
	if !m.pull {
		g.consumers++
	}
	g.exclusive = g.exclusive || m.exclusive
	g.members[m.Member] = m
	return m.Member, nil
}

// Grant adds credit: so many records more may be handed out to the member. A
// negative n takes credit back, down to none.
func (g *Group) Grant(id MemberID, n int) error {
	m := g.members[id]
	if m == nil {
		return ErrNoMember
	}
	if n > math.MaxInt-m.credit {
		n = math.MaxInt - m.credit
	}
	m.credit = max(0, m.credit+n)
	g.place(m)
	return nil
}

// Credit returns how many records more the member may get.
func (g *Group) Credit(id MemberID) int {
	if m := g.members[id]; m != nil {
		return m.credit
	}
	return 0
}

// Stop ends hand-outs to a member (basic.cancel). It keeps what it holds and may
// settle it, and no longer counts as a consumer. Leave must follow some time.
func (g *Group) Stop(id MemberID) error {
	m := g.members[id]
	if m == nil {
		return ErrNoMember
	}
	if !m.stopped {
		m.stopped = true
		g.dismiss(m)
		g.place(m)
	}
	return nil
}

// Leave removes a member and gives back what it holds, counted as failed or not.
// It returns how many records that were. When the last one leaves, what was
// reserved for nobody is given up.
func (g *Group) Leave(id MemberID, counted bool) (n int, err error) {
	m := g.members[id]
	if m == nil {
		return 0, ErrNoMember
	}
	m.credit = 0
	g.place(m)
	if !m.stopped {
		g.dismiss(m)
	}
	delete(g.members, id)
	for _, w := range g.windows {
		n += w.ReleaseAll(id, counted)
	}
	if len(g.members) == 0 {
		g.Exact()
	}
	return n, nil
}

// dismiss takes a member out of the consumers.
func (g *Group) dismiss(m *member) {
	if !m.pull {
		g.consumers--
	}
	if m.exclusive {
		g.exclusive = false
	}
}

// place puts a member into the ring or takes it out, as its credit says. A
// newcomer's turn comes last.
func (g *Group) place(m *member) {
	wanted := m.credit > 0 && !m.stopped && !m.pull
	switch {
	case wanted && m.next == nil:
		if g.turn == nil {
			m.prev, m.next, g.turn = m, m, m
			return
		}
		m.prev, m.next = g.turn.prev, g.turn
		m.prev.next, m.next.prev = m, m
	case !wanted && m.next != nil:
		if m.next == m {
			g.turn = nil
		} else {
			m.prev.next, m.next.prev = m.next, m.prev
			if g.turn == m {
				g.turn = m.next
			}
		}
		m.prev, m.next = nil, nil
	}
}
