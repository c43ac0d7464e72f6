package broker

import (
	"errors"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// volume is a file system on a volume of a given size.
type volume struct {
	vfs.FS
	capacity, free int64
	err            error
}

func (v volume) Capacity(string) (int64, error) { return v.capacity, v.err }
func (v volume) Free(string) (int64, error)     { return v.free, v.err }

func TestLogUnitFollowsTheVolume(t *testing.T) {
	for capacity, want := range map[int64]int64{100 << 20: 32 << 20, 400 << 20: 32 << 20, 800 << 20: 50 << 20, 1 << 40: 64 << 20} {
		if got := logUnit(volume{FS: vfs.OS(), capacity: capacity}, "."); got != want {
			t.Errorf("%d MiB: %d, want %d", capacity>>20, got, want)
		}
	}
	if got := logUnit(volume{err: errors.New("unknown")}, "."); got != maxLogUnit {
		t.Errorf("unknown: %d", got)
	}
}

// TestNodeStartsOnALowDisk: with less room than the keyed state's files need it
// is kept in memory, so that the node starts and can be drained.
func TestNodeStartsOnALowDisk(t *testing.T) {
	for free, onDisk := range map[int64]bool{kv.Room + maxLogUnit - 1: false, kv.Room + 2*maxLogUnit: true} {
		dir := t.TempDir()
		b := &Node{log: zerolog.Nop()}
		if err := b.openKeyed(volume{FS: vfs.OS(), free: free}, dir, maxLogUnit); err != nil {
			t.Fatal(err)
		}
		files, err := vfs.OS().List(dir)
		if err != nil || (len(files) > 0) != onDisk {
			t.Errorf("%d MiB free: files %v, %v", free>>20, files, err)
		}
		if err := b.kv.Close(); err != nil {
			t.Error(err)
		}
	}
}
