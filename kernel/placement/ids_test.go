package placement

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func named(id string) kernel.Once { return kernel.Once{ID: kernel.NewDedupID([]byte(id))} }

// identified publishes records with ids and waits: they are all confirmed.
func identified(t testing.TB, g *Group, set *TargetSet, ids ...string) {
	t.Helper()
	a := newAnswers()
	for i, id := range ids {
		must(t, g.AppendOnce(set, numbered(uint64(i)), named(id), a, uint64(i)))
	}
	for i, res := range a.wait(t, len(ids)) {
		if res.Err != nil {
			t.Fatalf("id %s: %v", ids[i], res.Err)
		}
	}
}

func wantEnds(t testing.TB, g *Group, parts []PartitionID, want ...int64) {
	t.Helper()
	if got := ends(t, g, parts...); !slices.Equal(got, want) {
		t.Fatalf("the partitions end at %v, want %v", got, want)
	}
}

// TestDedup: each target stores a message with an id once, whoever repeats it; what
// has no id is not affected.
func TestDedup(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, _ := queue(t, g, 1, 2, kernel.RetainDay)
		all, first := g.Targets(parts...), g.Targets(parts[0])
		identified(t, g, first, "a")
		identified(t, g, first, "a", "b", "a", "b") // in one open batch, too
		wantEnds(t, g, parts, 2, 0)
		identified(t, g, all, "a") // one of them has it
		identified(t, g, all, "a")
		wantEnds(t, g, parts, 2, 1)
		publish(t, g, all, 0, 3)
		identified(t, g, all, "c")
		wantEnds(t, g, parts, 6, 5)
		if n := g.Metrics().Repeats.Load(); n != 3+1+2 {
			t.Errorf("%d repeats", n)
		}
		must(t, g.DropTopic(soon(t), topicN(1), 2))
		if x := &g.machine.ids; x.len != 0 || x.ring.next != &x.ring {
			t.Errorf("%d ids of a topic that was dropped", x.len)
		}
	})
}

// TestDedupSurvives: ids outlive the process, by the log and by a checkpoint.
func TestDedupSurvives(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	identified(t, g, g.Targets(parts...), "a", "b")
	for i := range 4 {
		if i > 1 {
			_, err := g.do(soon(t), sealCommand())
			must(t, err)
		}
		n.close(g)
		g = n.open()
		identified(t, g, g.Targets(parts...), "a", fmt.Sprint(i), "b", fmt.Sprint(i))
		wantEnds(t, g, parts, 3+int64(i))
	}
	n.close(g)
}

// TestDedupFailover: a new leader recognises what the one before it has confirmed.
func TestDedupFailover(t *testing.T) {
	c := newCluster(t, Limits{})
	defer c.close()
	old := c.leader(0, 1, 2)
	g := c.nodes[old]
	parts, _ := queue(t, g, 1, 1, kernel.Retention{Dedup: 24 * time.Hour}) // the clocks differ by hours
	identified(t, g, g.Targets(parts...), "a")
	c.net.Isolate(c.peers[old].ID)
	lead := c.nodes[c.leader((old+1)%3, (old+2)%3)]
	identified(t, lead, lead.Targets(parts...), "a", "b", "b")
	wantEnds(t, lead, parts, 2)
}

// TestDedupInFlight: a repeat that is proposed while the first is still under way is
// dropped, also if the outcome of the first is not known to its publisher; and it is
// stored if the first was not.
func TestDedupInFlight(t *testing.T) {
	for _, applied := range []bool{true, false} {
		s := newStepped(t)
		part := s.topic(t, 1)[0]
		a := newAnswers()
		must(t, s.AppendOnce(s.Targets(part), numbered(1), named("a"), a, 1))
		first := len(s.log.entries) - 1
		s.log.entries[first].failed(raftgroup.ErrUnknown)
		must(t, s.AppendOnce(s.Targets(part), numbered(2), named("a"), a, 2))
		s.prop.settleTimeout()
		if applied {
			s.commit(first, 1)
		}
		if last := len(s.log.entries) - 1; last > first {
			s.commit(last, 1)
		}
		if !applied {
			s.now = s.now.Add(giveUpAfter)
			s.tick()
			s.step()
		}
		got := a.wait(t, 2)
		if got[2].Err != nil || (got[1].Err == nil) != applied {
			t.Fatalf("%+v", got)
		}
		wantEnds(t, s.Group, []PartitionID{part}, 1)
	}
}

