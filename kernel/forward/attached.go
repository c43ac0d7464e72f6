package forward

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

var _ edge.Sessions = (*link)(nil)

// attached is the session that a link holds. It implements edge.Session.
type attached struct {
	link  *link
	id    uint64
	taken func() // may be nil
	epoch uint64
	state kernel.SessionState
	gone  chan struct{} // closed when it has been given back

	// guarded by link.out.mu
	over    bool                   // it is given back
	claimed bool                   // taken was called
	feeds   map[string]*member     // by filter; of a live one the member stands for its feed
	members kernel.Ordered[member] // those that may get something yet
}

// AttachSession implements edge.Sessions. taken may not call the link's Close.
func (l *link) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (edge.Session, bool, error) {
	s := &attached{
		link: l, taken: taken, gone: make(chan struct{}),
		feeds: make(map[string]*member),
	}
	if a.Epoch != 0 && a.Numbers != nil {
		numbers := a.Numbers() // with no mutex held
		a.Numbers = func() []uint16 { return numbers }
	}
	l.out.mu.Lock()
	if l.attached != nil {
		l.out.mu.Unlock()
		return nil, false, kernel.Errorf(kernel.CodeNotAllowed, "session", a.ClientID, "the connection holds another one already")
	}
	s.id = l.nextID()
	l.attached = s
	l.out.mu.Unlock()
	present := false
	err := l.call(ctx, methodAttachSession, func(b []byte) []byte {
		return appendAttaching(codec.AppendUint(b, s.id), &a)
	}, func(r *reader) { present, s.epoch, s.state = r.flag(), r.Uint(), r.state() }, func() { l.unwanted(&a) })
	if err != nil {
		l.out.mu.Lock()
		s.drop()
		l.out.mu.Unlock()
		return nil, false, err
	}
	return s, present, nil
}

// unwanted gives back a session that nobody waited for.
func (l *link) unwanted(a *broker.Attaching) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if !l.broken {
		l.work.Go(func() { _ = l.detach(a.Expiry, a.Epoch != 0) })
	}
}

func (l *link) detach(expiry time.Duration, suspends bool) error {
	return l.call(context.Background(), methodDetach, func(b []byte) []byte {
		return codec.AppendFlags(codec.AppendInt(b, int64(expiry)), suspends)
	}, nil, nil)
}

// drop ends what the link has of the session. The caller holds out.mu.
func (a *attached) drop() {
	if a.over = true; a.link.attached == a {
		a.link.attached = nil
	}
}

// held says whether the session is held; of none it is nil, too. The caller holds out.mu.
func (a *attached) held() error {
	if a != nil && a.over {
		return kernel.Errorf(kernel.CodeFenced, "session", a.state.ClientID, "the connection has given it back")
	}
	return nil
}

// call calls a method of the session.
func (a *attached) call(ctx context.Context, m method, args func(b []byte) []byte, values func(r *reader)) error {
	return a.link.wait(ctx, a, m, args, &call{values: values, done: make(chan error, 1)})
}

// onClaimed tells that another connection wants the session.
func (l *link) onClaimed(r *reader) error {
	id := r.Uint()
	if err := r.done(kindClaimed); err != nil {
		return err
	}
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if a := l.attached; a != nil && a.id == id && !a.claimed && a.taken != nil {
		a.claimed = true
		l.work.Go(a.taken)
	}
	return nil
}

// Epoch implements edge.Session.
func (a *attached) Epoch() uint64 { return a.epoch }

// State implements edge.Session.
func (a *attached) State() kernel.SessionState { return a.state }

// Detach implements edge.Session.
func (a *attached) Detach(expiry time.Duration) { a.giveBack(expiry, false) }

// Suspend implements edge.Session.
func (a *attached) Suspend() { a.giveBack(0, true) }

// giveBack gives the session back, once.
func (a *attached) giveBack(expiry time.Duration, suspends bool) {
	l := a.link
	l.out.mu.Lock()
	again := a.over
	a.drop()
	l.out.mu.Unlock()
	if again {
		<-a.gone
		return
	}
	defer close(a.gone)
	_ = l.detach(expiry, suspends)
	l.out.mu.Lock()
	list := a.members.List()
	for _, m := range list {
		m.over, m.left, m.waits = true, true, nil
		delete(l.members, m.id)
		delete(l.live.feeds, m.id)
	}
	a.feeds, a.members = nil, kernel.Ordered[member]{}
	l.out.mu.Unlock()
	for _, m := range list {
		m.await()
	}
}

