package placement

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestCleanStopLeavesNothingToReplay: a clean end makes a checkpoint of all there
// is, so that the next start applies next to nothing of the log; after a crash it
// applies it all, and comes to the same.
func TestCleanStopLeavesNothingToReplay(t *testing.T) {
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)
	value := bytes.Repeat([]byte("v"), 16<<10)
	for i := range 2 * lastSealBytes / len(value) {
		must(t, g.Put(soon(t), []KV{{Key: fmt.Append(nil, "k/", i), Value: value}}))
	}
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(10)
	s.wait(t, 10)
	m.Settle(kernel.Accept, 0, 0, 3)
	if made := g.Metrics().Checkpoints.Load(); made != 0 {
		t.Fatalf("%d checkpoints before the end", made)
	}
	crashed := newNode(t, fs.CrashClone(nil), "data")
	n.close(g)
	if made := g.Metrics().Checkpoints.Load(); made != 1 {
		t.Fatalf("%d checkpoints at the end", made)
	}

	g = n.open()
	if applied := g.Metrics().Bytes.Load(); applied > 1<<10 {
		t.Errorf("%d entries of %d bytes are applied again", g.Metrics().Entries.Load(), applied)
	}
	holds(t, g, id, 96, value)
	n.close(g)
	if made := g.Metrics().Checkpoints.Load(); made != 0 {
		t.Errorf("%d checkpoints of nothing", made)
	}

	g = crashed.open()
	defer crashed.close(g)
	if applied := g.Metrics().Bytes.Load(); applied < 2*lastSealBytes {
		t.Errorf("%d bytes are applied again", applied)
	}
	holds(t, g, id, 100, value) // what was settled last had not been logged
}

func holds(t *testing.T, g *Group, id GroupID, want int64, value []byte) {
	t.Helper()
	if ready, _, _, _, _ := g.Stats(id); ready != want {
		t.Errorf("%d ready, want %d", ready, want)
	}
	if v, err := g.Get([]byte("k/0")); err != nil || !bytes.Equal(v, value) {
		t.Errorf("a key has %d bytes, %v", len(v), err)
	}
}

// TestFlushLogsWhatWasSettled: what was settled before Flush is in the log after it, and
// members go on.
func TestFlushLogsWhatWasSettled(t *testing.T) {
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	g := n.open()
	defer n.close(g)
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(10)
	s.wait(t, 10)
	m.Settle(kernel.Accept, 0, 0, 3)
	g.Flush(soon(t))
	crashed := newNode(t, fs.CrashClone(nil), "data")
	m.Credit(5)
	s.wait(t, 15)

	g2 := crashed.open()
	defer crashed.close(g2)
	if ready, _, _, _, _ := g2.Stats(id); ready != 96 {
		t.Errorf("%d ready, want 96", ready)
	}
}
