package raftgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"testing"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// simLife runs a Sim on disk until the power fails at a random disk operation,
// with proposals, steps, checkpoints and cuts, and returns what is left.
func simLife(rng *rand.Rand, disk *vfs.MemFS, confirmed map[string]bool) (left *vfs.MemFS, err error) {
	fault := vfs.NewFault(disk)
	countdown := 20 + rng.Intn(150)
	fault.Add(vfs.Rule{Before: func(vfs.Op, string) {
		if countdown--; countdown == 0 {
			left = disk.CrashClone(rng)
			fault.Add(vfs.Rule{Err: io.ErrClosedPipe})
		}
	}})
	w, err := wal.Open(fault, "wal", wal.Options{FileSize: 8 << 10, NoAhead: true, Rand: rng})
	if err != nil {
		return left, err
	}
	store, err := checkpoint.Open(fault, "checkpoints")
	if err != nil {
		return left, err
	}
	m := newTally()
	meta, r, err := store.Latest()
	if err == nil {
		err = errors.Join(m.Restore(meta, r), r.Close())
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return left, err
	}
	s, err := NewSim(w.Group(1), m, meta, 1<<10)
	if err != nil {
		return left, err
	}
	if _, err := s.Step(); err != nil {
		return left, err
	}
	if m.count < uint64(len(confirmed)) && left == nil {
		return nil, fmt.Errorf("%d commands, %d were confirmed", m.count, len(confirmed))
	}
	for left == nil {
		data := fmt.Sprintf("%d/%d", s.Term(), s.LastIndex())
		ok := true
		s.Propose(append([]byte(data), make([]byte, rng.Intn(1000))...), func(error) { ok = false })
		if ok && left == nil {
			confirmed[data] = true
		}
		if rng.Intn(3) > 0 {
			continue
		}
		if _, err := s.Step(); err != nil {
			return left, err
		}
		index, state := m.encode()
		if rng.Intn(3) > 0 || index == 0 {
			continue
		}
		meta, err := s.CheckpointMeta(index)
		if err == nil {
			err = store.Write(meta, func(w io.Writer) error { _, err := w.Write(state); return err })
		}
		if err == nil {
			err = s.Cut(index)
		}
		if err != nil {
			return left, err
		}
	}
	return left, errors.Join(m.errs...)
}

func TestSimCrash(t *testing.T) {
	for seed := range int64(150) {
		rng := rand.New(rand.NewSource(seed))
		disk, confirmed := vfs.NewMem(), map[string]bool{}
		for life := range 5 {
			left, err := simLife(rng, disk, confirmed)
			if left == nil {
				t.Fatalf("seed %d life %d: %v", seed, life, err)
			}
			disk = left
		}
	}
}

// TestSimReplays: the same seed gives the same bytes.
func TestSimReplays(t *testing.T) {
	run := func() []byte {
		rng := rand.New(rand.NewSource(42))
		disk := vfs.NewMem()
		for range 3 {
			left, err := simLife(rng, disk, map[string]bool{})
			if left == nil {
				t.Fatal(err)
			}
			disk = left
		}
		var all bytes.Buffer
		for _, dir := range []string{"wal", "checkpoints"} {
			names, err := disk.List(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				f, err := disk.Open(dir + "/" + name)
				if err != nil {
					t.Fatal(err)
				}
				size, _ := f.Size()
				b := make([]byte, size)
				if _, err := f.ReadAt(b, 0); err != nil && size > 0 {
					t.Fatal(err)
				}
				fmt.Fprintln(&all, name, size)
				all.Write(b)
			}
		}
		return all.Bytes()
	}
	if !bytes.Equal(run(), run()) {
		t.Error("two runs of one seed differ")
	}
}