// Subscribe implements edge.Session. Subscriptions that are made after ctx has ended are
// fed with nothing.
func (a *attached) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []edge.Subscribed {
	return a.subscribe(ctx, specs, false)
}

// Attach implements edge.Session.
func (a *attached) Attach(ctx context.Context, spec broker.SubscribeSpec) (edge.SessionMember, error) {
	out := a.subscribe(ctx, []broker.SubscribeSpec{spec}, true)
	return out[0].Member, out[0].Err
}

// became is what a subscription has become.
type became struct {
	err     error
	existed bool
	kind    byte
}

func (a *attached) subscribe(ctx context.Context, specs []broker.SubscribeSpec, again bool) []edge.Subscribed {
	places := a.places(specs)
	list := make([]became, len(specs))
	err := a.call(ctx, methodSubscribe, func(b []byte) []byte {
		b = codec.AppendUint(codec.AppendFlags(b, again), uint64(len(specs)))
		for i := range specs {
			b = appendSubscription(codec.AppendUint(b, places[i].id), &specs[i].Subscription)
		}
		return b
	}, func(r *reader) {
		for i := range list {
			list[i].err = r.error()
			list[i].existed, list[i].kind = r.flag(), r.Byte()
		}
	})
	out := make([]edge.Subscribed, len(specs))
	for i, m := range places {
		if err != nil {
			list[i] = became{err: err}
		}
		a.become(m, specs[i].Subscription.Filter, list[i])
		if out[i].Err, out[i].Existed = list[i].err, list[i].existed; list[i].kind == becameMember {
			out[i].Member = newPlace(m)
		}
	}
	return out
}

// places makes a member and a live feed for each subscription that is asked for: it may
// be fed before it is known what it has become.
func (a *attached) places(specs []broker.SubscribeSpec) []*member {
	l := a.link
	list := make([]*member, len(specs))
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	for i := range specs {
		s := &specs[i]
		m := &member{link: l, id: l.nextID(), to: s.To, auto: s.Subscription.QoS == 0, of: a}
		m.large, _ = s.To.(kernel.Admitter)
		if list[i] = m; a.over || l.broken {
			continue
		}
		l.members[m.id] = m
		a.members.Add(m)
		if s.Live != nil {
			l.live.feeds[m.id] = &feed{to: s.Live, handle: s.Handle}
		}
	}
	return list
}

// become notes what a subscription has become, in the place of the one before.
func (a *attached) become(m *member, filter string, what became) {
	l := a.link
	l.out.mu.Lock()
	var old *member
	switch {
	case a.over: // all of it has ended
	case what.err != nil || what.kind == becameNone:
		a.retire(m)
		m.left = true
	default:
		old = a.feeds[filter]
		a.feeds[filter] = m
		if what.kind == becameMember {
			delete(l.live.feeds, m.id)
		}
	}
	if old != nil {
		a.retire(old)
	}
	l.out.mu.Unlock()
	if old != nil {
		old.await()
	}
}

// retire has a member, or the live feed of its number, get nothing any more. What it
// holds is its. The caller holds out.mu.
func (a *attached) retire(m *member) {
	l := a.link
	m.over = true
	m.giveBack(m.waits)
	m.waits = nil
	a.members.Remove(m)
	delete(l.live.feeds, m.id)
	m.forgetIdle()
}

// Unsubscribe implements edge.Session.
func (a *attached) Unsubscribe(ctx context.Context, filter string) (existed bool, err error) {
	err = a.call(ctx, methodUnsubscribe, func(b []byte) []byte { return codec.AppendString(b, filter) },
		func(r *reader) { existed = r.flag() })
	if err != nil {
		return false, err
	}
	l := a.link
	l.out.mu.Lock()
	m := a.feeds[filter]
	if delete(a.feeds, filter); m != nil {
		m.left = true
		a.retire(m)
	}
	l.out.mu.Unlock()
	if m != nil {
		m.await()
	}
	return existed, nil
}
