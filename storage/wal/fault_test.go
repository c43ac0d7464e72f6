package wal

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

func TestFailureIsFinal(t *testing.T) {
	for _, rule := range []vfs.Rule{
		{Op: vfs.OpSync, Times: 1, Err: io.ErrUnexpectedEOF},
		{Op: vfs.OpWrite, Times: 1, Err: io.ErrUnexpectedEOF, Short: 100},
		{Op: vfs.OpSync, Times: 1, Err: errors.Join(vfs.ErrNoSpace, io.ErrUnexpectedEOF)}, // not the harmless kind
	} {
		disk := vfs.NewMem()
		fault := vfs.NewFault(disk)
		var told error
		w := openTest(t, fault, Options{OnFailure: func(err error) { told = err }})
		g := w.Group(1)
		must(t, g.StoreLogs(entries(1, 3, 100)))
		fault.Add(rule)
		if err := g.StoreLogs(entries(4, 5, 100)); !errors.Is(err, ErrFailed) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("append: %v", err)
		}
		if err := g.StoreLogs(entries(4, 4, 100)); !errors.Is(err, ErrFailed) {
			t.Errorf("next append: %v", err)
		}
		if err := g.Set([]byte("k"), nil); !errors.Is(err, ErrFailed) {
			t.Errorf("set: %v", err)
		}
		if !errors.Is(told, ErrFailed) || !errors.Is(w.Err(), ErrFailed) {
			t.Errorf("told %v, Err %v", told, w.Err())
		}
		if got := bounds(g); got != [2]uint64{1, 3} {
			t.Errorf("holds %v", got)
		}
		_ = w.Close()
	}
}

// TestFullDisk: entries are refused before anything is written; votes and cuts
// still get through; and with space again everything goes on.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{FileSize: 16 << 10})
	defer w.Close()
	g := w.Group(1)
	disk.SetFree(0)
	next := uint64(1)
	var err error
	for ; err == nil; next++ {
		err = g.StoreLogs(entries(next, next, 1000))
	}
	next--
	if !errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrFailed) || w.Err() != nil {
		t.Fatalf("full: %v", err)
	}
	must(t, g.SetUint64([]byte("CurrentTerm"), 7))
	must(t, g.DeleteRange(1, next-2))
	if err := g.StoreLogs(entries(next, next, 1000)); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("still full: %v", err)
	}
	disk.SetFree(1 << 20)
	must(t, g.StoreLogs(entries(next, next+20, 1000)))
	must(t, g.DeleteRange(1, next+19))
	if n := w.Stats().Files; n > 2 {
		t.Errorf("%d files remain", n)
	}
}

// TestNoFileDescriptor: a lack of file descriptors refuses entries as a full disk
// does, and when there are some again everything goes on.
func TestNoFileDescriptor(t *testing.T) {
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk)
	w := openTest(t, fault, Options{FileSize: 16 << 10})
	g := w.Group(1)
	must(t, g.SetUint64([]byte("CurrentTerm"), 6))
	for _, op := range []vfs.Op{vfs.OpCreate, vfs.OpSyncDir} {
		fault.Add(vfs.Rule{Op: op, Err: vfs.ErrNoFiles})
		next, err := uint64(1), error(nil)
		if last, _ := g.LastIndex(); last > 0 {
			next = last + 1
		}
		for ; err == nil; next++ {
			err = g.StoreLogs(entries(next, next, 1000))
		}
		next--
		if !errors.Is(err, vfs.ErrNoFiles) || errors.Is(err, ErrFailed) || w.Err() != nil {
			t.Fatalf("no file: %v, %v", err, w.Err())
		}
		must(t, g.SetUint64([]byte("CurrentTerm"), 7))
		fault.Clear()
		must(t, g.StoreLogs(entries(next, next+20, 1000)))
	}
	want := bounds(g)
	must(t, w.Close())
	w = openTest(t, disk, Options{FileSize: 16 << 10})
	if got := bounds(w.Group(1)); got != want {
		t.Errorf("holds %v, not %v", got, want)
	}
	must(t, w.Close())
}

