package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, disk vfs.FS) *Store {
	t.Helper()
	s, err := Open(disk, "c")
	must(t, err)
	return s
}

func meta(index uint64) Meta {
	return Meta{Index: index, Term: index / 10, Configuration: []byte(fmt.Sprint("config", index)), ConfigurationIndex: index / 2}
}

// state is a payload that differs by index and spans several writes.
func state(index uint64) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%08d", index)), int(index%7)*8000)
}

func write(s *Store, index uint64) error {
	return s.Write(meta(index), func(w io.Writer) error {
		for b := state(index); len(b) > 0; {
			n, err := w.Write(b[:min(len(b), 10007)])
			if err != nil {
				return err
			}
			b = b[n:]
		}
		return nil
	})
}

// latest reads the newest checkpoint and checks that it is whole.
func latest(t testing.TB, s *Store) uint64 {
	t.Helper()
	m, r, err := s.Latest()
	if errors.Is(err, ErrNone) {
		return 0
	}
	must(t, err)
	b, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close()))
	want := meta(m.Index)
	if !bytes.Equal(b, state(m.Index)) || int64(len(b)) != m.Size || m.Term != want.Term ||
		!bytes.Equal(m.Configuration, want.Configuration) || m.ConfigurationIndex != want.ConfigurationIndex {
		t.Errorf("checkpoint %d is not what was written", m.Index)
	}
	return m.Index
}

func indexes(s *Store) []uint64 {
	var out []uint64
	for _, m := range s.List() {
		out = append(out, m.Index)
	}
	return out
}

func TestWriteAndKeep(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, disk)
	if got := latest(t, s); got != 0 {
		t.Fatalf("latest of nothing is %d", got)
	}
	release := func() {}
	for i, want := range [][]uint64{{7}, {8, 7}, {20, 8}, {21, 20, 8}, {30, 21, 8}} {
		must(t, write(s, []uint64{7, 8, 20, 21, 30}[i]))
		if i == 2 {
			release = s.Pin(meta(8).ID())
		}
		if got := indexes(s); !slices.Equal(got, want) {
			t.Errorf("after %d writes: %v, not %v", i+1, got, want)
		}
		if got := latest(t, s); got != want[0] {
			t.Errorf("latest %d, not %d", got, want[0])
		}
		if got := indexes(open(t, disk)); !slices.Equal(got, want) {
			t.Errorf("reopened: %v, not %v", got, want)
		}
	}
	release()
	release()
	must(t, write(s, 30)) // again, over the old one
	if got := indexes(s); !slices.Equal(got, []uint64{30, 21}) {
		t.Errorf("unpinned: %v", got)
	}
	if _, _, err := s.Read(meta(8).ID()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read a removed one: %v", err)
	}
}

// TestReaderOutlivesFile: a checkpoint on its way to a follower may be replaced.
func TestReaderOutlivesFile(t *testing.T) {
	s := open(t, vfs.NewMem())
	must(t, write(s, 5))
	_, r, err := s.Read(meta(5).ID())
	must(t, err)
	for i := uint64(6); i < 10; i++ {
		must(t, write(s, i))
	}
	b, err := io.ReadAll(r)
	must(t, errors.Join(err, r.Close()))
	if !bytes.Equal(b, state(5)) {
		t.Error("content changed")
	}
}

func TestFailedFill(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, disk)
	must(t, write(s, 3))
	cause := errors.New("cause")
	if err := s.Write(meta(4), func(w io.Writer) error { _, _ = w.Write([]byte("x")); return cause }); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	disk.SetFree(100)
	if err := write(s, 5); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("full disk: %v", err)
	}
	disk.SetFree(-1)
	names, err := disk.List("c")
	must(t, err)
	if len(names) != 1 || latest(t, s) != 3 {
		t.Errorf("left behind: %v", names)
	}
	must(t, write(s, 6))
}

