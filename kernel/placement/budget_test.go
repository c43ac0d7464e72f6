package placement

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func wide(k uint64) *kernel.Record {
	r := numbered(k)
	r.Key = make([]byte, 1000)
	return r
}

func publishWide(t *testing.T, g *Group, set *TargetSet, n int) {
	t.Helper()
	a := newAnswers()
	for k := range uint64(n) {
		must(t, g.Append(set, wide(k), a, k))
		if k%10 == 9 {
			a.wait(t, int(k+1))
		}
	}
	a.wait(t, n)
}

// eventually ticks until ok.
func eventually(t *testing.T, g *Group, what string, ok func() bool) {
	t.Helper()
	for ctx := soon(t); !ok(); {
		g.tick()
		if err := g.Put(ctx, nil); err != nil {
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
}

// TestRetentionBytes: what is settled stays up to so many bytes, what is not settled
// stays whatever it takes, also after a restart.
func TestRetentionBytes(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes = 64 << 10
	g := n.open()
	keep := kernel.Retention{Age: kernel.RetainDay.Age, Bytes: 100 << 10}
	parts, id := queue(t, g, 1, 1, keep)
	free, err := g.CreatePartitions(soon(t), topicN(2), []PartitionSpec{{Retention: keep}}, 1)
	must(t, err)
	publishWide(t, g, g.Targets(parts[0], free[0]), 500)
	p, q := g.machine.partition(parts[0]).log, g.machine.partition(free[0]).log
	eventually(t, g, "a topic without groups", func() bool { return q.BytesFrom(q.Start()) <= keep.Bytes })
	if p.Start() != 0 {
		t.Fatalf("unsettled records went: %d", p.Start())
	}
	consume(t, g, id, 300)
	eventually(t, g, "a queue", func() bool { return p.Start() > 150 })
	if ready, _, _ := g.Count(id); ready != 200 || p.Start() > 300 {
		t.Fatalf("%d ready, starts at %d", ready, p.Start())
	}
	if settled := p.BytesFrom(p.Start()) - p.BytesFrom(300); settled < keep.Bytes/2 || settled > keep.Bytes*5/4 {
		t.Errorf("%d settled bytes stay", settled)
	}
	n.close(g)
	g = n.open()
	defer n.close(g)
	if got := g.machine.partition(parts[0]).retention; got != keep {
		t.Errorf("%+v", got)
	}
	consume(t, g, id, 200)
}

// TestRetentionBudget: all that is settled on the node stays within a budget, the
// oldest goes first and leaves the disk, and an unsettled backlog may exceed it.
func TestRetentionBudget(t *testing.T) {
	for _, real := range []bool{false, true} {
		fs, dir := vfs.FS(vfs.NewMem()), "data"
		if real {
			fs, dir = vfs.OS(), t.TempDir()
		}
		n := newNode(t, fs, dir)
		n.limits.SealBytes, n.limits.RetentionBudget = 64<<10, 256<<10
		var later atomic.Int64 // seconds: what is older has to be so by the clock
		n.now = func() time.Time { return time.Now().Add(time.Duration(later.Load()) * time.Second) }
		g := n.open()
		first, _ := queue(t, g, 1, 1, kernel.RetainDay) // older, and nobody reads it
		publishWide(t, g, g.Targets(first...), 100)
		later.Add(1)
		second, old := queue(t, g, 2, 1, kernel.RetainDay)
		publishWide(t, g, g.Targets(second...), 600)
		later.Add(1)
		third, young := queue(t, g, 3, 1, kernel.RetainDay)
		publishWide(t, g, g.Targets(third...), 600)
		consume(t, g, old, 600)
		consume(t, g, young, 600)
		a, b := g.machine.partition(second[0]).log, g.machine.partition(third[0]).log
		size := func() (bytes int64) {
			names, err := fs.List(dir + "/p1/segments")
			must(t, err)
			for _, name := range names {
				if n, err := fs.Size(dir + "/p1/segments/" + name); err == nil {
					bytes += n
				}
			}
			return bytes
		}
		// What is not sealed yet is not on the disk either: both have to have come so far.
		eventually(t, g, "the disk", func() bool {
			if later := b.Start(); later > 0 && a.Start() < 500 {
				t.Fatalf("start at %d and %d: the older records go first", a.Start(), later)
			}
			return size() < 640<<10 && a.Start() >= 500 && b.Start() >= 100
		})
		if b.Start() == 600 {
			t.Errorf("start at %d and %d: the older records go first", a.Start(), b.Start())
		}
		if s := g.machine.partition(first[0]).log.Start(); s != 0 {
			t.Errorf("unsettled records went: %d", s)
		}
		n.close(g)
	}
}
