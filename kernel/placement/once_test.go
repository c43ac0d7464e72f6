package placement

import (
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// once publishes records with the given uses of number 7 and waits.
func once(t testing.TB, g *Group, set *TargetSet, session string, number uint16, counts ...uint64) {
	t.Helper()
	a := newAnswers()
	for _, c := range counts {
		must(t, g.AppendOnce(set, numbered(c), kernel.Once{Session: session, Number: number, Count: c}, a, c))
	}
	for token, res := range a.wait(t, len(counts)) {
		if res.Err != nil {
			t.Fatalf("use %d: %v", token, res.Err)
		}
	}
}

func release(t testing.TB, g *Group, session string, numbers ...uint16) {
	t.Helper()
	a := newAnswers()
	must(t, g.ReleaseOnce(session, numbers, a, 1))
	if res := a.wait(t, 1)[1]; res.Err != nil {
		t.Fatal(res.Err)
	}
}

// ends returns where partitions end.
func ends(t testing.TB, g *Group, parts ...PartitionID) (list []int64) {
	t.Helper()
	for _, id := range parts {
		p, err := g.Partition(id)
		must(t, err)
		_, end := p.Bounds()
		list = append(list, end)
	}
	return list
}

// TestOnceDropsRepeats: a record is stored once in all its targets per use of its
// number, through restarts from the log and from a checkpoint.
func TestOnceDropsRepeats(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	ids, _ := queue(t, g, 1, 2, kernel.RetainDay)
	reopen := func(seal bool) {
		t.Helper()
		if seal {
			_, err := g.do(soon(t), sealCommand())
			must(t, err)
		}
		n.close(g)
		g = n.open()
	}
	want := func(end int64) {
		t.Helper()
		if got := ends(t, g, ids...); fmt.Sprint(got) != fmt.Sprint([]int64{end, end}) {
			t.Fatalf("the partitions end at %v, want %d", got, end)
		}
	}
	const s = "/\x00client"
	once(t, g, g.Targets(ids...), s, 7, 1)
	want(1)
	once(t, g, g.Targets(ids...), s, 7, 1) // again
	want(1)
	reopen(false)
	once(t, g, g.Targets(ids...), s, 7, 1)
	want(1)
	reopen(true)
	once(t, g, g.Targets(ids[0]), s, 7, 1) // another route does not matter
	want(1)
	used, high, err := g.Used(soon(t), s)
	if err != nil || len(used) != 1 || used[7] != 1 || high != 1 {
		t.Fatal(used, high, err)
	}
	release(t, g, s, 7, 9)
	release(t, g, s, 7)
	once(t, g, g.Targets(ids...), s, 7, 1) // it was on its way for long
	want(1)
	once(t, g, g.Targets(ids...), s, 7, 2)
	once(t, g, g.Targets(ids...), s, 8, 3)
	once(t, g, g.Targets(ids...), "/\x00other", 7, 1)
	want(4)
	reopen(true)
	if used, high, err = g.Used(soon(t), s); err != nil || len(used) != 2 || used[7] != 2 || used[8] != 3 || high != 3 {
		t.Fatal(used, high, err)
	}
	must(t, g.ForgetSession(soon(t), s))
	must(t, g.ForgetSession(soon(t), s))
	reopen(true)
	if got := g.Sessions(); len(got) != 1 || got[0] != "/\x00other" {
		t.Fatalf("%q", got)
	}
	n.close(g)
}

// TestOnceInFlight: a repeat that is proposed while the first is still under way
// is dropped, also if the outcome of the first is not known to its publisher.
func TestOnceInFlight(t *testing.T) {
	s := newStepped(t)
	s.volatile = false
	part := s.topic(t, 1)[0]
	use := kernel.Once{Session: "s", Number: 1, Count: 1}
	a := newAnswers()
	must(t, s.AppendOnce(s.Targets(part), numbered(1), use, a, 1))
	first := len(s.log.entries) - 1
	s.log.entries[first].failed(raftgroup.ErrUnknown)
	must(t, s.AppendOnce(s.Targets(part), numbered(1), use, a, 2))
	s.prop.settleTimeout()
	s.commit(first, 1) // it was committed after all
	if last := len(s.log.entries) - 1; last > first {
		s.commit(last, 1)
	}
	if got := a.wait(t, 2); got[1].Err != nil || got[2].Err != nil {
		t.Fatalf("%+v", got)
	}
	if got := ends(t, s.Group, part); got[0] != 1 {
		t.Fatalf("%d records", got[0])
	}
}

// TestOnceKeepsOrder: records stored once and others to the same partitions keep
// the order in which they were published.
func TestOnceKeepsOrder(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer func() { n.close(g) }()
	ids, group := queue(t, g, 1, 1, kernel.RetainDay)
	a := newAnswers()
	for i := range uint64(300) {
		if i%3 == 0 {
			must(t, g.AppendOnce(g.Targets(ids...), numbered(i), kernel.Once{Session: "s", Number: uint16(i), Count: i + 1}, a, i))
		} else {
			must(t, g.Append(g.Targets(ids...), numbered(i), a, i))
		}
	}
	for token, res := range a.wait(t, 300) {
		if res.Err != nil || res.Offset != int64(token) {
			t.Fatalf("%d: %+v", token, res)
		}
	}
	to := newSink()
	m := join(t, g, group, kernel.MemberOptions{AutoSettle: true}, to)
	m.Credit(1000)
	for i, d := range to.wait(t, 300) {
		if d.number != uint64(i) {
			t.Fatalf("record %d has number %d", i, d.number)
		}
	}
}
