package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// TestUnsynced: a process sees what it does, and the next one what a power loss
// leaves: both as MemFS has it, after any operations.
func TestUnsynced(t *testing.T) {
	for seed := range int64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewSource(seed))
			disk, model := NewMem(), NewMem()
			must(t, disk.MkdirAll("d"))
			must(t, model.MkdirAll("d"))
			for range 4 { // lives of the process
				u := NewUnsynced(disk)
				for range 60 {
					if rng.Intn(10) == 0 {
						same(t, "while it runs", u, model)
					}
					step(t, rng, u, model)
				}
				same(t, "while it runs", u, model)
				model = model.CrashClone(nil)
				same(t, "after a kill", NewUnsynced(disk), model)
			}
		})
	}
}

func step(t *testing.T, rng *rand.Rand, u *Unsynced, model *MemFS) {
	t.Helper()
	name := func() string { return fmt.Sprintf("d/%d", rng.Intn(5)) }
	from, to, kind := name(), name(), rng.Intn(12)
	off, size, b := rng.Int63n(9000), rng.Int63n(9000), byte(rng.Intn(255)+1)
	var results []error
	for _, f := range []FS{u, model} {
		var err error
		switch kind {
		case 0:
			err = second(f.Create(from))
		case 1:
			err = f.Remove(from)
		case 2, 3:
			err = f.Rename(from, to)
		case 4:
			err = f.SyncDir("d")
		default:
			err = onFile(f, from, kind, off, size, b)
		}
		results = append(results, err)
	}
	if (results[0] == nil) != (results[1] == nil) || errors.Is(results[0], fs.ErrNotExist) != errors.Is(results[1], fs.ErrNotExist) {
		t.Fatalf("kind %d of %s: %v, and in the model %v", kind, from, results[0], results[1])
	}
}

func onFile(f FS, name string, kind int, off, size int64, b byte) error {
	h, err := f.OpenFile(name)
	if err != nil {
		return err
	}
	defer h.Close()
	switch kind {
	case 5, 6:
		return h.Sync()
	case 7:
		return h.Truncate(size)
	default:
		_, err = h.WriteAt([]byte(strings.Repeat(string(rune('a'+b%26)), int(size))), off)
		return err
	}
}

func same(t *testing.T, when string, u FS, model FS) {
	t.Helper()
	got, err := u.List("d")
	must(t, err)
	want, err := model.List("d")
	must(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, not %v", when, got, want)
	}
	for _, name := range want {
		if read(t, u, "d/"+name) != read(t, model, "d/"+name) {
			t.Fatalf("%s: %s differs", when, name)
		}
	}
}
