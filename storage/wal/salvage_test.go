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
	if loss, err := Salvage(disk, "wal", opts); err != nil || loss.File != "" || len(loss.Groups) != 0 {
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
		loss, err := Salvage(clone, "wal", opts)
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