// TestDedupWindow: an id is forgotten when its window is over, by the times of the
// entries, which do not go back; a repeat does not lengthen it. The window is that of the
// partition.
func TestDedupWindow(t *testing.T) {
	var mu sync.Mutex
	now := time.UnixMilli(1_700_000_000_000)
	n := newNode(t, vfs.NewMem(), "data")
	n.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	g := n.open()
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	want := int64(0)
	send := func(after time.Duration, stored bool) {
		t.Helper()
		mu.Lock()
		now = now.Add(after)
		mu.Unlock()
		identified(t, g, g.Targets(parts...), "a")
		if stored {
			want++
		}
		wantEnds(t, g, parts, want)
	}
	send(0, true)
	send(kernel.DefaultDedup-time.Millisecond, false)
	send(time.Millisecond, false)
	send(time.Millisecond, true) // counted from the first
	n.close(g)
	mu.Lock()
	now = now.Add(-time.Hour) // the clock was set back while it was down
	mu.Unlock()
	g = n.open()
	send(0, false)
	send(kernel.DefaultDedup, false)
	send(time.Millisecond, true)
	keep := func(d time.Duration, revision uint64) {
		t.Helper()
		r := kernel.RetainDay
		r.Dedup = d
		must(t, g.SetRetention(soon(t), topicN(1), r, revision))
	}
	keep(time.Second, 2)
	send(time.Second, false)
	send(time.Millisecond, true)
	keep(-1, 3)
	send(0, true)
	send(0, true)
	_, err := g.do(soon(t), sealCommand())
	must(t, err)
	n.close(g)
	g = n.open()
	send(0, true) // off as before
	keep(0, 4)
	send(kernel.DefaultDedup+time.Millisecond, true)
	send(0, false)
	n.close(g)
}

// TestDedupBounds: of a partition, and of all, only so many ids are remembered; those
// of a busy partition make no other forget its own.
func TestDedupBounds(t *testing.T) {
	s := newStepped(t)
	x := &s.machine.ids
	x.inPart, x.inAll = 100, 150
	parts := s.topic(t, 3)
	send := func(part PartitionID, id string, stored bool) {
		t.Helper()
		before := ends(t, s.Group, part)[0]
		must(t, s.AppendOnce(s.Targets(part), numbered(1), named(id), newAnswers(), 1))
		s.commit(len(s.log.entries)-1, 1)
		if got := ends(t, s.Group, part)[0] > before; got != stored {
			t.Fatalf("%s in partition %d: stored %v", id, part, got)
		}
	}
	for i := range 101 {
		send(parts[0], fmt.Sprint(i), true)
	}
	send(parts[0], "1", false)
	send(parts[0], "0", true)  // was the oldest
	send(parts[0], "1", true)  // as it is now
	send(parts[0], "3", false) // "2" was
	for i := range 60 {
		send(parts[1], fmt.Sprint(i), true)
	}
	send(parts[1], "9", true) // ten too many
	send(parts[1], "12", false)
	send(parts[0], "3", false)
	send(parts[2], "0", true) // one has to give way
	if x.len != 150 || len(parts) != 3 {
		t.Fatalf("%d ids", x.len)
	}
	s.now = s.now.Add(kernel.DefaultDedup + time.Second)
	for range 20 { // whatever comes
		s.command(t, barrierCommand())
	}
	if x.len != 0 || x.ring.next != &x.ring {
		t.Fatalf("%d ids are remembered for ever", x.len)
	}
}

// TestDedupFullQueue: a full queue that has the message does not refuse its repeat, nor
// is there a dead letter of it.
func TestDedupFullQueue(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	var c cemetery
	n.bury = c.bury
	g := n.open()
	defer func() { n.close(g) }()
	part, _ := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) {
		l.MaxLength, l.Overflow, l.DeadLetter = 2, kernel.RejectPublishDeadLetter, true
	}))
	others, _ := queue(t, g, 2, 1, kernel.RetainDay)
	only, all := g.Targets(part), g.Targets(part, others[0])
	identified(t, g, only, "a")
	identified(t, g, only, "b")
	identified(t, g, only, "a", "b", "a")
	identified(t, g, all, "b")
	wantEnds(t, g, []PartitionID{part, others[0]}, 2, 1)
	a := newAnswers()
	must(t, g.AppendOnce(all, numbered(7), named("c"), a, 7))
	must(t, g.AppendKeyed(only, numbered(8), []KV{{Key: []byte("k"), Value: []byte("v")}}, named("a"), a, 8))
	if res := a.wait(t, 2); !IsQueueFull(res[7].Err) || res[8].Err != nil {
		t.Fatalf("%+v", res)
	}
	if v, err := g.Get([]byte("k")); err != nil || string(v) != "v" {
		t.Errorf("key: %q, %v", v, err)
	}
	wantEnds(t, g, []PartitionID{part, others[0]}, 2, 2)
	c.wait(t, "7 maxlen")
}

// TestDedupBesideNumbers: a message with a number and an id is a repeat by either.
func TestDedupBesideNumbers(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	a := newAnswers()
	send := func(count uint64, id string, want int64) {
		t.Helper()
		once := named(id)
		once.Session, once.Number, once.Count = "s", uint16(count), count
		must(t, g.AppendOnce(g.Targets(parts...), numbered(1), once, a, uint64(len(a.results))))
		a.wait(t, len(a.results))
		barrier(t, g)
		wantEnds(t, g, parts, want)
	}
	send(1, "a", 1)
	send(1, "b", 1)
	send(2, "a", 1)
	send(3, "c", 2)
	identified(t, g, g.Targets(parts...), "c", "b")
	wantEnds(t, g, parts, 3)
	n.close(g)
}
