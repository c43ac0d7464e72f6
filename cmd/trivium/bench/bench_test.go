package bench

import (
	"errors"
	"testing"
	"time"
)

func TestHistogramQuantiles(t *testing.T) {
	var h histogram
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Millisecond)
	}
	for q, want := range map[float64]float64{0.50: 500, 0.99: 990} {
		if got := h.quantile(q); got < want*0.96 || got > want*1.04 {
			t.Errorf("quantile %v is %v ms, want %v within 4 %%", q, got, want)
		}
	}
	if h.max() != 1000 {
		t.Errorf("max is %v ms", h.max())
	}
}

func TestHistogramBucketsAreMonotonic(t *testing.T) {
	last := -1
	for ns := int64(0); ns < 1<<40; ns = ns*9/8 + 1 {
		b := bucketOf(ns)
		if b < last || b >= buckets {
			t.Fatalf("%d ns is in bucket %d after %d", ns, b, last)
		}
		if v := bucketValue(b); v > ns || float64(v) < float64(ns)*0.96-1 {
			t.Fatalf("%d ns is shown as %d", ns, v)
		}
		last = b
	}
}

func TestLedgerFindsLostAndDuplicates(t *testing.T) {
	l := newLedger(2)
	for _, seq := range []uint64{0, 1, 3, 3, 200} {
		l.receive(0, seq)
	}
	l.receive(1, 0)
	l.receive(7, 0) // no such publisher
	received, duplicates, lost := l.result([]uint64{5, 2})
	if received != 6 || duplicates != 1 || lost != 3 { // 2 and 4 of the first, 1 of the second
		t.Errorf("received %d, duplicates %d, lost %d", received, duplicates, lost)
	}
	if l.total() != 5 {
		t.Errorf("total %d", l.total())
	}
}

func TestWindowConfirmsInAnyOrder(t *testing.T) {
	var h histogram
	w := newWindow(4, &h)
	if seq, n := w.take(10); seq != 0 || n != 4 {
		t.Fatalf("took %d from %d", n, seq)
	}
	w.confirm(2, false)
	w.confirm(2, false) // again: not counted twice
	w.confirm(1, true)
	if seq, n := w.take(10); seq != 4 || n != 3 {
		t.Fatalf("took %d from %d", n, seq)
	}
	if p, c := w.counts(); p != 7 || c != 3 {
		t.Errorf("published %d, confirmed %d", p, c)
	}
	w.close(errors.New("gone"))
	if _, n := w.take(1); n != 0 {
		t.Error("a closed window gave a place")
	}
	if w.drain() == nil {
		t.Error("drain did not say that confirms are missing")
	}
}

func TestMessageHeaderRoundTrip(t *testing.T) {
	p := make([]byte, headerSize)
	stamp(p, 3, 1<<33, 99)
	if pub, seq, sent, err := parse(p); pub != 3 || seq != 1<<33 || sent != 99 || err != nil {
		t.Errorf("got %d %d %d %v", pub, seq, sent, err)
	}
	if _, _, _, err := parse([]byte("somebody else's message")); err == nil {
		t.Error("a foreign message was taken for ours")
	}
}
