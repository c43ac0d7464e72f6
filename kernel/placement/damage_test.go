package placement

import (
	"errors"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// sealed publishes records in bunches until there are so many segments, and
// returns how many records that took.
func sealed(t *testing.T, g *Group, set *TargetSet, segments int) (count uint64) {
	t.Helper()
	for len(g.machine.log.Segments()) < segments {
		publish(t, g, set, count, count+10)
		count += 10
	}
	return count
}

// breakSegment makes a segment file of the log useless, or removes it.
func breakSegment(t *testing.T, fs vfs.FS, name string, remove bool) {
	t.Helper()
	if remove {
		must(t, fs.Remove(name))
		return
	}
	f, err := fs.OpenFile(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	_, err = f.WriteAt([]byte{0xff}, size-80) // in the run table
	must(t, errors.Join(err, f.Close()))
}

// TestLostSegment: on a node that is alone, what was in a damaged or missing
// segment is skipped after three tries, counted, and told to readers; the rest
// is served, whatever the prefetch is.
func TestLostSegment(t *testing.T) {
	for how, remove := range map[string]bool{"missing": true, "damaged": false} {
		t.Run(how, func(t *testing.T) {
			fs := vfs.NewMem()
			n := newNode(t, fs, "data")
			n.limits.SealBytes = 8 << 10
			g := n.open()
			parts, id := queue(t, g, 1, 1, kernel.RetainDay)
			count := sealed(t, g, g.Targets(parts...), 3)
			n.close(g)
			names, err := fs.List("data/p1/segments")
			must(t, err)
			breakSegment(t, fs, "data/p1/segments/"+names[1], remove)

			g = n.open()
			defer n.close(g)
			first, last := lostRange(t, g, parts[0])
			a, b := newSink(), newSink()
			ma, mb := join(t, g, id, kernel.MemberOptions{}, a), join(t, g, id, kernel.MemberOptions{}, b)
			a.each = func(d kernel.Delivery) { ma.Settle(kernel.Accept, 0, d.Offset, d.Offset); ma.Credit(1) }
			b.each = func(d kernel.Delivery) { mb.Settle(kernel.Accept, 0, d.Offset, d.Offset); mb.Credit(7) }
			ma.Credit(1)
			mb.Credit(7)
			shard := g.machine.share(id).topic.shard
			settled := func() bool {
				ready, held, _ := g.Count(id)
				return ready == 0 && held == 0
			}
			ticks := 0
			for ; !settled(); ticks++ {
				if ticks == 1<<20 {
					t.Fatal("the queue stalls")
				}
				if g.Metrics().Lost.Load() == 0 {
					g.tick()
				}
				shard.call(func() {})
			}
			lost := g.Metrics().Lost.Load()
			if want := uint64(last - first + 1); lost != want {
				t.Errorf("%d counted as lost, want %d", lost, want)
			}
			ma.Leave()
			mb.Leave()
			if got := uint64(len(a.list) + len(b.list)); got+lost != count {
				t.Errorf("%d handed out, %d lost, of %d", got, lost, count)
			}
		})
	}
}

// lostRange reads a partition as a Kafka reader does, around what it cannot
// read, and returns which offsets that was.
func lostRange(t *testing.T, g *Group, id PartitionID) (first, last int64) {
	t.Helper()
	p, err := g.Partition(id)
	must(t, err)
	first, last = -1, -1
	_, end := p.Bounds()
	for at := int64(0); at < end; {
		b, err := p.Read(at, 1, nil)
		if err == nil {
			at = record.LastOffset(b) + 1
			continue
		}
		code(t, err, kernel.CodeCorrupt)
		if first < 0 {
			first = at
		}
		last = at
		at++
	}
	if first <= 0 || last >= end-1 {
		t.Fatalf("offsets %d to %d of %d are lost", first, last, end)
	}
	return first, last
}

// TestBadRangesAreKept: hand-outs that fail in turn in different ranges do not
// take each other's tries away, and tries within one tick count once.
func TestBadRangesAreKept(t *testing.T) {
	g := volatileGroup(t, Limits{})
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	sh := g.machine.share(id)
	sh.topic.shard.call(func() {
		s, w := sh.topic.shard, sh.window(0)
		for try := 1; try <= damageTries; try++ {
			s.ticks++
			for range 2 {
				for _, r := range [][2]int64{{10, 19}, {50, 59}} {
					cause := &slog.Damage{First: r[0], Last: r[1], Err: errors.New("flipped")}
					next := s.unreadable(sh, m, w, r[0], r[1]-5, cause, 0)
					if want := r[1] - 4; try < damageTries && next != want {
						t.Errorf("try %d: goes on at %d, want %d", try, next, want)
					} else if try == damageTries && next != r[1]+1 {
						t.Errorf("the last try: goes on at %d, want %d", next, r[1]+1)
					}
				}
			}
		}
	})
	if lost := g.Metrics().Lost.Load(); lost != 20 {
		t.Errorf("%d records are lost, want 20", lost)
	}
}

// TestWrongContentIsSkippedAtOnce: another try would read the same, so the consumer
// does not wait for it.
func TestWrongContentIsSkippedAtOnce(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer n.close(g)
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)
	m := join(t, g, id, kernel.MemberOptions{}, newSink())
	sh := g.machine.share(id)
	sh.topic.shard.call(func() {
		cause := &slog.Damage{First: 10, Last: 19, Err: errors.New("flipped"), Wrong: true}
		if next := sh.topic.shard.unreadable(sh, m, sh.window(0), 10, 14, cause, 0); next != 20 || sh.stalled {
			t.Errorf("goes on at %d, stalled %v", next, sh.stalled)
		}
	})
	if lost := g.Metrics().Lost.Load(); lost != 10 {
		t.Errorf("%d records are lost, want 10", lost)
	}
}