// TestDamage flips each byte of the newest checkpoint: it is never used.
func TestDamage(t *testing.T) {
	disk := vfs.NewMem()
	s := open(t, disk)
	must(t, write(s, 7))
	must(t, s.Write(meta(9), func(w io.Writer) error { _, err := w.Write(make([]byte, 50)); return err }))
	name := "c/" + meta(9).ID() + suffix
	size, err := disk.Size(name)
	must(t, err)
	for off := range size {
		clone := disk.CrashClone(nil)
		flip(t, clone, name, off)
		s, err := Open(clone, "c")
		if errors.Is(err, ErrVersion) && off == 4 {
			continue
		}
		must(t, err)
		if got := latest(t, s); got != 7 {
			t.Errorf("byte %d: latest is %d", off, got)
		}
		if d := s.Damage(); len(d) != 1 || !errors.Is(d[0], ErrCorrupt) || strings.Count(d[0].Error(), suffix) != 1 {
			t.Errorf("byte %d: damage %v", off, d)
		}
		if got := indexes(s); !slices.Equal(got, []uint64{7}) {
			t.Errorf("byte %d: list %v", off, got)
		}
	}
	flip(t, disk, name, 100)
	flip(t, disk, "c/"+meta(7).ID()+suffix, 50)
	if _, _, err := open(t, disk).Latest(); !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNone) {
		t.Errorf("all damaged: %v", err)
	}
	// That must not look like a fresh start the next time.
	if _, _, err := open(t, disk).Latest(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("all damaged, reopened: %v", err)
	}
}

func flip(t testing.TB, disk vfs.FS, name string, off int64) {
	t.Helper()
	f, err := disk.OpenFile(name)
	must(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	must(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, off)
	must(t, errors.Join(err, f.Sync(), f.Close()))
}

func TestVersion(t *testing.T) {
	disk := vfs.NewMem()
	must(t, write(open(t, disk), 3))
	f, err := disk.OpenFile("c/" + meta(3).ID() + suffix)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	head := make([]byte, size)
	_, err = f.ReadAt(head, 0)
	must(t, err)
	head[4] = version + 1
	n := binary.LittleEndian.Uint32(head[32:])
	binary.LittleEndian.PutUint32(head[headerSize-4:], headerSum(head[:headerSize+n]))
	_, err = f.WriteAt(head, 0)
	must(t, err)
	if _, err := Open(disk, "c"); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version: %v", err)
	}
	head[4] = version
	binary.LittleEndian.PutUint32(head[headerSize-4:], headerSum(head[:headerSize+n]))
	head[4] = version + 1 // the byte is damaged
	_, err = f.WriteAt(head, 0)
	must(t, err)
	if s, err := Open(disk, "c"); err != nil || len(s.Damage()) != 1 || !errors.Is(s.Damage()[0], ErrCorrupt) {
		t.Errorf("damaged version byte: %v", err)
	}
}

// TestCrash: at every disk operation the power may fail; the newest checkpoint
// whose Write returned is there, or the one that was being written.
func TestCrash(t *testing.T) {
	for seed := range int64(10) {
		for at := 1; ; at++ {
			rng := rand.New(rand.NewSource(seed))
			disk := vfs.NewMem()
			fault := vfs.NewFault(disk)
			var left *vfs.MemFS
			n := 0
			fault.Add(vfs.Rule{Before: func(vfs.Op, string) {
				if n++; n == at {
					left = disk.CrashClone(rng)
				}
			}})
			s, err := Open(fault, "c")
			must(t, err)
			done := uint64(0)
			for i := uint64(1); i < 6 && left == nil; i++ {
				must(t, write(s, i))
				if left == nil {
					done = i
				}
			}
			if left == nil {
				break
			}
			got := latest(t, open(t, left))
			if got != done && got != done+1 {
				t.Fatalf("seed %d, operation %d: latest %d, written %d", seed, at, got, done)
			}
			names, err := left.List("c")
			must(t, err)
			for _, name := range names {
				if strings.HasSuffix(name, tmpSuffix) || strings.HasSuffix(name, damagedSuffix) {
					t.Errorf("seed %d, operation %d: %s", seed, at, name)
				}
			}
		}
	}
}

// FuzzOpen: no bytes of a file make it panic.
func FuzzOpen(f *testing.F) {
	disk := vfs.NewMem()
	must(f, write(open(f, disk), 1))
	h, err := disk.Open("c/" + meta(1).ID() + suffix)
	must(f, err)
	seed := make([]byte, 200)
	n, _ := h.ReadAt(seed, 0)
	f.Add(seed[:n])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := vfs.NewMem()
		must(t, disk.MkdirAll("c"))
		h, err := disk.Create("c/" + meta(1).ID() + suffix)
		must(t, err)
		_, err = h.WriteAt(b, 0)
		must(t, err)
		s, err := Open(disk, "c")
		if err != nil {
			return
		}
		if _, r, err := s.Latest(); err == nil {
			_, err := io.ReadAll(r)
			must(t, errors.Join(err, r.Close()))
		}
	})
}
