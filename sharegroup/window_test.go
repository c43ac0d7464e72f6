package sharegroup

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func lead(end int64, p Policy) *Window {
	w := New(0)
	w.Lead(1, end, p)
	return w
}

func wantAcquire(t *testing.T, w *Window, id MemberID, n int, want string) []Run {
	t.Helper()
	runs := w.Acquire(nil, Taker{Member: id}, n, 0)
	if got := offsets(runs); got != want {
		t.Fatalf("acquired %q, want %q", got, want)
	}
	return runs
}

// RabbitMQ: x-delivery-limit 2 allows two redeliveries.
func TestLimitOnFailed(t *testing.T) {
	w := lead(2, Policy{Limit: Limit{OnFailed, 2}})
	for i, want := range []string{"0 ", "0r ", "0r "} {
		runs := wantAcquire(t, w, 1, 1, want)
		if runs[0].Acquired != uint16(i+1) || runs[0].Failed != uint16(i) {
			t.Fatalf("hand-out %d: %+v", i, runs[0])
		}
		mustSettle(t, w, 1, 0, 0, Fail)
	}
	if dead := w.TakeDead(nil); !slices.Equal(dead, []Dead{{0, 3, 3, OverLimit}}) {
		t.Fatalf("dead: %v", dead)
	}
	wantAcquire(t, w, 1, 1, "1 ")
	for range 5 { // nack does not count
		mustSettle(t, w, 1, 1, 1, Release)
		wantAcquire(t, w, 1, 1, "1r ")
	}
	if dead := w.TakeDead(nil); len(dead) > 0 {
		t.Fatalf("dead: %v", dead)
	}
}

// KIP-932: a delivery count limit of 2 allows two deliveries.
func TestLimitOnAcquired(t *testing.T) {
	w := lead(2, Policy{Limit: Limit{OnAcquired, 2}})
	wantAcquire(t, w, 1, 1, "0 ")
	mustSettle(t, w, 1, 0, 0, Release)
	wantAcquire(t, w, 1, 1, "0r ")
	mustSettle(t, w, 1, 0, 0, Release)
	wantAcquire(t, w, 1, 1, "1 ")
	var s Settlement
	if !w.Take(&s) || !slices.Equal(s.Archived, []Span{{0, 0}}) {
		t.Fatalf("%+v", s)
	}
}

// A record that reached the limit under an earlier leader is not handed out.
func TestLimitSurvivesTheLeader(t *testing.T) {
	w := lead(3, Policy{Limit: Limit{OnFailed, 1}, DeadLetter: true})
	for range 2 {
		wantAcquire(t, w, 1, 1, map[bool]string{true: "0 ", false: "0r "}[w.InFlight() == 0 && w.Failed(0) == 0])
		mustSettle(t, w, 1, 0, 0, Fail)
		commit(w, new(Settlement))
	}
	if w.Floor() != 0 || w.Failed(0) != 2 || w.Settling() != 1 {
		t.Fatalf("floor %d failed %d settling %d", w.Floor(), w.Failed(0), w.Settling())
	}
	w.Unlead() // the dead letter was not safe
	w.Lead(2, 3, Policy{Limit: Limit{OnFailed, 1}, DeadLetter: true})
	wantAcquire(t, w, 1, 1, "1 ")
	if dead := w.TakeDead(nil); !slices.Equal(dead, []Dead{{0, 2, 2, OverLimit}}) {
		t.Fatalf("dead: %v", dead)
	}
	w.Archive(0, 1) // 1 is held and stays
	commit(w, new(Settlement))
	if w.Floor() != 1 || w.InFlight() != 1 {
		t.Fatalf("floor %d in flight %d", w.Floor(), w.InFlight())
	}
}

