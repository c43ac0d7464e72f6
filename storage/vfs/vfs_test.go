package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"math/rand"
	"os"
	"slices"
	"syscall"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, f FS, name string) string {
	t.Helper()
	h, err := f.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	size, err := h.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := h.ReadAt(b, 0); int64(n) != size {
		t.Fatal(err)
	}
	must(t, h.Close())
	return string(b)
}

func write(t testing.TB, f FS, name, content string, sync bool) {
	t.Helper()
	h, err := f.Create(name)
	must(t, err)
	_, err = h.WriteAt([]byte(content), 0)
	must(t, err)
	if sync {
		must(t, h.Sync())
	}
	must(t, h.Close())
}

// TestImplementations: what both file systems have in common.
func TestImplementations(t *testing.T) {
	for name, f := range map[string]FS{"os": OS(), "mem": NewMem(), "fault": NewFault(NewMem()), "unsynced": NewUnsynced(OS())} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + "/a/b"
			must(t, f.MkdirAll(dir))
			must(t, f.MkdirAll(dir))
			h, err := f.Create(dir + "/x")
			must(t, err)
			var bufs [][]byte
			var want []byte
			for i := range 3000 { // beyond IOV_MAX, with empty ones
				b := bytes.Repeat([]byte{byte(i)}, i%5)
				bufs = append(bufs, b)
				want = append(want, b...)
			}
			n, err := h.WritevAt(bufs, 10)
			if err != nil || n != len(want) {
				t.Fatalf("wrote %d of %d: %v", n, len(want), err)
			}
			got := make([]byte, len(want))
			_, err = h.ReadAt(got, 10)
			must(t, err)
			if !bytes.Equal(got, want) {
				t.Error("WritevAt wrote something else")
			}
			if n, err := h.ReadAt(make([]byte, 8), int64(len(want))+6); n != 4 || !errors.Is(err, io.EOF) {
				t.Errorf("read at the end: %d %v", n, err)
			}
			must(t, h.Preallocate(1<<20))
			must(t, h.Preallocate(100))
			must(t, h.Sync())
			if size, err := f.Size(dir + "/x"); err != nil || size != 1<<20 {
				t.Errorf("size %d %v", size, err)
			}
			must(t, h.Truncate(12))
			if size, err := h.Size(); err != nil || size != 12 {
				t.Errorf("size %d %v", size, err)
			}
			must(t, h.Truncate(20))
			if b := read(t, f, dir+"/x"); b[12:] != string(make([]byte, 8)) {
				t.Errorf("extended with %q", b[12:])
			}
			must(t, h.Close())
			if err := h.Close(); !errors.Is(err, ErrClosed) {
				t.Errorf("second close: %v", err)
			}
			names(t, f, dir)
		})
	}
}

func names(t *testing.T, f FS, dir string) {
	write(t, f, dir+"/y", "yy", true)
	must(t, f.Rename(dir+"/y", dir+"/x"))
	if got := read(t, f, dir+"/x"); got != "yy" {
		t.Errorf("renamed: %q", got)
	}
	write(t, f, dir+"/a", "", true)
	if got, err := f.List(dir); err != nil || !slices.Equal(got, []string{"a", "x"}) {
		t.Errorf("list %v %v", got, err)
	}
	must(t, f.Remove(dir+"/a"))
	must(t, f.SyncDir(dir))
	for what, err := range map[string]error{
		"remove": f.Remove(dir + "/a"),
		"open":   second(f.Open(dir + "/a")),
		"rw":     second(f.OpenFile(dir + "/a")),
		"size":   second(f.Size(dir + "/a")),
		"rename": f.Rename(dir+"/a", dir+"/b"),
		"create": second(f.Create(dir + "/none/b")),
		"list":   second(f.List(dir + "/none")),
		"sync":   f.SyncDir(dir + "/none"),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a missing file: %v", what, err)
		}
	}
	l, err := f.Lock(dir + "/LOCK")
	must(t, err)
	if _, err := f.Lock(dir + "/LOCK"); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	must(t, l.Close())
	l, err = f.Lock(dir + "/LOCK")
	must(t, err)
	must(t, l.Close())
	h, err := f.Open(dir + "/x")
	must(t, err)
	if _, err := h.WriteAt([]byte("z"), 0); err == nil {
		t.Error("wrote to a file opened for reading")
	}
	must(t, h.Close())
}

func second[T any](_ T, err error) error { return err }

