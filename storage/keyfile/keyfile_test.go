package keyfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math/rand"
	"path"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

func sample(n int) []Entry {
	var out []Entry
	for i := range n {
		e := Entry{Key: fmt.Appendf(nil, "key %06d", i), Value: bytes.Repeat([]byte{byte(i)}, i%300), Index: uint64(i + 1)}
		if i%7 == 3 {
			e.Value, e.Deleted = nil, true
		}
		out = append(out, e)
	}
	out = append(out, Entry{Key: []byte("large"), Value: make([]byte, 3*blockBytes), Index: 1}, Entry{Key: []byte("z"), Index: 2})
	return out
}

// readAll reads a file from bytes.
func readAll(r io.Reader, m Meta, fn func(Entry) error) error {
	in := NewReader(r, m)
	for {
		e, ok, err := in.Next()
		if err != nil || !ok {
			return err
		}
		if err := fn(e); err != nil {
			return err
		}
	}
}

func readFile(fs vfs.FS, dir string, m Meta, fn func(Entry) error) error {
	in, err := Open(fs, dir, m)
	if err != nil {
		return err
	}
	return errors.Join(readAll(in.r, m, fn), in.Close())
}

func write(t testing.TB, fs vfs.FS, kind Kind, entries []Entry) Meta {
	t.Helper()
	w, err := Create(fs, "d", kind, 77)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := w.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func newDir(t testing.TB) *vfs.MemFS {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 5000} {
		fs := newDir(t)
		want := sample(n)
		m := write(t, fs, Delta, want)
		left := fs.CrashClone(nil) // what a power loss leaves has it
		i := 0
		err := readFile(left, "d", m, func(e Entry) error {
			if w := want[i]; !bytes.Equal(e.Key, w.Key) || !bytes.Equal(e.Value, w.Value) || e.Index != w.Index || e.Deleted != w.Deleted {
				t.Fatalf("entry %d: %+v, want %+v", i, e, w)
			}
			i++
			return nil
		})
		if err != nil || i != len(want) {
			t.Fatalf("%d of %d entries: %v", i, len(want), err)
		}
	}
}

// TestDamage: whatever byte is changed, and wherever the file is cut, it is refused.
func TestDamage(t *testing.T) {
	fs := newDir(t)
	m := write(t, fs, Base, sample(40))
	name := path.Join("d", m.Name())
	f, err := fs.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]byte, m.Size)
	if _, err := f.ReadAt(all, 0); err != nil {
		t.Fatal(err)
	}
	none := func(Entry) error { return nil }
	for at := int64(0); at < m.Size; at += 1 + at/512 {
		bad := bytes.Clone(all)
		bad[at] ^= 0x10
		err := readAll(bytes.NewReader(bad), m, none)
		if !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		if err := readAll(bytes.NewReader(all[:at]), m, none); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	bad := bytes.Clone(all)
	bad[7]++ // and the sum is that of the other version
	binary.BigEndian.PutUint32(bad[28:], crc32.Checksum(bad[:28], castagnoli))
	if err := readAll(bytes.NewReader(bad), m, none); !errors.Is(err, ErrVersion) {
		t.Fatalf("another version: %v", err)
	}
	bad = bytes.Clone(all)
	bad[7]++
	if err := readAll(bytes.NewReader(bad), m, none); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a damaged version byte: %v", err)
	}
	if err := readFile(fs, "d", Meta{Kind: Delta, Index: 77, Size: 1}, none); !errors.Is(err, ErrDamaged) {
		t.Fatalf("a missing file: %v", err)
	}
	other := m
	other.Sum++
	if err := readFile(fs, "d", other, none); !errors.Is(err, ErrDamaged) {
		t.Fatalf("another file: %v", err)
	}
}

// TestFailedWrite: nothing stays of a file that could not be written.
func TestFailedWrite(t *testing.T) {
	for _, rule := range []vfs.Rule{{Op: vfs.OpWrite, After: 2, Err: vfs.ErrNoSpace}, {Op: vfs.OpSync, Err: vfs.ErrNoSpace}, {Op: vfs.OpRename, Err: vfs.ErrNoSpace}} {
		mem := newDir(t)
		w, err := Create(vfs.NewFault(mem, rule), "d", Base, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range sample(1000) {
			if err = w.Add(e); err != nil {
				break
			}
		}
		if err == nil {
			_, err = w.Finish()
		} else if abort := w.Abort(); abort != nil {
			t.Fatal(abort)
		}
		if names, _ := mem.List("d"); !errors.Is(err, vfs.ErrNoSpace) || len(names) > 0 {
			t.Fatalf("%v left %v", err, names)
		}
	}
}

func FuzzRead(f *testing.F) {
	fs := newDir(f)
	m := write(f, fs, Delta, sample(20))
	file, err := fs.Open(path.Join("d", m.Name()))
	if err != nil {
		f.Fatal(err)
	}
	all := make([]byte, m.Size)
	if _, err := file.ReadAt(all, 0); err != nil {
		f.Fatal(err)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := m
		m.Size = int64(len(b))
		err := readAll(bytes.NewReader(b), m, func(Entry) error { return nil })
		if err == nil && !bytes.Equal(b, all) {
			t.Fatal("other bytes were taken")
		}
	})
}

// TestChain: of a key the newest file that names it counts, and deleted ones are
// not there, against a map.
func TestChain(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for round := range 50 {
		fs := newDir(t)
		want := map[string]string{}
		var chain []Meta
		for i := range 1 + rng.Intn(6) {
			kind := Delta
			if i == 0 {
				kind = Base
			}
			w, err := Create(fs, "d", kind, uint64(i+1))
			if err != nil {
				t.Fatal(err)
			}
			for key := range 200 {
				if rng.Intn(3) > 0 {
					continue
				}
				e := Entry{Key: fmt.Appendf(nil, "%05d", key), Value: fmt.Append(nil, i, round), Index: uint64(i), Deleted: i > 0 && rng.Intn(3) == 0}
				want[string(e.Key)] = string(e.Value)
				if e.Deleted {
					delete(want, string(e.Key))
					e.Value = nil
				}
				if err := w.Add(e); err != nil {
					t.Fatal(err)
				}
			}
			m, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			chain = append(chain, m)
		}
		got, last := map[string]string{}, ""
		err := ReadChain(fs, "d", chain, func(e Entry) error {
			if string(e.Key) <= last {
				t.Fatalf("%q after %q", e.Key, last)
			}
			last = string(e.Key)
			got[last] = string(e.Value)
			return nil
		})
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("%v: %d keys, want %d", err, len(got), len(want))
		}
	}
}

// TestUnsorted: keys out of order are damage: the reader merges by them.
func TestUnsorted(t *testing.T) {
	fs := newDir(t)
	m := write(t, fs, Base, []Entry{{Key: []byte("b")}, {Key: []byte("a")}})
	if err := ReadChain(fs, "d", []Meta{m}, func(Entry) error { return nil }); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
}
