package forward

import (
	"context"
	"fmt"
	"runtime"
	"weak"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// place implements edge.SessionMember. What it holds may be settled, and its pins ended,
// after its subscription has gone: the other end forgets it when nobody has it any more.
type place struct{ m *member }

var _ edge.SessionMember = (*place)(nil)

func newPlace(m *member) *place {
	p := &place{m}
	letLater(p, m.link, kindLetMember, m.id)
	return p
}

// letLater tells the other end of a link when nobody has p any more. The link may have led
// to p: it is not kept for that.
func letLater[T any](p *T, l *link, k kind, id uint64) {
	to := weak.Make(l)
	runtime.AddCleanup(p, func(id uint64) {
		l := to.Value()
		if l == nil {
			return
		}
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		if !l.broken {
			l.number(k, id)
		}
	}, id)
}

// await returns when no callback of the member or its live feed is running; the caller
// has made sure that none will come.
func (m *member) await() {
	m.calls.Lock()
	//lint:ignore SA2001 who holds it is waited for
	m.calls.Unlock()
	m.link.live.await()
}

// forgetIdle has the link forget a member that nothing will come for. The caller holds
// out.mu.
func (m *member) forgetIdle() {
	if m.over && m.pins <= 0 {
		delete(m.link.members, m.id)
	}
}

// Credit implements edge.SessionMember.
func (p *place) Credit(n int) { p.m.Credit(n) }

// Settle implements edge.SessionMember.
func (p *place) Settle(o kernel.Outcome, partition int32, first, last int64) {
	p.m.Settle(o, partition, first, last)
}

// Pin implements edge.SessionMember.
func (p *place) Pin(id kernel.PinID, partition int32, offset int64) {
	p.m.pin(kindPin, id, kernel.Place{Partition: partition, Offset: offset})
}

// Take implements edge.SessionMember.
func (p *place) Take(id kernel.PinID, partition int32, offset int64) {
	p.m.pin(kindTake, id, kernel.Place{Partition: partition, Offset: offset})
}

// Refuse implements edge.SessionMember.
func (p *place) Refuse(id kernel.PinID, partition int32, offset int64) {
	p.m.pin(kindRefuse, id, kernel.Place{Partition: partition, Offset: offset})
}

// Unpin implements edge.SessionMember.
func (p *place) Unpin(id kernel.PinID) { p.m.pin(kindUnpin, id, kernel.Place{}) }

// pin sends a frame about a pin.
func (m *member) pin(k kind, id kernel.PinID, at kernel.Place) {
	l := m.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if m.of.held() != nil || l.broken {
		return
	}
	if k == kindPin || k == kindTake {
		m.pins++
		l.members[m.id] = m
	}
	if k == kindTake || k == kindRefuse {
		l.traffic.Settled.Add(1)
	}
	start := l.out.begin(k)
	l.out.buf = appendPinID(codec.AppendUint(l.out.buf, m.id), id)
	if k != kindUnpin {
		l.out.buf = appendPlace(l.out.buf, at)
	}
	l.out.end(start)
}

// onPinned tells what has become of pins.
func (l *link) onPinned(k kind, r *reader) error {
	id, reason := r.Uint(), r.error()
	l.pinned = r.numbers(l.pinned)
	if err := r.done(k); err != nil {
		return err
	}
	l.out.mu.Lock()
	m := l.members[id]
	if m != nil {
		m.pins -= len(l.pinned)
		m.forgetIdle()
	}
	l.out.mu.Unlock()
	if m == nil {
		return nil
	}
	to, ok := m.to.(kernel.Pinner)
	switch {
	case !ok:
	case k == kindPinned:
		to.Pinned(l.pinned, reason)
	default:
		to.Taken(l.pinned, reason)
	}
	return nil
}

// Hold implements edge.SessionMember.
func (p *place) Hold(places []kernel.Place) []bool {
	held := make([]bool, len(places))
	err := p.m.of.call(context.Background(), methodHold, func(b []byte) []byte {
		b = codec.AppendUint(codec.AppendUint(b, p.m.id), uint64(len(places)))
		for _, at := range places {
			b = appendPlace(b, at)
		}
		return b
	}, func(r *reader) {
		for i := range held {
			held[i] = r.flag()
		}
	})
	if err != nil {
		clear(held)
	}
	return held
}

// Read implements edge.SessionMember. fn runs on a goroutine that must not be held up.
func (p *place) Read(at kernel.Place, fn func(*kernel.View)) (ok bool, err error) {
	var wrong error
	err = p.m.of.call(context.Background(), methodRead, func(b []byte) []byte {
		return appendPlace(codec.AppendUint(b, p.m.id), at)
	}, func(r *reader) {
		if ok = r.flag(); !ok {
			return
		}
		var v kernel.View
		if r.B, wrong = v.ReadCarried(r.B); wrong == nil {
			fn(&v)
		}
	})
	if err == nil && wrong != nil {
		err = fmt.Errorf("%w: a record: %w", errMalformed, wrong)
	}
	return ok && err == nil, err
}
