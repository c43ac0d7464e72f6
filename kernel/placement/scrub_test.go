package placement

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// scrubbed is a group with three segments, the scrubber of which the test steps.
type scrubbed struct {
	g     *Group
	fs    *vfs.Fault
	mu    sync.Mutex
	found []Damage
	slept time.Duration
}

func newScrubbed(t *testing.T) (s *scrubbed, n *node, scrub *scrubber) {
	s = &scrubbed{fs: vfs.NewFault(vfs.NewMem())}
	n = newNode(t, s.fs, "data")
	n.limits.SealBytes = 8 << 10
	n.onDamage = func(id kernel.TopicID, partition int32, bad Damage) {
		if id != topicN(1) || partition != 0 {
			t.Errorf("damage of %v, %d", id, partition)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.found = append(s.found, bad)
	}
	s.g = n.open()
	parts, _ := queue(t, s.g, 1, 1, kernel.RetainDay)
	sealed(t, s.g, s.g.Targets(parts...), 3)
	return s, n, newScrubber(s.g, func(d time.Duration) bool { s.slept += d; return true })
}

// TestScrubFindsDamage: the scrub names the records that are damaged in a segment,
// and nothing while all is whole; it takes the time that its rate allows.
func TestScrubFindsDamage(t *testing.T) {
	s, n, scrub := newScrubbed(t)
	defer n.close(s.g)
	scrub.rate = 1 << 10
	must(t, scrub.pass())
	m := s.g.Metrics()
	if read := m.ScrubBytes.Load(); len(s.found) > 0 || m.ScrubDamaged.Load() != 0 || read < 20<<10 || s.slept < time.Duration(read)*time.Second>>10-time.Millisecond {
		t.Fatalf("%v, %d damaged, %d bytes in %v", s.found, m.ScrubDamaged.Load(), read, s.slept)
	}
	id := s.g.machine.log.Segments()[1].ID
	f, err := s.fs.OpenFile("data/p1/segments/" + slog.SegmentName(id))
	must(t, err)
	_, err = f.WriteAt([]byte{0xff, 0xff}, 300)
	must(t, errors.Join(err, f.Close()))
	must(t, scrub.pass())
	held := s.g.machine.log.Holds(id)[0]
	if len(s.found) != 1 || m.ScrubDamaged.Load() != 1 || m.ScrubPasses.Load() != 2 {
		t.Fatalf("%v, %d damaged", s.found, m.ScrubDamaged.Load())
	}
	if d := s.found[0]; !d.Wrong || !d.Alone || d.First < held.Base || d.Last >= held.End || d.Last < d.First {
		t.Errorf("%+v of %d to %d", d, held.Base, held.End)
	}
}

// TestScrubTriesAgain: what the disk cannot read once is not damage.
func TestScrubTriesAgain(t *testing.T) {
	s, n, scrub := newScrubbed(t)
	defer n.close(s.g)
	s.fs.Add(vfs.Rule{Op: vfs.OpRead, Name: "*.seg", After: 6, Times: 2, Err: errors.New("the disk does not answer")})
	must(t, scrub.pass())
	must(t, scrub.pass())
	if len(s.found) > 0 {
		t.Errorf("%v", s.found)
	}
	s.fs.Clear()
	s.fs.Add(vfs.Rule{Op: vfs.OpRead, Name: slog.SegmentName(s.g.machine.log.Segments()[0].ID), Err: errors.New("the disk does not answer")})
	must(t, scrub.pass())
	if len(s.found) == 0 || s.found[0].Wrong {
		t.Errorf("%v", s.found)
	}
}

// TestScrubStops: a group that is closed does not wait for a pass.
func TestScrubStops(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes, n.limits.ScrubEvery, n.limits.ScrubRate = 8<<10, time.Millisecond, 1
	g := n.open()
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	sealed(t, g, g.Targets(parts...), 2)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ctx := soon(t); g.Metrics().ScrubBytes.Load() == 0; <-tick.C { // and then it waits for hours
		must(t, ctx.Err())
	}
	n.close(g)
	if n := g.Metrics().ScrubPasses.Load(); n > 1 {
		t.Errorf("%d passes", n)
	}
}
