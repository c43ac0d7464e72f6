package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

const name = "1.seg"

func batch(value string) []byte {
	var b record.Builder
	b.Append(&record.Record{Value: []byte(value), Timestamp: 5})
	b.Append(&record.Record{Value: []byte(value), Timestamp: 7})
	return b.Finish(nil)
}

// build writes a segment of partitions 3 (300 batches) and 9 (a batch of its
// own and two that it shares with 3).
func build(t testing.TB, fs vfs.FS) (size int64, sum uint64) {
	t.Helper()
	file, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(file, 77)
	var three []Entry
	for i := range 300 {
		b := batch(fmt.Sprint("three-", i, strings.Repeat("x", 10*(i%50))))
		if i == 150 {
			b = batch(strings.Repeat("large", 7_000))
		}
		three = append(three, Entry{Base: int64(10 * i), Pos: w.Pos(), Length: int32(len(b)), LastDelta: 1, MaxTime: int64(i)})
		if err := w.Append(b, 1); err != nil {
			t.Fatal(err)
		}
	}
	b := batch("nine")
	nine := []Entry{{Base: 4, Pos: w.Pos(), Length: int32(len(b)), LastDelta: 1, MaxTime: 7}}
	if err := w.Append(b, 1); err != nil {
		t.Fatal(err)
	}
	for i := range int64(2) {
		e := three[i]
		e.Base, e.Shared = 6+2*i, true
		nine = append(nine, e)
	}
	for id, entries := range [][]Entry{3: three, 9: nine} {
		if entries == nil {
			continue
		}
		w.BeginRun(uint64(id))
		for _, e := range entries {
			w.Add(e)
		}
		if err := w.EndRun(); err != nil {
			t.Fatal(err)
		}
	}
	size, sum, err = w.Finish()
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return size, sum
}

func raw(t testing.TB, fs vfs.FS) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := f.Size()
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func with(t testing.TB, content []byte) vfs.FS {
	t.Helper()
	fs := vfs.NewMem()
	f, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestRoundTrip(t *testing.T) {
	fs := vfs.NewMem()
	size, sum := build(t, fs)
	f, err := Open(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	if f.ID() != 77 || f.Size() != size || f.Checksum() != sum || f.Verify() != nil {
		t.Fatalf("%d %d %x %v", f.ID(), f.Size(), f.Checksum(), f.Verify())
	}
	runs := f.TakeRuns()
	if r := runs[0]; r.Base != 0 || r.End != 2992 || r.MaxTime != 299 || r.Entries != 300 {
		t.Fatalf("%+v", r)
	}
	if len(runs) != 2 || runs[0].Partition != 3 || runs[1].Partition != 9 || f.TakeRuns() != nil || f.Pages(&runs[0]) != 3 {
		t.Fatalf("%+v", runs)
	}
	for _, r := range runs {
		n := 0
		for p := range f.Pages(&r) {
			page, err := f.Page(&r, p)
			if err != nil {
				t.Fatal(err)
			}
			for i := range PageLen(page) {
				e, err := f.PageEntry(&r, page, i)
				if err != nil || e.Base != PageBase(page, i) {
					t.Fatal(e, err)
				}
				b, err := f.Batches([]byte("before"), e)
				if err != nil || !bytes.HasPrefix(b, []byte("before")) || record.BaseOffset(b[6:]) != e.Base || record.CheckCRC(b[6:]) != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		if n != int(r.Entries) {
			t.Fatal(n)
		}
	}
	again := vfs.NewMem()
	if size2, sum2 := build(t, again); size2 != size || sum2 != sum || !bytes.Equal(raw(t, fs), raw(t, again)) {
		t.Fatal("the same calls wrote another file")
	}
	sent, err := io.ReadAll(f.Reader())
	if err != nil || !bytes.Equal(sent, raw(t, fs)) {
		t.Fatal("Reader differs", err)
	}
}

func TestWrongVersion(t *testing.T) {
	fs := vfs.NewMem()
	build(t, fs)
	b := raw(t, fs)
	b[len(headMagic)]++
	if _, err := Open(with(t, b), name); !errors.Is(err, ErrVersion) {
		t.Fatal(err)
	}
}

// Any cut, and any flipped bit outside of batches and index pages, is found
// on opening; any flipped bit at all by Verify.
func TestDamageIsFound(t *testing.T) {
	fs := vfs.NewMem()
	build(t, fs)
	whole := raw(t, fs)
	for cut := 0; cut < len(whole); cut += 1 + cut%97 + cut/50 {
		if _, err := Open(with(t, whole[:cut]), name); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
	f, err := Open(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	for pos := range whole {
		table := pos < HeaderSize || int64(pos) >= f.foot.tablePos
		if !table && pos%4999 != 0 {
			continue
		}
		b := bytes.Clone(whole)
		b[pos] ^= 4
		g, err := Open(with(t, b), name)
		if table {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) {
				t.Fatalf("flip at %d: %v", pos, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Verify(); !errors.Is(err, ErrDamaged) {
			t.Fatalf("flip at %d: %v", pos, err)
		}
	}
}

// A damaged batch among several: those before it are returned.
func TestBatchesUpToDamage(t *testing.T) {
	fs := vfs.NewMem()
	build(t, fs)
	b := raw(t, fs)
	f, err := Open(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	run := f.TakeRuns()[0]
	page, err := f.Page(&run, 0)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	for i := range 5 {
		e, err := f.PageEntry(&run, page, i)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	b[entries[3].Pos+63] ^= 1
	g, err := Open(with(t, b), name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := g.Batches(nil, entries...)
	var d *Damage
	if !errors.As(err, &d) || d.First != 30 || d.Last != 31 || d.Pos != entries[3].Pos || !errors.Is(err, record.ErrCorrupt) {
		t.Fatal(err)
	}
	if int64(len(out)) != entries[3].Pos-entries[0].Pos {
		t.Fatalf("%d bytes", len(out))
	}
}

// FuzzOpen reads a file of hostile bytes with good CRCs: errors, no panic and
// no allocation beyond the size of the file.
func FuzzOpen(f *testing.F) {
	fs := vfs.NewMem()
	build(f, fs)
	whole := raw(f, fs)
	f.Add(whole)
	f.Add(whole[len(whole)-FooterSize-2*RunSize:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize+FooterSize {
			return
		}
		repair(b)
		file, err := Open(with(t, b), name)
		if err != nil {
			return
		}
		for _, r := range file.TakeRuns() {
			for p := range min(file.Pages(&r), 4) {
				page, err := file.Page(&r, p)
				if err != nil {
					continue
				}
				for i := range PageLen(page) {
					if e, err := file.PageEntry(&r, page, i); err == nil {
						_, _ = file.Batches(nil, e)
					}
				}
			}
		}
		_ = file.Verify()
	})
}

// repair sets the magic numbers and the CRCs of header, footer and table.
func repair(b []byte) {
	copy(b, headMagic)
	b[len(headMagic)] = Version
	binary.BigEndian.PutUint32(b[HeaderSize-crcSize:], crc(b[:HeaderSize-crcSize]))
	foot := b[len(b)-FooterSize:]
	if pos := binary.BigEndian.Uint64(foot); pos < uint64(len(b)-FooterSize) {
		binary.BigEndian.PutUint32(foot[28:], crc(b[pos:len(b)-FooterSize]))
	}
	binary.BigEndian.PutUint32(foot[52:], crc(foot[:52]))
	copy(foot[56:], tailMagic)
}
