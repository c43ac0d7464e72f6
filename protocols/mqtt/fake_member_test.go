package mqtt

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

type fakeMember struct {
	session *fakeSession
	feed    *feed
	acts    []string // with pins

	mu      sync.Mutex
	credit  int
	settled []settlement
	changed chan struct{}
}

func (m *fakeMember) note() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *fakeMember) Credit(n int) {
	m.mu.Lock()
	m.credit += n
	m.mu.Unlock()
	m.note()
}

func (m *fakeMember) Settle(o kernel.Outcome, partition int32, first, last int64) {
	m.mu.Lock()
	m.settled = append(m.settled, settlement{refuse: o == kernel.Refuse, partition: partition, first: first, last: last})
	m.mu.Unlock()
	m.note()
}

func (m *fakeMember) act(what string, id kernel.PinID, offset int64) {
	m.mu.Lock()
	m.acts = append(m.acts, fmt.Sprintf("%s %d@%d", what, id.Number, offset))
	m.mu.Unlock()
	m.note()
}

func (m *fakeMember) Pin(id kernel.PinID, _ int32, offset int64)    { m.act("pin", id, offset) }
func (m *fakeMember) Take(id kernel.PinID, _ int32, offset int64)   { m.act("take", id, offset) }
func (m *fakeMember) Refuse(id kernel.PinID, _ int32, offset int64) { m.act("refuse", id, offset) }
func (m *fakeMember) Unpin(id kernel.PinID)                         { m.act("unpin", id, -1) }

// Hold takes what Read would find.
func (m *fakeMember) Hold(places []kernel.Place) []bool {
	held := make([]bool, len(places))
	for i, p := range places {
		_, held[i] = m.session.records[p.Offset]
	}
	return held
}

func (m *fakeMember) Read(p kernel.Place, fn func(*kernel.View)) (bool, error) {
	r, ok := m.session.records[p.Offset]
	if ok {
		var b record.Builder
		b.SetAttributes(record.AttrOwn)
		b.Append(&r)
		var it record.Iter
		if it.Reset(b.Finish(nil), nil) == nil && it.Next() {
			fn(it.View())
		}
	}
	return ok, nil
}

// deliver hands out records, as many as there is credit for, and returns how
// many.
func (m *fakeMember) deliver(t testing.TB, offset int64, redelivered bool, recs ...kernel.Record) int {
	t.Helper()
	m.mu.Lock()
	n := min(m.credit, len(recs))
	m.credit -= n
	m.mu.Unlock()
	var b record.Builder
	b.SetAttributes(record.AttrOwn)
	for i := range recs[:n] {
		b.Append(&recs[i])
	}
	if n == 0 {
		return 0
	}
	batch := b.Finish(nil)
	var it record.Iter
	if err := it.Reset(batch, nil); err != nil {
		t.Fatal(err)
	}
	var ds []kernel.Delivery
	bytes := 0
	for it.Next() {
		v := *it.View()
		bytes += v.Size
		ds = append(ds, kernel.Delivery{Record: &v, Offset: offset + int64(len(ds)), Acquired: 1, Redelivered: redelivered})
	}
	if bytes >= kernel.LargeDelivery && !m.feed.Admit(n, bytes) {
		m.mu.Lock()
		m.credit += n // that was taken back
		m.mu.Unlock()
		return 0
	}
	m.feed.Deliver(ds)
	return n
}

// wait waits until cond holds.
func (m *fakeMember) wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		m.mu.Lock()
		ok := cond()
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-m.changed:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