func TestStaleSettles(t *testing.T) {
	w := lead(10, Policy{})
	first := wantAcquire(t, w, 1, 2, "0 1 ")[0].Acquisition
	mustSettle(t, w, 1, 0, 0, Release)
	wantAcquire(t, w, 1, 1, "0r ")
	for name, a := range map[string]Ack{
		"other member":     {Member: 2, First: 0, Last: 1, Outcome: Accept},
		"other term":       {Member: 1, First: 0, Last: 1, Outcome: Accept, Term: 2},
		"earlier hand-out": {Member: 1, First: 0, Last: 0, Outcome: Accept, Acquisition: first},
		"not handed out":   {Member: 1, First: 5, Last: 6, Outcome: Accept},
		"exact":            {Member: 1, First: 0, Last: 2, Outcome: Accept, Exact: true},
		"upside down":      {Member: 1, First: 1, Last: 0, Outcome: Accept},
		"negative":         {Member: 1, First: math.MinInt64, Last: -1, Outcome: Accept},
	} {
		if _, err := w.Settle(a, 0); !errors.Is(err, ErrStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := mustSettle(t, w, 1, math.MinInt64, math.MaxInt64, Accept); s.Records != 2 || s.Ticket == 0 {
		t.Fatalf("%+v", s)
	}
	w.Unlead()
	if _, err := w.Settle(Ack{Member: 1, Outcome: Accept}, 0); !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
}

func TestTimedLock(t *testing.T) {
	w := lead(2, Policy{CountFailed: true})
	w.Acquire(nil, Taker{Member: 1, Lock: 30}, 2, 100)
	if _, err := w.Settle(Ack{Member: 1, First: 1, Last: 1, Outcome: Renew}, 120); err != nil {
		t.Fatal(err)
	}
	if n := w.Expire(129); n != 0 {
		t.Fatalf("expired %d too early", n)
	}
	if n := w.Expire(130); n != 1 {
		t.Fatalf("expired %d", n)
	}
	if at, ok := w.NextDeadline(); !ok || at != 150 {
		t.Fatalf("deadline %d %v", at, ok)
	}
	runs := wantAcquire(t, w, 2, 5, "0r ")
	if runs[0].Failed != 1 {
		t.Fatalf("%+v", runs)
	}
	if n := w.Expire(1000); n != 1 { // member 2 has no timer
		t.Fatalf("expired %d", n)
	}
}

func TestRenewingForEverNeedsNoMemory(t *testing.T) {
	w := lead(1, Policy{})
	w.Acquire(nil, Taker{Member: 1, Lock: 30}, 1, 0)
	for now := range int64(10_000) {
		if s, err := w.Settle(Ack{Member: 1, Outcome: Renew}, now); err != nil || s.Ticket != 0 {
			t.Fatal(s, err)
		}
	}
	if f := w.Footprint(); f.Locks > 5+slack {
		t.Fatalf("%+v", f)
	}
}

func TestStuckRecordStallsNobody(t *testing.T) {
	w := lead(1_000_000, Policy{MaxAcquired: 10})
	wantAcquire(t, w, 1, 1, "0 ")
	var s Settlement
	for w.Ready() > 0 {
		runs := w.Acquire(nil, Taker{Member: 2}, 9, 0)
		if len(runs) != 1 {
			t.Fatalf("%v", runs)
		}
		mustSettle(t, w, 2, runs[0].First, runs[0].Last, Accept)
		commit(w, &s)
	}
	if f := w.Footprint(); f.Slots != 1 || f.Pages != 1 || f.Spans != 1 || w.Floor() != 0 {
		t.Fatalf("%+v floor %d", f, w.Floor())
	}
}

func TestSeekVoidsWhatIsOnItsWay(t *testing.T) {
	w := lead(10, Policy{})
	wantAcquire(t, w, 1, 6, "0 1 2 3 4 5 ")
	var early, late Settlement
	mustSettle(t, w, 1, 0, 3, Accept)
	w.Take(&early)
	seek, err := w.SeekTo(2)
	if err != nil {
		t.Fatal(err)
	}
	mustSettle(t, w, 1, 4, 4, Accept)
	w.Take(&late)
	for i, c := range []struct {
		s    *Settlement
		want bool
	}{{&early, true}, {&seek, true}, {&late, false}, {&seek, false}, {&early, false}} {
		if w.Apply(c.s) != c.want {
			t.Fatalf("apply %d: want %v", i, c.want)
		}
	}
	if w.Floor() != 2 || w.InFlight() != 0 {
		t.Fatalf("floor %d in flight %d", w.Floor(), w.InFlight())
	}
	wantAcquire(t, w, 1, 8, "2r 3r 4r 5r 6 7 8 9 ")
}

// Memory follows what is in flight also when a burst is over.
func TestMemoryShrinks(t *testing.T) {
	const n = 100_000
	w := lead(n+1, Policy{})
	w.Acquire(nil, Taker{Member: 1, Lock: 10}, n, 0)
	order := rand.New(rand.NewPCG(3, 4)).Perm(n)
	for _, o := range order[:n-1] {
		mustSettle(t, w, 1, int64(o), int64(o), Accept)
	}
	commit(w, new(Settlement))
	f := w.Footprint()
	if f.Slots != 1 || f.Pages != 1 || f.Spans > 1 || f.Logged > 4+slack || f.Locks > 4+slack {
		t.Fatalf("%+v", f)
	}
	if c := cap(w.o.holders[1].log); c > keepCap {
		t.Fatalf("log keeps %d", c)
	}
	if c := cap(w.o.locks); c > keepCap {
		t.Fatalf("locks keep %d", c)
	}
}

func TestSpanSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spanSet
		in := map[int64]bool{}
		for range rapid.IntRange(1, 600).Draw(t, "steps") {
			first := rapid.Int64Range(0, 3000).Draw(t, "first")
			last := first + rapid.SampledFrom([]int64{0, 0, 0, 1, 9, 700}).Draw(t, "span")
			switch rapid.IntRange(0, 40).Draw(t, "op") {
			case 0:
				s.cut(first, last)
				for o := first; o <= last; o++ {
					delete(in, o)
				}
			case 1:
				if sp, ok := s.front(); ok {
					s.popFront()
					for o := sp.First; o <= sp.Last; o++ {
						delete(in, o)
					}
				}
			default:
				before := len(in)
				for o := first; o <= last; o++ {
					in[o] = true
				}
				if added := s.add(first, last); added != int64(len(in)-before) {
					t.Fatalf("added %d, want %d", added, len(in)-before)
				}
			}
		}
		spans, count, prev := 0, int64(0), int64(-2)
		for sp := range s.all() {
			if sp.First <= prev+1 || sp.Last < sp.First {
				t.Fatalf("span %v after %d", sp, prev)
			}
			spans, count, prev = spans+1, count+sp.Len(), sp.Last
		}
		if spans != s.spans || count != s.count || count != int64(len(in)) {
			t.Fatalf("%d spans of %d, want %d of %d", spans, count, s.spans, len(in))
		}
		for o := int64(0); o < 3800; o += 7 {
			if s.contains(o) != in[o] {
				t.Fatalf("contains %d", o)
			}
		}
	})
}

