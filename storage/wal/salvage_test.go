package wal

import (
	"errors"
	"math/rand"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestSalvage damages a log anywhere; afterwards it opens, holds a prefix of
// what it held, and the loss names the groups.
func TestSalvage(t *testing.T) {
	opts := Options{FileSize: 4 << 10, NoAhead: true}
	disk := vfs.NewMem()
	w := openTest(t, disk, opts)
	for i := uint64(1); i <= 20; i++ {
		must(t, w.Group(1+uint32(i)%2).StoreLogs(entries((i+1)/2, (i+1)/2, 400)))
	}
	must(t, w.Close())
	if loss, err := Salvage(disk, "wal", nil, opts); err != nil || loss.File != "" || len(loss.Groups) != 0 {
		t.Errorf("of a sound log: %+v %v", loss, err)
	}
	names, err := disk.List("wal")
	must(t, err)
	rng := rand.New(rand.NewSource(1))
	for range 300 {
		name := "wal/" + names[rng.Intn(len(names))]
		size, err := disk.Size(name)
		must(t, err)
		clone := disk.CrashClone(nil)
		f, err := clone.OpenFile(name)
		must(t, err)
		_, err = f.WriteAt([]byte{0xde, 0xad}, rng.Int63n(size))
		must(t, errors.Join(err, f.Sync(), f.Close()))
		w, err := Open(clone, "wal", opts)
		if errors.Is(err, ErrVersion) {
			continue
		}
		damaged := errors.Is(err, ErrCorrupt)
		if err == nil {
			must(t, w.Close())
		} else if !damaged {
			t.Fatal(err)
		}
		loss, err := Salvage(clone, "wal", nil, opts)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if damaged != (loss.File != "") {
			t.Errorf("%s: damaged %v, loss %+v", name, damaged, loss)
		}
		w = openTest(t, clone, opts)
		for id := uint32(1); id <= 2; id++ {
			b := bounds(w.Group(id))
			for i := uint64(1); i <= b[1]; i++ {
				if data, err := w.Group(id).Data(i); err != nil || data[0] != byte(i) {
					t.Errorf("group %d entry %d: %v", id, i, err)
				}
			}
		}
		for _, g := range loss.Groups {
			if g.Last > g.Seen && g.Seen != 0 {
				t.Errorf("loss %+v", g)
			}
		}
		must(t, w.Close())
	}
}

// copied makes a log of many files in which an idle group's entries have been
// written again behind those of a busy one, which begins behind a checkpoint at
// busyBase.
func copied(t *testing.T, opts Options) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	w := openTest(t, disk, opts)
	must(t, w.Group(1).SetUint64([]byte("CurrentTerm"), 3))
	must(t, w.Group(1).StoreLogs(entries(1, 5, 20)))
	for i := uint64(1); i <= 60; i++ {
		must(t, w.Group(2).StoreLogs(entries(i, i, 400)))
		if i == 40 {
			must(t, w.Group(2).DeleteRange(1, busyBase-5))
		}
	}
	if w.files[0].seq == 1 {
		t.Fatal("the first file is still there: nothing has been copied")
	}
	must(t, w.Close())
	return disk
}

const busyBase = 30

// TestSalvageCopies: damage to any one file of a log with copies leaves a log that
// opens, in which what is not in that file is, as far as it goes on from the
// checkpoint; what is not is named.
func TestSalvageCopies(t *testing.T) {
	opts := Options{FileSize: 4 << 10, NoAhead: true}
	disk := copied(t, opts)
	names, err := disk.List("wal")
	must(t, err)
	base := map[uint32]uint64{2: busyBase}
	idle := 0
	for _, name := range names {
		if _, ok := parseFileName(name); !ok {
			continue
		}
		name = "wal/" + name
		size, err := disk.Size(name)
		must(t, err)
		for _, at := range []int64{-1, 8, 18, fileHeaderSize + 20, size / 10, size / 2, size * 7 / 10} {
			clone := disk.CrashClone(nil)
			if at < 0 {
				must(t, errors.Join(clone.Remove(name), clone.SyncDir("wal")))
			} else {
				f, err := clone.OpenFile(name)
				must(t, err)
				b := make([]byte, 1)
				_, err = f.ReadAt(b, at)
				must(t, err)
				b[0] ^= 1
				_, err = f.WriteAt(b, at)
				must(t, errors.Join(err, f.Sync(), f.Close()))
			}
			loss, err := Salvage(clone, "wal", base, opts)
			if err != nil {
				t.Fatalf("%s at %d: %v", name, at, err)
			}
			w := openTest(t, clone, opts)
			last := [3]uint64{0, 5, 60}
			for _, g := range loss.Groups {
				if g.Seen > last[g.Group] || g.Last >= g.Seen {
					t.Errorf("%s at %d: %+v", name, at, loss)
				}
				last[g.Group] = g.Last
			}
			b := bounds(w.Group(2))
			if loss.File != "" && (b[0] > busyBase+1 || b[1] != 0 && b[1] != last[2] || b[1] == 0 && last[2] != busyBase) {
				t.Errorf("%s at %d: group 2 has %v, %+v", name, at, b, loss)
			}
			for id := uint32(1); id <= 2; id++ {
				b := bounds(w.Group(id))
				for i := b[0]; i > 0 && i <= b[1]; i++ {
					if data, err := w.Group(id).Data(i); err != nil || data[0] != byte(i) {
						t.Errorf("%s at %d: group %d entry %d: %v", name, at, id, i, err)
					}
				}
			}
			if b := bounds(w.Group(1)); b[0] == 1 && b[1] == 5 {
				idle++
				if term, err := w.Group(1).GetUint64([]byte("CurrentTerm")); err != nil || term != 3 {
					t.Errorf("%s at %d: term %d, %v", name, at, term, err)
				}
			}
			// It goes on as a log does.
			next := max(bounds(w.Group(2))[1], busyBase) + 1
			must(t, w.Group(2).StoreLogs(entries(next, next+20, 400)))
			must(t, w.Close())
			w = openTest(t, clone, opts)
			if b := bounds(w.Group(2)); b[1] != next+20 {
				t.Errorf("%s at %d: %v after more", name, at, b)
			}
			must(t, w.Close())
		}
	}
	if idle < 7*(len(names)-3) {
		t.Errorf("the idle group is whole only %d times", idle)
	}
}