func TestCrashClone(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d"))
	write(t, m, "d/synced", "old", true)
	write(t, m, "d/gone", "x", true)
	must(t, m.SyncDir("d"))
	write(t, m, "d/unnamed", "x", true) // its directory is not synced
	h, err := m.OpenFile("d/synced")
	must(t, err)
	_, err = h.WriteAt([]byte("new longer"), 0)
	must(t, err)
	must(t, m.Remove("d/gone"))
	write(t, m, "d/tmp", "renamed", true)
	must(t, m.Rename("d/tmp", "d/target"))

	c := m.CrashClone(nil)
	for name, want := range map[string]string{"d/synced": "old", "d/gone": "x", "d/unnamed": "-", "d/tmp": "-", "d/target": "-"} {
		if got := read(t, c, name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	if got := read(t, m, "d/synced"); got != "new longer" {
		t.Errorf("the original is %q", got)
	}
	must(t, h.Sync())
	must(t, m.SyncDir("d"))
	c = m.CrashClone(rand.New(rand.NewSource(1)))
	for name, want := range map[string]string{"d/synced": "new longer", "d/gone": "-", "d/unnamed": "x", "d/target": "renamed"} {
		if got := read(t, c, name); got != want {
			t.Errorf("synced: %s is %q, not %q", name, got, want)
		}
	}
}

// TestCrashSectors: an unsynced write survives in any mixture of sectors.
func TestCrashSectors(t *testing.T) {
	m := NewMem()
	h, err := m.Create("f")
	must(t, err)
	must(t, h.Preallocate(4*sector))
	must(t, h.Sync())
	must(t, m.SyncDir("."))
	_, err = h.WriteAt(bytes.Repeat([]byte("x"), 4*sector), 0)
	must(t, err)
	seen := map[string]bool{}
	rng := rand.New(rand.NewSource(1))
	for range 200 {
		b := read(t, m.CrashClone(rng), "f")
		var pattern []byte
		for i := 0; i < len(b); i += sector {
			s := b[i : i+sector]
			if s != string(bytes.Repeat([]byte{s[0]}, sector)) {
				t.Fatal("half a sector")
			}
			pattern = append(pattern, s[0])
		}
		seen[string(pattern)] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d of 16 mixtures", len(seen))
	}
	a := read(t, m.CrashClone(rand.New(rand.NewSource(5))), "f")
	if b := read(t, m.CrashClone(rand.New(rand.NewSource(5))), "f"); a != b {
		t.Error("one seed, two outcomes")
	}
}

func TestNoSpace(t *testing.T) {
	m := NewMem()
	m.SetFree(100)
	h, err := m.Create("f")
	must(t, err)
	must(t, h.Preallocate(80))
	_, err = h.WriteAt(make([]byte, 90), 0)
	must(t, err)
	if _, err := h.WriteAt(make([]byte, 20), 85); !errors.Is(err, ErrNoSpace) {
		t.Errorf("write: %v", err)
	}
	if err := h.Preallocate(200); !errors.Is(err, ErrNoSpace) {
		t.Errorf("preallocate: %v", err)
	}
	must(t, m.Remove("f"))
	h, err = m.Create("g")
	must(t, err)
	must(t, h.Preallocate(100))
}

func TestFault(t *testing.T) {
	cause := errors.New("cause")
	f := NewFault(NewMem(), Rule{Op: OpWrite, Name: "*.log", After: 1, Times: 1, Err: cause, Short: 3})
	h, err := f.Create("a.log")
	must(t, err)
	other, err := f.Create("a.txt")
	must(t, err)
	for i, want := range []error{nil, cause, nil} {
		n, err := h.WritevAt([][]byte{[]byte("ab"), []byte("cd")}, int64(10*i))
		if !errors.Is(err, want) || (want != nil && n != 3) {
			t.Errorf("write %d: %d %v", i, n, err)
		}
		_, err = other.WriteAt([]byte("x"), 0)
		must(t, err)
	}
	if got := read(t, f, "a.log")[10:14]; got != "abc\x00" {
		t.Errorf("short write left %q", got)
	}
	calls := 0
	f.Add(Rule{Before: func(Op, string) { calls++ }})
	f.Add(Rule{Op: OpSync, Err: os.ErrDeadlineExceeded})
	if err := h.Sync(); !errors.Is(err, os.ErrDeadlineExceeded) || calls != 1 {
		t.Errorf("sync %v, %d calls", err, calls)
	}
	f.Clear()
	must(t, h.Sync())
}

func TestFree(t *testing.T) {
	m := NewMem()
	if n, err := m.Free("."); n != math.MaxInt64 || err != nil {
		t.Errorf("no limit: %d, %v", n, err)
	}
	m.SetFree(100)
	f, err := m.Create("f")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Preallocate(40); err != nil {
		t.Fatal(err)
	}
	if n, err := NewFault(m).Free("."); n != 60 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := OS().Free(t.TempDir()); n <= 0 || err != nil {
		t.Errorf("of the machine: %d, %v", n, err)
	}
	if size, err := NewFault(OS()).Capacity(t.TempDir()); size <= 0 || err != nil {
		t.Errorf("size of the volume: %d, %v", size, err)
	}
	if size, err := m.Capacity("."); size != math.MaxInt64 || err != nil {
		t.Errorf("size in memory: %d, %v", size, err)
	}
	if _, err := OS().Free(t.TempDir() + "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestErrorKinds(t *testing.T) {
	for err, want := range map[error]error{
		syscall.ENOSPC: ErrNoSpace, syscall.EDQUOT: ErrNoSpace, syscall.EMFILE: ErrNoFiles, syscall.ENFILE: ErrNoFiles,
	} {
		if got := osError(&fs.PathError{Op: "open", Path: "f", Err: err}); !errors.Is(got, want) || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
