package edge

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

const (
	// attachWidth is how many subscriptions of a session are attached side by side.
	attachWidth = 8
	// holdRun is how many places are held with one call.
	holdRun = 4096
)

// relinking brings a session to the host of a new link.
type relinking struct {
	s     *session
	link  *link
	in    Session
	list  []*place
	pins  []broker.SessionPin
	there bool // the host had the session: pins tells what is pinned
	// told are what members are told when it is done.
	told []telling
}

// place is a subscription on its way to the host.
type place struct {
	m    *sessionMember
	in   SessionMember // nil: it is fed from memory
	err  error         // the host refuses it
	lost map[kernel.Place]struct{}
}

// telling is what a member hears of its pins.
type telling struct {
	m             *sessionMember
	pinned, taken []uint16
}

// resume attaches the connection's session, if it has one, at the host of a link.
func (c *Conn) resume(ctx context.Context, l *link) error {
	s := c.attached()
	if s == nil {
		return nil
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	over, how, will := s.over || s.given, s.how, s.will
	s.mu.Unlock()
	if over {
		s.end()
		return nil
	}
	in, present, err := l.AttachSession(ctx, how, s.take)
	if kernel.CodeOf(err) == kernel.CodeFenced {
		s.end()
		s.take()
		return nil
	}
	if err != nil {
		return inTime(ctx, err)
	}
	r := &relinking{s: s, link: l, in: in, there: present}
	if err := r.run(ctx, will); err != nil {
		in.Suspend()
		return err
	}
	r.install()
	r.tell()
	return nil
}

// run makes anew what the session had; an error is for CodeUnavailable and the like.
func (r *relinking) run(ctx context.Context, will *kernel.Will) (err error) {
	if will != nil {
		if err = inTime(ctx, r.in.SetWill(ctx, will)); again(err) {
			return err
		} else if err != nil {
			r.s.c.e.cfg.Logger.Warn().Err(err).Str("session", r.s.state.ClientID).Msg("a will could not be set again")
		}
	}
	if r.there {
		if r.pins, err = r.in.Pins(ctx); err != nil {
			return inTime(ctx, err)
		}
	}
	r.s.mu.Lock()
	for _, m := range r.s.subs {
		r.list = append(r.list, &place{m: m})
	}
	r.s.mu.Unlock()
	if r.there {
		r.attach(ctx)
	} else {
		r.subscribe(ctx, r.list)
	}
	for _, p := range r.list {
		if p.err = inTime(ctx, p.err); again(p.err) {
			return p.err
		}
		if p.err == nil && p.in != nil {
			if err := r.hold(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// attach attaches the subscriptions that the session has there.
func (r *relinking) attach(ctx context.Context) {
	var work sync.WaitGroup
	slots := make(chan struct{}, attachWidth)
	for _, p := range r.list {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			p.in, p.err = r.in.Attach(ctx, innerSpecs([]*sessionMember{p.m})[0])
		})
	}
	work.Wait()
	var missing []*place
	for _, p := range r.list {
		if kernel.CodeOf(p.err) == kernel.CodeNotFound {
			missing = append(missing, p)
		}
	}
	r.subscribe(ctx, missing)
}

// subscribe makes subscriptions anew.
func (r *relinking) subscribe(ctx context.Context, list []*place) {
	if len(list) == 0 {
		return
	}
	members := make([]*sessionMember, len(list))
	for i, p := range list {
		members[i] = p.m
	}
	for i, out := range r.in.Subscribe(ctx, innerSpecs(members)) {
		list[i].in, list[i].err = out.Member, out.Err
	}
}

// hold has a membership hold what the client has of it. Of a link that breaks nothing is
// held, and nothing is another's for that.
func (r *relinking) hold(ctx context.Context, p *place) error {
	var places []kernel.Place
	for m := p.m; m != nil; m = m.before {
		places = append(places, r.held(m)...)
	}
	for part := range slices.Chunk(places, holdRun) {
		for i, ok := range p.in.Hold(part) {
			if ok {
				continue
			}
			if p.lost == nil {
				p.lost = make(map[kernel.Place]struct{})
			}
			p.lost[part[i]] = struct{}{}
		}
	}
	if len(p.lost) == 0 {
		return nil
	}
	if _, err := r.in.Pins(ctx); again(err) {
		return err
	}
	gone := make([]kernel.Place, 0, len(p.lost))
	for at := range p.lost {
		gone = append(gone, at)
	}
	for m := p.m; m != nil; m = m.before {
		if to, ok := m.spec.To.(kernel.Holder); ok {
			to.Lost(gone)
		}
	}
	return nil
}

// held returns the places that a member is to hold: those that the client holds, and
// those that it has settled since, or is to pin.
func (r *relinking) held(m *sessionMember) (places []kernel.Place) {
	if to, ok := m.spec.To.(kernel.Holder); ok {
		places = to.Holding() // before what follows, which it may become meanwhile
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, t := range m.settles {
		for o := t.first; o <= t.last; o++ {
			places = append(places, kernel.Place{Partition: t.partition, Offset: o})
		}
	}
	for _, f := range r.s.flows {
		if f.m == m && f.stage == pinning && !r.isPinned(f) {
			places = append(places, f.place)
		}
	}
	return places
}

func (r *relinking) isPinned(f *flow) bool {
	return slices.ContainsFunc(r.pins, func(p broker.SessionPin) bool { return p.PinID == f.id })
}

// install takes the session into use at the host, and does there what was under way and
// has not happened.
func (r *relinking) install() {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.inner = r.link, r.in
	for _, p := range r.list {
		for m := p.m; m != nil; m = m.before {
			m.inner = p.in
		}
		p.m.live = p.in == nil && p.err == nil
	}
	r.settle()
	r.repin()
	for _, rel := range slices.Clone(s.releases) {
		rel.again = true
		s.c.e.spawn(func() { rel.release(r.in) }) // it may tell at once
	}
	for _, p := range r.list {
		if p.in != nil && p.m.credit != 0 {
			p.in.Credit(p.m.credit)
		}
	}
}

// settle settles what was settled while nobody served. s.mu is held.
func (r *relinking) settle() {
	for _, p := range r.list {
		for m := p.m; m != nil; m = m.before {
			for _, t := range m.settles {
				if p.in != nil {
					p.in.Settle(t.outcome, t.partition, t.first, t.last)
				}
			}
			m.settles = nil
		}
	}
}

// repin compares what is pinned there with what the client knows. s.mu is held.
func (r *relinking) repin() {
	s := r.s
	pins := make(map[uint16]broker.SessionPin, len(r.pins))
	for _, p := range r.pins {
		if f := s.flows[p.Number]; f == nil || f.id != p.PinID {
			if s.listed {
				r.in.Unpin(p.PinID) // the client has ended it
			}
			continue
		}
		pins[p.Number] = p
	}
	order := make([]*flow, 0, len(s.flows))
	for _, f := range s.flows {
		order = append(order, f)
	}
	slices.SortFunc(order, func(a, b *flow) int { return cmp.Compare(a.id.Count, b.id.Count) })
	told := make(map[*sessionMember]*telling)
	var list []*telling // in their order
	for _, f := range order {
		if n := s.numbers[f.id.Number]; n != nil && n.id == f.id {
			r.renumber(n, pins)
			continue
		}
		if f.m == nil {
			continue
		}
		t := told[f.m]
		if t == nil {
			t = &telling{m: f.m}
			told[f.m] = t
			list = append(list, t)
		}
		p, ok := pins[f.id.Number]
		r.redo(f, ok, p.Taken, t)
	}
	for _, t := range list {
		r.told = append(r.told, *t)
	}
}

// redo does what of a flow has not happened, and notes what has. s.mu is held.
func (r *relinking) redo(f *flow, there, done bool, t *telling) {
	number := f.id.Number
	switch f.stage {
	case pinning:
		switch {
		case there:
			f.stage = pinned
			t.pinned = append(t.pinned, number)
		case f.m.inner == nil || r.isLost(f):
			delete(r.s.flows, number)
		default:
			f.m.inner.Pin(f.id, f.place.Partition, f.place.Offset)
		}
	case taking:
		if there && !done && f.m.inner != nil {
			f.m.inner.Take(f.id, f.place.Partition, f.place.Offset)
			return
		}
		f.stage = took
		t.taken = append(t.taken, number)
	default:
		f.void = !there
	}
}

func (r *relinking) isLost(f *flow) bool {
	for _, p := range r.list {
		for m := p.m; m != nil; m = m.before {
			if m == f.m {
				_, lost := p.lost[f.place]
				return lost
			}
		}
	}
	return true // its subscription has gone
}

// renumber goes on with a PinNumber. s.mu is held.
func (r *relinking) renumber(n *numbered, pins map[uint16]broker.SessionPin) {
	if _, there := pins[n.id.Number]; there {
		r.s.c.e.spawn(func() {
			n.Completed(uint64(n.id.Number), kernel.Result{})
			n.Flush()
		})
		return
	}
	r.s.c.e.spawn(func() {
		if err := r.in.PinNumber(n.id, n); err != nil {
			n.Completed(uint64(n.id.Number), kernel.Result{Err: err})
			n.Flush()
		}
	})
}

// tell tells the front-end what has become of it.
func (r *relinking) tell() {
	for _, t := range r.told {
		if len(t.pinned) > 0 {
			t.m.tellPinned(t.pinned, nil)
		}
		if len(t.taken) > 0 {
			t.m.tellTaken(t.taken, nil)
		}
	}
	for _, p := range r.list {
		if p.err != nil {
			p.m.spec.To.Ended(p.err)
		}
	}
}