// Single offsets in random order fill, split and join many blocks.
func TestSpanSetBlocks(t *testing.T) {
	const n = 20_000
	var s spanSet
	rnd := rand.New(rand.NewPCG(5, 6))
	in := make([]bool, n)
	for i, o := range rnd.Perm(n) {
		if s.add(int64(o), int64(o)) != 1 {
			t.Fatalf("%d was there", o)
		}
		in[o] = true
		if i%4999 != 0 {
			continue
		}
		for o := range in {
			if s.contains(int64(o)) != in[o] {
				t.Fatalf("after %d: contains %d", i, o)
			}
		}
		for o := int64(0); o < n; o += 997 {
			want := int64(0)
			for _, is := range in[o:] {
				if is {
					want++
				}
			}
			if got := s.countFrom(o); got != want {
				t.Fatalf("from %d: %d, want %d", o, got, want)
			}
		}
	}
	if sp, _ := s.front(); s.spans != 1 || len(s.blocks) != 1 || sp != (Span{0, n - 1}) {
		t.Fatalf("%d spans in %d blocks", s.spans, len(s.blocks))
	}
}

func TestDecodeRefuses(t *testing.T) {
	w := New(5)
	for name, b := range map[string][]byte{
		"empty":          {},
		"version":        append([]byte{9}, w.AppendTo(nil)[1:]...),
		"truncated":      w.AppendTo(nil)[:4],
		"many spans":     {2, 5, 5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"touching spans": {2, 5, 5, 0, 0, 0, 1, 0, 0, 0},
		"settled failed": {2, 5, 5, 0, 0, 0, 1, 1, 0, 1, 1, 1},
		"zero failed":    {2, 5, 5, 0, 0, 0, 0, 1, 1, 0},
		"high offset":    {2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 5, 0, 0, 0, 0, 0},
	} {
		if _, _, err := Decode(b); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := DecodeSettlement([]byte{1}, new(Settlement)); !errors.Is(err, ErrFormat) {
		t.Errorf("settlement version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	w := New(3)
	w.Apply(&Settlement{Term: 1, ReadTo: 99, Lowered: 3, Accepted: []Span{{3, 4}, {7, 9}}, Failed: []FailedCount{{5, 2}}})
	f.Add(w.AppendTo(nil))
	f.Add(New(0).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, rest, err := Decode(b)
		if err != nil {
			return
		}
		again, _, err := Decode(w.AppendTo(nil))
		if err != nil || !bytes.Equal(again.AppendTo(nil), w.AppendTo(nil)) || len(rest) >= len(b) {
			t.Fatalf("%v", err)
		}
		w.Lead(1<<63, w.ReadTo(), Policy{})
		w.Acquire(nil, Taker{Member: 1}, 100, 0)
	})
}

func FuzzDecodeSettlement(f *testing.F) {
	f.Add((&Settlement{Term: 1, Accepted: []Span{{3, 4}, {7, 9}}, Archived: []Span{{5, 5}}, Failed: []FailedCount{{5, 2}}}).AppendTo(nil))
	f.Add((&Settlement{Term: 1, Epoch: 1, Seek: true, SeekTo: 4}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Settlement
		if _, err := DecodeSettlement(b, &s); err != nil {
			return
		}
		enc := s.AppendTo(nil)
		if _, err := DecodeSettlement(enc, &again); err != nil || !bytes.Equal(enc, again.AppendTo(nil)) {
			t.Fatalf("%v", err)
		}
		w := lead(1000, Policy{})
		w.Acquire(nil, Taker{Member: 1}, 100, 0)
		w.Apply(&s)
		if _, _, err := Decode(w.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
	})
}
