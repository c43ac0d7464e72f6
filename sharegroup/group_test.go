package sharegroup

import (
	"errors"
	"slices"
	"testing"
)

// newGroup returns a group with one window of end records that leads.
func newGroup(t *testing.T, p Policy, end int64) (*Group, *Window) {
	t.Helper()
	g, w := NewGroup(p), New(0)
	g.Lead(0, w, 1, end)
	return g, w
}

func join(t *testing.T, g *Group, opt Options, credit int) MemberID {
	t.Helper()
	id, err := g.Join(opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Grant(id, credit); err != nil {
		t.Fatal(err)
	}
	return id
}

func wantPump(t *testing.T, g *Group, budget int, more bool, want ...string) {
	t.Helper()
	outs, gotMore := g.Pump(0, budget)
	var got []string
	for _, o := range outs {
		got = append(got, offsets(o.Runs))
	}
	if !slices.Equal(got, want) || more != gotMore {
		t.Fatalf("pump gave %q, more %v; want %q, %v", got, gotMore, want, more)
	}
}

func mustSettle(t *testing.T, w *Window, id MemberID, first, last int64, o Outcome) Settled {
	t.Helper()
	s, err := w.Settle(Ack{Member: id, First: first, Last: last, Outcome: o}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEqualConsumersAlternate(t *testing.T) {
	g, _ := newGroup(t, Policy{}, 6)
	join(t, g, Options{}, 10)
	join(t, g, Options{}, 10)
	wantPump(t, g, 3, true, "0 2 ", "1 ")
	wantPump(t, g, 100, false, "3 5 ", "4 ") // the turn is kept across steps
}

func TestCreditIsExact(t *testing.T) {
	g, w := newGroup(t, Policy{}, 10)
	a := join(t, g, Options{}, 1)
	join(t, g, Options{}, 3)
	wantPump(t, g, 100, false, "0 ", "1 2 3 ")
	if err := g.Grant(a, 1); err != nil {
		t.Fatal(err)
	}
	wantPump(t, g, 100, false, "4 ")
	mustSettle(t, w, a, 0, 9, Accept) // settling gives no credit: the edge does
	wantPump(t, g, 100, false)
}

func TestGivenBackComesFirstLowestFirst(t *testing.T) {
	g, w := newGroup(t, Policy{}, 10)
	a := join(t, g, Options{}, 5)
	wantPump(t, g, 100, false, "0 1 2 3 4 ")
	mustSettle(t, w, a, 3, 3, Release)
	mustSettle(t, w, a, 1, 1, Fail)
	join(t, g, Options{}, 4)
	wantPump(t, g, 100, false, "1r 3r 5 6 ")
	if n, err := g.Leave(a, true); n != 3 || err != nil {
		t.Fatalf("leave: %d, %v", n, err)
	}
	join(t, g, Options{}, 4)
	wantPump(t, g, 100, false, "0r 2r 4r 7 ")
}

func TestExclusive(t *testing.T) {
	g, _ := newGroup(t, Policy{}, 10)
	a := join(t, g, Options{}, 0)
	if _, err := g.Join(Options{Exclusive: true}); !errors.Is(err, ErrExclusive) {
		t.Fatalf("beside another: %v", err)
	}
	if err := g.Stop(a); err != nil {
		t.Fatal(err)
	}
	b := join(t, g, Options{Exclusive: true}, 1)
	if _, err := g.Join(Options{}); !errors.Is(err, ErrExclusive) {
		t.Fatalf("beside an exclusive one: %v", err)
	}
	pull := join(t, g, Options{Pull: true}, 5)
	wantPump(t, g, 100, false, "0 ")
	if runs, err := g.Acquire(pull, 1, 0); err != nil || offsets(runs) != "1 " {
		t.Fatalf("pull: %v, %v", runs, err)
	}
	if _, err := g.Leave(b, false); err != nil {
		t.Fatal(err)
	}
	join(t, g, Options{}, 0)
}

func TestStoppedKeepsWhatItHolds(t *testing.T) {
	g, w := newGroup(t, Policy{}, 4)
	a := join(t, g, Options{}, 2)
	wantPump(t, g, 100, false, "0 1 ")
	_ = g.Grant(a, 5)
	_ = g.Stop(a)
	wantPump(t, g, 100, false)
	if all, consumers := g.Members(); all != 1 || consumers != 0 {
		t.Fatalf("members %d, consumers %d", all, consumers)
	}
	mustSettle(t, w, a, 0, 1, Accept)
	if g.Held(a) != 0 || g.InFlight() != 0 {
		t.Fatalf("held %d", g.Held(a))
	}
}

func TestPartitionsShareTheBudget(t *testing.T) {
	g := NewGroup(Policy{})
	for p := range int32(3) {
		g.Lead(p, New(0), 1, 1000)
	}
	join(t, g, Options{}, 1000)
	got := map[int32]int{}
	outs, more := g.Pump(0, 3*quantum)
	for _, r := range outs[0].Runs {
		got[r.Partition] += r.Len()
	}
	if len(outs) != 1 || !more || got[0] != quantum || got[1] != quantum || got[2] != quantum {
		t.Fatalf("%v, more %v", got, more)
	}
	g.Unlead(1)
	if g.Window(1) != nil || g.Ready() != 2*(1000-quantum) {
		t.Fatalf("ready %d", g.Ready())
	}
}

func TestHoleGivesCreditBack(t *testing.T) {
	g, w := newGroup(t, Policy{}, 10)
	a := join(t, g, Options{}, 3)
	wantPump(t, g, 100, false, "0 1 2 ")
	w.Hole(1, 4)
	wantPump(t, g, 100, false, "5 6 ")
	if _, err := w.Settle(Ack{Member: a, First: 1, Last: 2, Outcome: Accept}, 0); !errors.Is(err, ErrStale) {
		t.Fatalf("settling a hole: %v", err)
	}
}

func TestGreedyPullLeavesRoom(t *testing.T) {
	g, _ := newGroup(t, Policy{MaxAcquired: 100}, 1000)
	a := join(t, g, Options{Pull: true}, 0)
	b := join(t, g, Options{Pull: true}, 0)
	if runs, _ := g.Acquire(a, 500, 0); runs[0].Len() != 50 {
		t.Fatalf("first got %d", runs[0].Len())
	}
	if runs, _ := g.AcquireFrom(b, 0, 500, 0); runs[0].Len() != 25 {
		t.Fatalf("second got %d", runs[0].Len())
	}
}

// With reservations nothing is handed out before readTo is applied, and whatever
// was handed out comes back marked.
func TestReadAheadMarksAfterCrash(t *testing.T) {
	g, w := newGroup(t, Policy{ReadAhead: 10}, 100)
	join(t, g, Options{}, 5)
	wantPump(t, g, 100, false)
	if !w.Urgent() || !g.IsDirty() {
		t.Fatal("nothing urgent")
	}
	var s Settlement
	if !w.Take(&s) || s.ReadTo != 10 || w.Urgent() || w.Pending() {
		t.Fatalf("readTo %d", s.ReadTo)
	}
	w.Apply(&s)
	wantPump(t, g, 100, false, "0 1 2 3 4 ")
	next, rest, err := Decode(w.AppendTo(nil))
	if err != nil || len(rest) > 0 {
		t.Fatal(err)
	}
	next.Lead(2, 100, Policy{})
	if got := offsets(next.Acquire(nil, Taker{Member: 1}, 11, 0)); got != "0r 1r 2r 3r 4r 5r 6r 7r 8r 9r 10 " {
		t.Fatal(got)
	}
}

func TestUnknownMembers(t *testing.T) {
	g, _ := newGroup(t, Policy{}, 1)
	_, leave := g.Leave(7, true)
	_, pull := g.Acquire(7, 1, 0)
	_, from := g.AcquireFrom(7, 0, 1, 0)
	for _, err := range []error{g.Grant(7, 1), g.Stop(7), leave, pull, from} {
		if !errors.Is(err, ErrNoMember) {
			t.Fatal(err)
		}
	}
	if _, err := g.Settle(3, Ack{}, 0); !errors.Is(err, ErrNotLeader) {
		t.Fatal(err)
	}
	if _, err := g.Settle(0, Ack{Member: 7, Outcome: Accept}, 0); !errors.Is(err, ErrStale) {
		t.Fatal(err)
	}
}
