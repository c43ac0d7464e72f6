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

// With reservations nothing is handed out before readTo is applied, and exactly
// what was handed out comes back marked.
func TestReadAheadMarksAfterCrash(t *testing.T) {
	g, w := newGroup(t, Policy{ReadAhead: 10}, 100)
	join(t, g, Options{}, 2)
	join(t, g, Options{}, 3)
	wantPump(t, g, 100, false)
	if !w.Urgent() || !g.IsDirty() {
		t.Fatal("nothing urgent")
	}
	var s Settlement
	if !w.Take(&s) || s.ReadTo != 5 || w.Urgent() || w.Pending() {
		t.Fatalf("readTo %d", s.ReadTo)
	}
	w.Apply(&s)
	wantPump(t, g, 100, false, "0 2 ", "1 3 4 ")
	next, rest, err := Decode(w.AppendTo(nil))
	if err != nil || len(rest) > 0 {
		t.Fatal(err)
	}
	next.Lead(2, 100, Policy{})
	if got := offsets(next.Acquire(nil, Taker{Member: 1}, 7, 0)); got != "0r 1r 2r 3r 4r 5 6 " {
		t.Fatal(got)
	}
}

// A reservation covers what is there, not what the credit would allow.
func TestReserveReady(t *testing.T) {
	g, w := newGroup(t, Policy{ReadAhead: 100}, 3)
	join(t, g, Options{}, 1000)
	wantPump(t, g, 100, false)
	var s Settlement
	if !w.Take(&s) || s.ReadTo != 3 {
		t.Fatalf("readTo %d", s.ReadTo)
	}
}

// Pulls that wait together cost one reservation.
func TestPullsWaitTogether(t *testing.T) {
	g, w := newGroup(t, Policy{ReadAhead: 100}, 100)
	var s Settlement
	id := join(t, g, Options{Pull: true}, 0)
	pull := func(want string) {
		t.Helper()
		runs, err := g.Acquire(id, 1, 0)
		if err != nil || offsets(runs) != want {
			t.Fatalf("%s, %v; want %s", offsets(runs), err, want)
		}
	}
	for range 3 {
		pull("")
	}
	if !w.Take(&s) || s.ReadTo != 3 {
		t.Fatalf("readTo %d", s.ReadTo)
	}
	pull("") // it comes when that is on its way
	var more Settlement
	if !w.Take(&more) || more.ReadTo != 4 {
		t.Fatalf("readTo %d", more.ReadTo)
	}
	w.Apply(&more)
	w.Apply(&s)
	for _, want := range []string{"0 ", "1 ", "2 ", "3 "} {
		pull(want)
	}
	if w.Pending() {
		t.Fatal("there is something to log")
	}
	// One who gets something does not wait for more.
	if _, err := g.Settle(0, Ack{Member: id, First: 2, Last: 2, Outcome: Release}, 0); err != nil {
		t.Fatal(err)
	}
	if runs, _ := g.Acquire(id, 10, 0); offsets(runs) != "2r " || w.Pending() {
		t.Fatalf("%s, pending %v", offsets(runs), w.Pending())
	}
}

// Many waits in quick succession make the window reserve ahead; when the group is
// quiet, or has no member any more, the mark becomes exact again.
func TestReservePace(t *testing.T) {
	const every = int64(1_000_000)
	var s Settlement
	g, w := newGroup(t, Policy{ReadAhead: 1000}, 100_000)
	id := join(t, g, Options{}, 0)
	now := int64(1e9)
	one := func(gap int64) (waits int) {
		now += gap
		if err := g.Grant(id, 1); err != nil {
			t.Fatal(err)
		}
		for {
			outs, _ := g.Pump(now, 100)
			if len(outs) == 1 {
				at := outs[0].Runs[0].First
				if _, err := g.Settle(0, Ack{Member: id, First: at, Last: at, Outcome: Accept}, now); err != nil {
					t.Fatal(err)
				}
			}
			for w.Take(&s) {
				w.Apply(&s)
			}
			if len(outs) == 1 {
				return waits
			}
			waits++
		}
	}
	for range 100 {
		if waits := one(10 * quickly); waits != 1 || w.Ahead() {
			t.Fatalf("%d waits at a low rate, mark at %d of %d", waits, w.ReadTo(), w.o.handed)
		}
	}
	for i := range patience {
		if one(every); w.Ahead() {
			t.Fatalf("ahead after %d waits", i)
		}
	}
	waits := 0
	for range 10_000 {
		waits += one(every)
	}
	if waits > 1 || !w.Ahead() {
		t.Fatalf("%d waits under load", waits)
	}
	w.Calm(now)
	for range 1000 {
		one(every)
	}
	if w.Calm(now); w.Pending() {
		t.Fatal("calm under load")
	}
	now += int64(1e9)
	if w.Calm(now); !w.Take(&s) || s.ReadTo != w.o.handed || w.Ahead() {
		t.Fatalf("quiet, and the mark at %d of %d", s.ReadTo, w.o.handed)
	}
	w.Apply(&s)
	if waits := one(10 * quickly); waits != 1 || w.Ahead() {
		t.Fatalf("%d waits, mark at %d of %d", waits, w.ReadTo(), w.o.handed)
	}

	for range 100 {
		one(every)
	}
	if _, err := g.Leave(id, true); err != nil || !w.Take(&s) || s.ReadTo != w.o.handed {
		t.Fatalf("nobody there, and the mark at %d of %d: %v", s.ReadTo, w.o.handed, err)
	}
	// Before that is applied nothing is handed out under the old mark.
	id = join(t, g, Options{}, 1)
	wantPump(t, g, 100, false)
	var reserve Settlement
	if !w.Urgent() || !w.Take(&reserve) {
		t.Fatal("nobody waits")
	}
	w.Apply(&reserve)
	if w.Apply(&s); w.ReadTo() != reserve.ReadTo { // they may overtake each other
		t.Fatalf("the mark is at %d, below %d", w.ReadTo(), reserve.ReadTo)
	}
	if outs, _ := g.Pump(now, 100); len(outs) != 1 {
		t.Fatal("nothing handed out")
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
