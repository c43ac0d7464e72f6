package placement

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// inOneEntry has the commands that calls make logged in one entry, in order.
func inOneEntry(t *testing.T, g *Group, calls ...func()) {
	t.Helper()
	g.prop.sealing.Lock()
	done := make(chan struct{})
	for i, call := range calls {
		go func() { call(); done <- struct{}{} }()
		for gathered := 0; gathered <= i; { // the next call comes behind it
			g.prop.mu.Lock()
			gathered = len(g.prop.open.commands)
			g.prop.mu.Unlock()
		}
	}
	g.prop.sealing.Unlock()
	for range calls {
		<-done
	}
}

// TestSealCapturesTheWholeEntry: what follows a seal in its own entry is in the
// checkpoint, since replay begins with the next entry. Else partition numbers
// shift, and records come back in other topics.
func TestSealCapturesTheWholeEntry(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	queue(t, g, 1, 1, kernel.RetainDay)
	var second []PartitionID
	inOneEntry(t, g,
		func() { g.prop.command(sealCommand()) }, //nolint:errcheck // awaited below
		func() {
			var err error
			second, err = g.CreatePartitions(soon(t), topicN(2), []PartitionSpec{{Retention: kernel.RetainDay}}, 1)
			if err != nil {
				t.Error(err)
			}
		},
		func() {
			if err := g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
				t.Error(err)
			}
		})
	awaitCheckpoint(t, g)
	publish(t, g, g.Targets(second...), 0, 5)
	third, _ := queue(t, g, 3, 1, kernel.RetainDay)
	publish(t, g, g.Targets(third...), 100, 107)
	n.close(g)

	g = n.open()
	defer n.close(g)
	for id, want := range map[PartitionID]int64{second[0]: 5, third[0]: 7} {
		p, err := g.Partition(id)
		if err != nil {
			t.Fatalf("partition %d: %v", id, err)
		}
		if _, end := p.Bounds(); end != want {
			t.Errorf("partition %d ends at %d, want %d", id, end, want)
		}
	}
	fourth, _ := queue(t, g, 4, 1, kernel.RetainDay)
	if fourth[0] <= third[0] {
		t.Errorf("partition number %d was given again", fourth[0])
	}
	if v, err := g.Get([]byte("k")); err != nil || string(v) != "v" {
		t.Errorf("keyed state: %q %v", v, err)
	}
}

// awaitCheckpoint waits until one checkpoint has been written.
func awaitCheckpoint(t *testing.T, g *Group) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); g.Metrics().Checkpoints.Load() == 0; {
		select {
		case <-end:
			t.Fatal("no checkpoint was written")
		case <-tick.C:
		}
	}
}
