package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// subscriber is a member of a group in a history.
type subscriber struct {
	h     *history
	group *groupModel
	sh    *share
	m     *Member
	auto  bool
	pull  bool
	gone  bool
	wait  chan error // an Acquire is on its way
	held  []place
}

func (h *history) subscribe() {
	opt := kernel.MemberOptions{AutoSettle: h.rng.Intn(8) == 0}
	h.subscribeTo(h.rng.Intn(len(h.model.groups)), opt)
}

func (h *history) subscribeTo(i int, opt kernel.MemberOptions) *subscriber {
	g := h.model.groups[i]
	s := &subscriber{h: h, group: g, sh: h.g.machine.groups[g.id], auto: opt.AutoSettle}
	m, err := h.g.Join(g.id, opt, s)
	if err != nil {
		h.failf("join: %v", err)
		return nil
	}
	s.m = m
	h.subs = append(h.subs, s)
	return s
}

func (s *subscriber) Ended(err error) { s.h.failf("a membership has ended: %v", err) }

// Deliver checks what is handed out.
func (s *subscriber) Deliver(batch []kernel.Delivery) {
	h, g := s.h, s.group
	if s.gone {
		h.failf("group %d: a member that has left gets records", g.id)
	}
	for _, d := range batch {
		part := s.sh.topic.part(d.Partition).id
		at := place{part, d.Offset}
		h.note(int(g.id), int(part), int(d.Offset), int(d.Acquired))
		h.model.checkContent(part, d.Offset, numberOf(d.Record))
		switch {
		case g.held[at] != nil:
			h.failf("group %d, partition %d: offset %d is handed out to two members", g.id, part, d.Offset)
		case g.now[at], g.settled[at]:
			h.failf("group %d, partition %d: offset %d is handed out after it was settled", g.id, part, d.Offset)
		case g.delivered[at] && !d.Redelivered:
			h.failf("group %d, partition %d: offset %d comes again and is not marked", g.id, part, d.Offset)
		}
		g.delivered[at] = true
		if s.auto {
			g.acked[at], g.now[at] = true, true
			continue
		}
		g.held[at] = s
		s.held = append(s.held, at)
	}
}

func (s *subscriber) act() {
	switch n := s.h.rng.Intn(20); {
	case s.gone:
	case s.pull:
		s.acquire()
	case n < 8:
		s.m.Credit(1 + s.h.rng.Intn(6))
	case n < 18:
		s.settle()
	case n == 18:
		s.leave()
	default:
		s.m.Stop()
	}
}

// acquire pulls a few records, and settles some; Acquire itself would wait.
func (s *subscriber) acquire() {
	if s.wait != nil {
		select {
		case err := <-s.wait:
			if err != nil {
				s.h.failf("acquire: %v", err)
			}
			s.wait = nil
		default:
		}
		s.settle()
		return
	}
	s.wait = make(chan error, 1)
	a := &acquisition{member: s.m, max: 1 + s.h.rng.Intn(4), fn: func(b []kernel.Delivery, _ int64) { s.Deliver(b) }, done: s.wait}
	s.m.shard.ask(func() { s.m.shard.acquire(a) })
}

// settle settles a run of what the member holds.
func (s *subscriber) settle() {
	if len(s.held) == 0 {
		return
	}
	o := kernel.Accept
	switch s.h.rng.Intn(8) {
	case 0:
		o = kernel.Release
	case 1:
		o = kernel.Refuse
	}
	from := s.h.rng.Intn(len(s.held))
	n := 1 + s.h.rng.Intn(len(s.held)-from)
	for _, at := range s.held[from : from+n] {
		p := s.h.g.machine.parts[at.part]
		if o != kernel.Release {
			s.group.now[at] = true
			s.group.acked[at] = s.group.acked[at] || o == kernel.Accept || !s.group.dying
		}
		delete(s.group.held, at)
		s.m.Settle(o, p.index, at.offset, at.offset)
	}
	s.held = slices.Delete(s.held, from, from+n)
}

func (s *subscriber) acceptAll() {
	for _, at := range s.held {
		s.group.acked[at], s.group.now[at] = true, true
		delete(s.group.held, at)
		s.m.Settle(kernel.Accept, s.h.g.machine.parts[at.part].index, at.offset, at.offset)
	}
	s.held = nil
}

func (s *subscriber) leave() {
	if s.gone {
		return
	}
	for _, at := range s.held {
		delete(s.group.held, at)
	}
	s.held, s.gone = nil, true
	s.m.Leave()
}
