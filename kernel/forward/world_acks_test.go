package forward

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// wackAt is a place that a device has acknowledged with QoS 1.
type wackAt struct {
	device, filter string
	kernel.Place
}

// wack is what has become of an acknowledgement. While nobody serves, the edge keeps it
// for the next host: it goes with a connection that ends before its session is there. That
// a link is open does not say that: it is made before the session is resumed by it, and
// closed again if the connection ends meanwhile. So what counts is the link that has got
// the settlement.
type wack struct {
	conn string
	link *wlink // that has got it; nil: none yet
}

// acks notes that a device acknowledges something, before it tells the edge.
func (t *truth) acks(at wackAt, conn string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked[at] = &wack{conn: conn}
}

// passes notes that settlements of a session go into a link.
func (t *truth) passes(l *wlink, device, filter string, partition int32, first, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o := first; o <= last; o++ {
		if a := t.acked[wackAt{device, filter, kernel.Place{Partition: partition, Offset: o}}]; a != nil && a.conn == l.name && a.link == nil {
			a.link = l
		}
	}
}

// over reports whether what was acknowledged, by which connection, must not come again
// over a connection: what the edge keeps for the next host is held there before anything
// is handed out over the same one.
func (t *truth) over(at wackAt, conn string) (by string, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.acked[at]
	switch {
	case a == nil:
		return "", false
	case a.link == nil:
		return a.conn, a.conn == conn
	}
	return a.conn, !a.link.lost && !t.unsure[a.conn]
}

// answers notes that a host has answered something of the session of a connection: all
// that was acknowledged before must have gone into a link.
func (t *truth) answers(conn string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, a := range t.acked {
		if a.conn == conn && a.link == nil {
			t.fail("%s has acknowledged %v of %s, and no host was told", conn, at.Place, at.filter)
		}
	}
}

// uncertain notes that what is under way by a connection may not be done.
func (t *truth) uncertain(conn string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsure[conn] = true
}

// wheld is a session at a link, that tells the truth what is settled there.
type wheld struct {
	edge.Session
	link   *wlink
	device string
}

// wheldMember is a member of it.
type wheldMember struct {
	edge.SessionMember
	s      *wheld
	filter string
}

func (l *wlink) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (edge.Session, bool, error) {
	s, present, err := l.Link.AttachSession(ctx, a, taken)
	if err != nil {
		return nil, false, err
	}
	return &wheld{s, l, a.ClientID}, present, nil
}

// Subscribe implements edge.Session.
func (s *wheld) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []edge.Subscribed {
	out := s.Session.Subscribe(ctx, specs)
	for i := range out {
		out[i].Member = s.member(out[i].Member, &specs[i])
	}
	return out
}

// Attach implements edge.Session.
func (s *wheld) Attach(ctx context.Context, spec broker.SubscribeSpec) (edge.SessionMember, error) {
	m, err := s.Session.Attach(ctx, spec)
	return s.member(m, &spec), err
}

func (s *wheld) member(m edge.SessionMember, spec *broker.SubscribeSpec) edge.SessionMember {
	if m == nil {
		return nil
	}
	return &wheldMember{m, s, spec.Subscription.Filter}
}

// Settle implements edge.SessionMember.
func (m *wheldMember) Settle(o kernel.Outcome, partition int32, first, last int64) {
	m.s.link.w.truth.passes(m.s.link, m.s.device, m.filter, partition, first, last)
	m.SessionMember.Settle(o, partition, first, last)
}

// heldPublisher is a publisher of a link that knows its sessions as they are.
type heldPublisher struct{ edge.Publisher }

// ToTopicOnce implements edge.SessionPublisher.
func (p heldPublisher) ToTopicOnce(s edge.Session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.Publisher.ToTopicOnce(s.(*wheld).Session, number, name, r, token)
}
