package placement

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// withLease has a group's lease end at until.
func withLease(t *testing.T, g *Group, until *atomic.Int64) {
	t.Helper()
	for _, s := range g.shards {
		s.call(func() { s.lease = until.Load })
	}
}

// TestNothingWithoutLease: a leader whose lease has lapsed hands out nothing, and
// goes on when it holds again.
func TestNothingWithoutLease(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer n.close(g)
	var until atomic.Int64
	withLease(t, g, &until)
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)

	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(50)
	puller := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
	pulled := make(chan uint64, 10)
	acquired := make(chan error, 1)
	go func() {
		acquired <- puller.Acquire(1, func(batch []kernel.Delivery, _ int64) {
			for i := range batch {
				pulled <- numberOf(batch[i].Record)
			}
		})
	}()
	shard := g.machine.share(id).topic.shard
	waitFor(t, "the call to be held", func() (held bool) {
		shard.call(func() { held = len(shard.held) == 1 })
		return held
	})
	if ready, held, _ := g.Count(id); ready != 100 || held != 0 || len(s.list) != 0 {
		t.Fatalf("%d ready, %d held, %d delivered", ready, held, len(s.list))
	}
	until.Store(raftgroup.Forever)
	g.leased()
	must(t, <-acquired)
	first := <-pulled
	for i, d := range s.wait(t, 50) {
		if d.number == first || d.redelivered {
			t.Fatalf("delivery %d: %+v, and %d was pulled", i, d, first)
		}
	}

	// It ends between the reading of a batch and its hand-out.
	until.Store(0)
	m.Credit(10)
	if _, held, _ := g.Count(id); held != 51 {
		t.Fatalf("%d are held", held)
	}
	go func() {
		acquired <- puller.Acquire(1, func([]kernel.Delivery, int64) { t.Error("a record was acquired") })
	}()
	waitFor(t, "the call to be held", func() (held bool) {
		shard.call(func() { held = len(shard.held) == 1 })
		return held
	})
	g.onUnlead()
	code(t, <-acquired, kernel.CodeUnavailable)
	code(t, s.waitEnded(t), kernel.CodeUnavailable)
}

// waitFor waits until something is true.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := soon(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