// TestMissingLog: where a log must be, none is made; not at the second try either.
func TestMissingLog(t *testing.T) {
	disk := vfs.NewMem()
	for range 2 {
		if _, err := Open(disk, "wal", Options{MustExist: true}); !errors.Is(err, ErrMissing) {
			t.Fatalf("opened: %v", err)
		}
	}
	must(t, openTest(t, disk, Options{}).Close())
	must(t, openTest(t, disk, Options{MustExist: true}).Close())
}

// TestIdleGroup: a few entries of an idle group do not keep the files of a busy
// one.
func TestIdleGroup(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{FileSize: 16 << 10, TailCacheBytes: 1})
	idle, busy := w.Group(1), w.Group(2)
	must(t, idle.StoreLogs(entries(1, 3, 50)))
	must(t, idle.Set([]byte("vote"), []byte("x")))
	for i := uint64(1); i < 2000; i++ {
		must(t, busy.StoreLogs(entries(i, i, 500)))
		if i == 700 {
			must(t, idle.StoreLogs(entries(4, 5, 50)))
		}
		if i%50 == 0 {
			must(t, busy.DeleteRange(1, i-10))
			if n := w.Stats().Files; n > pinnedFiles+1 {
				t.Fatalf("%d files at %d", n, i)
			}
		}
	}
	for range 2 {
		if got := bounds(idle); got != [2]uint64{1, 5} {
			t.Fatalf("idle group holds %v", got)
		}
		for i := uint64(1); i <= 5; i++ {
			data, err := idle.Data(i)
			if err != nil || !bytes.Equal(data, entries(i, i, 50)[0].Data) {
				t.Errorf("entry %d: %v", i, err)
			}
		}
		if v, err := idle.Get([]byte("vote")); err != nil || string(v) != "x" {
			t.Errorf("vote %q %v", v, err)
		}
		must(t, w.Close())
		w = openTest(t, disk, Options{FileSize: 16 << 10})
		idle = w.Group(1)
	}
	must(t, idle.Drop())
	must(t, w.Close())
	w = openTest(t, disk, Options{})
	if got := bounds(w.Group(1)); got != [2]uint64{} {
		t.Errorf("dropped group holds %v", got)
	}
	must(t, w.Close())
}

// TestPageCache: after a crash of the process alone, unsynced frames are read
// back from the page cache. Whoever relies on them may do so: they are durable
// when Open returns.
func TestPageCache(t *testing.T) {
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk)
	w := openTest(t, fault, Options{})
	must(t, w.Group(1).StoreLogs(entries(1, 3, 100)))
	fault.Add(vfs.Rule{Op: vfs.OpSync, Err: io.ErrUnexpectedEOF})
	if err := w.Group(1).StoreLogs(entries(4, 5, 100)); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	_ = w.Close()
	w = openTest(t, disk, Options{})
	if got := bounds(w.Group(1)); got != [2]uint64{1, 5} {
		t.Fatalf("read back %v", got)
	}
	w = openTest(t, disk.CrashClone(nil), Options{})
	if got := bounds(w.Group(1)); got != [2]uint64{1, 5} {
		t.Errorf("after a power loss %v", got)
	}
}

// TestRoom: that the next file cannot be made is known while half of the present
// one is left, and ends, by trying again, when there is room.
func TestRoom(t *testing.T) {
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk)
	w, err := Open(fault, "wal", Options{FileSize: 16 << 10})
	must(t, err)
	g := w.Group(1)
	fault.Add(vfs.Rule{Op: vfs.OpPreallocate, Name: "*.wal", Err: vfs.ErrNoSpace})
	next := uint64(1)
	for ; next <= 9; next++ {
		must(t, g.StoreLogs(entries(next, next, 1000)))
	}
	w.ahead.Wait()
	if err := w.MakeRoom(); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("half full: %v", err)
	}
	must(t, g.StoreLogs(entries(next, next, 1000))) // the other half is there
	w.ahead.Wait()
	fault.Clear()
	if err := w.MakeRoom(); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("before another try: %v", err)
	}
	w.ahead.Wait()
	must(t, w.MakeRoom())
	must(t, g.StoreLogs(entries(next+1, next+20, 1000)))
	must(t, w.Close())
}
