package placement

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestBackupHolds: what a backup names stays while the group goes on and nothing else
// needs it, with the log behind it until that is read; and goes when it is let go.
func TestBackupHolds(t *testing.T) {
	disk := vfs.NewMem()
	n := newNode(t, disk, "data")
	n.limits.SealBytes, n.keep = 8<<10, 1
	g := n.open()
	defer n.close(g)
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("v")}}))
	index, err := g.Seal(soon(t))
	must(t, err)
	b, err := g.Backup(soon(t), index)
	must(t, err)
	must(t, g.DropTopic(soon(t), topicN(1), 1))
	rounds := func() { // each key file and segment of old is needed by nobody else then
		parts, _ := queue(t, g, 2, 1, kernel.RetainDay)
		for i := range uint64(4) {
			publish(t, g, g.Targets(parts...), 100*i, 100*i+100)
			must(t, g.Put(soon(t), []KV{{Key: fmt.Append(nil, "k", i), Value: make([]byte, 4<<10)}}))
			_, err := g.Seal(soon(t))
			must(t, err)
			must(t, g.awaitSeal(soon(t)))
		}
		must(t, g.DropTopic(soon(t), topicN(2), 1))
	}
	rounds()
	next := b.First
	must(t, b.Entries(func(l *raft.Log) error {
		if l.Index != next {
			t.Errorf("entry %d, want %d", l.Index, next)
		}
		next++
		return nil
	}))
	if next != b.Last+1 || b.Last < index || b.Checkpoint.Index > index {
		t.Errorf("entries to %d, want %d; checkpoint %d, seal before %d", next-1, b.Last, b.Checkpoint.Index, index)
	}
	rounds()
	kinds := map[bool]int{}
	for _, f := range b.Files {
		if _, err := disk.Size(f.Path); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		must(t, b.Check(f, nil))
		kinds[f.segment != 0]++
	}
	if kinds[true] == 0 || kinds[false] < 2 {
		t.Errorf("it has only %+v", b.Files)
	}
	b.Close()
	rounds()
	for _, f := range b.Files {
		if _, err := disk.Size(f.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", f.Name, err)
		}
	}
}
