package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// flows are what a session has pinned, or is about to, by number. The next host's pins
// tell which of it has happened. The session's mutex guards them.
type flows map[uint16]*flow

// flow is one use of a number.
type flow struct {
	id    kernel.PinID
	m     *sessionMember // whose record it is; nil: of an earlier connection, or none
	place kernel.Place
	stage flowStage
	void  bool // no host has it any more: nothing is left to be settled
}

type flowStage uint8

const (
	pinning flowStage = iota // Pinned is to come
	pinned
	taking // Taken is to come
	took
)

// of returns the flow of a member with that number and stage, or nil.
func (f flows) of(m *sessionMember, number uint16, stage flowStage) *flow {
	if w := f[number]; w != nil && w.m == m && w.stage == stage {
		return w
	}
	return nil
}

// Pin is broker.Member.Pin.
func (m *sessionMember) Pin(id kernel.PinID, partition int32, offset int64) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flows == nil {
		s.flows = make(flows)
	}
	s.flows[id.Number] = &flow{id: id, m: m, place: kernel.Place{Partition: partition, Offset: offset}}
	if m.inner != nil {
		m.inner.Pin(id, partition, offset)
	}
}

// Take is broker.Member.Take.
func (m *sessionMember) Take(id kernel.PinID, partition int32, offset int64) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.flows[id.Number]; f != nil && f.id == id {
		f.m, f.stage, f.place = m, taking, kernel.Place{Partition: partition, Offset: offset}
		if f.void || m.inner == nil && s.inner != nil { // its subscription has gone
			f.stage = took
			s.c.e.spawn(func() { m.tellTaken([]uint16{id.Number}, nil) })
			return
		}
	}
	if m.inner != nil {
		m.inner.Take(id, partition, offset)
	}
}

// Refuse is broker.Member.Refuse.
func (m *sessionMember) Refuse(id kernel.PinID, partition int32, offset int64) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(id)
	if m.inner != nil {
		m.inner.Refuse(id, partition, offset)
	} else if s.inner != nil {
		s.inner.Unpin(id)
	}
}

// Unpin is broker.Member.Unpin.
func (m *sessionMember) Unpin(id kernel.PinID) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(id)
	if m.inner != nil {
		m.inner.Unpin(id)
	} else if s.inner != nil {
		s.inner.Unpin(id)
	}
}

// Unpin is broker.Session.Unpin.
func (s *session) Unpin(id kernel.PinID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(id)
	if s.inner != nil {
		s.inner.Unpin(id)
	}
}

// free forgets a flow: if the host does not learn of it, its pin is one of nobody at the
// next one. s.mu is held.
func (s *session) free(id kernel.PinID) {
	if f := s.flows[id.Number]; f != nil && f.id == id {
		delete(s.flows, id.Number)
	}
}

// Pinned implements kernel.Pinner. What a host that stops has not done is done again.
func (t sessionTap) Pinned(numbers []uint16, err error) {
	if again(err) {
		return
	}
	s := t.m.s
	s.mu.Lock()
	for _, n := range numbers {
		if f := s.flows.of(t.m, n, pinning); f != nil {
			if f.stage = pinned; err != nil {
				delete(s.flows, n)
			}
		}
	}
	s.mu.Unlock()
	t.m.tellPinned(numbers, err)
}

// Taken implements kernel.Pinner.
func (t sessionTap) Taken(numbers []uint16, err error) {
	if again(err) {
		return
	}
	s := t.m.s
	s.mu.Lock()
	for _, n := range numbers {
		if f := s.flows.of(t.m, n, taking); f != nil {
			f.stage = took
		}
	}
	s.mu.Unlock()
	t.m.tellTaken(numbers, err)
}

// tellPinned and tellTaken tell the front-end, if it pins. No mutex is held.
func (m *sessionMember) tellPinned(numbers []uint16, err error) {
	if to, ok := m.spec.To.(kernel.Pinner); ok {
		to.Pinned(numbers, err)
	}
}

func (m *sessionMember) tellTaken(numbers []uint16, err error) {
	if to, ok := m.spec.To.(kernel.Pinner); ok {
		to.Taken(numbers, err)
	}
}

// Pins is broker.Session.Pins.
func (s *session) Pins(ctx context.Context) (list []broker.SessionPin, err error) {
	err = s.do(ctx, func(l *link, in Session) (err error) {
		if list, err = in.Pins(ctx); err != nil {
			return err
		}
		return s.note(l, func() {
			s.listed = true
			if s.flows == nil && len(list) > 0 {
				s.flows = make(flows)
			}
			for _, p := range list {
				f := &flow{id: p.PinID, stage: pinned, place: kernel.Place{Partition: p.Partition, Offset: p.Offset}}
				if p.Taken {
					f.stage = took
				}
				s.flows[p.Number] = f
			}
		})
	})
	return list, err
}

// numbered is a PinNumber on its way.
type numbered struct {
	s    *session
	id   kernel.PinID
	done kernel.Completion
}

// PinNumber is broker.Session.PinNumber. If a host stops before it is done it is done at
// the next one.
func (s *session) PinNumber(id kernel.PinID, done kernel.Completion) error {
	n := &numbered{s, id, done}
	s.mu.Lock()
	if s.numbers == nil {
		s.numbers = make(map[uint16]*numbered)
	}
	s.numbers[id.Number] = n
	if s.flows == nil {
		s.flows = make(flows)
	}
	s.flows[id.Number] = &flow{id: id, stage: took}
	in := s.inner
	s.mu.Unlock()
	if in == nil {
		return nil
	}
	err := in.PinNumber(id, n)
	if again(err) || kernel.CodeOf(err) == kernel.CodeFenced && again(s.passed(in)) {
		return nil
	}
	if err != nil {
		n.drop()
	}
	return err
}

// drop ends it; false if it has ended.
func (n *numbered) drop() bool {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	if n.s.numbers[n.id.Number] != n {
		return false
	}
	delete(n.s.numbers, n.id.Number)
	return true
}

// Completed implements kernel.Completion.
func (n *numbered) Completed(token uint64, res kernel.Result) {
	if !again(res.Err) && n.drop() {
		n.done.Completed(token, res)
	}
}

// Flush implements kernel.Completion.
func (n *numbered) Flush() { n.done.Flush() }
