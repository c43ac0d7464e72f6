package log

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// flip changes one bit of a file.
func flip(t *testing.T, fs vfs.FS, name string, pos int64) {
	t.Helper()
	f, err := fs.OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, pos); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, pos); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// around reads with both readers, going on behind damage as a server does,
// and returns what is left; both must agree on it.
func around(t *testing.T, p *Partition) (got []rec, lost []Damage) {
	t.Helper()
	for from := p.Start(); from < p.End(); {
		raw, err := p.Read(from, 1000, nil)
		var d *Damage
		if errors.As(err, &d) {
			if !errors.Is(err, ErrDamaged) || from < d.First || from > d.Last {
				t.Fatalf("read at %d: %v", from, err)
			}
			lost = append(lost, *d)
			from = d.Last + 1
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for len(raw) > 0 {
			b, rest, _ := record.Split(raw)
			var it record.Iter
			if err := it.Reset(b, nil); err != nil {
				t.Fatal(err)
			}
			for it.Next() {
				got = append(got, rec{it.View().Offset, string(it.View().Value)})
			}
			from, raw = record.LastOffset(b)+1, rest
		}
	}
	c := p.Cursor()
	var same []rec
	for {
		v, err := c.Next()
		var d *Damage
		if errors.As(err, &d) {
			if _, again := c.Next(); !errors.As(again, &d) {
				t.Fatalf("damage was stepped over: %v", again)
			}
			c.SeekTo(d.Last + 1)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			break
		}
		same = append(same, rec{v.Offset, string(v.Value)})
	}
	equal(t, same, got)
	return got, lost
}

func TestDamage(t *testing.T) {
	const n = 1000 // batches of 2: 8 index pages
	build := func() (*fixture, *Partition, *Manifest, segment.Run, []segment.Entry) {
		f := newFixture(t, 0)
		p := f.create(1)
		for i := range n {
			f.publish(batch(fmt.Sprint(i), 2, 0), p)
		}
		m := f.seal()
		seg, err := segment.Open(f.fs, f.log.path(m.Segments[0].ID))
		if err != nil {
			t.Fatal(err)
		}
		run := seg.TakeRuns()[0]
		var entries []segment.Entry
		for i := range seg.Pages(&run) {
			page, err := seg.Page(&run, i)
			if err != nil {
				t.Fatal(err)
			}
			for j := range segment.PageLen(page) {
				e, err := seg.PageEntry(&run, page, j)
				if err != nil {
					t.Fatal(err)
				}
				entries = append(entries, e)
			}
		}
		return f, p, m, run, entries
	}
	const page = segment.PageEntries*segment.EntrySize + 4
	cases := []struct {
		name        string
		pos         func(segment.Run, []segment.Entry) []int64
		first, last int64
	}{
		{"batch", func(_ segment.Run, e []segment.Entry) []int64 { return []int64{e[500].Pos + 70} }, 1000, 1001},
		{"first batch", func(_ segment.Run, e []segment.Entry) []int64 { return []int64{e[0].Pos + 70} }, 0, 1},
		{"first page", func(r segment.Run, _ []segment.Entry) []int64 { return []int64{r.IndexPos} }, 0, 255},
		{"page", func(r segment.Run, _ []segment.Entry) []int64 { return []int64{r.IndexPos + 4*page + 9} }, 1024, 1279},
		{"two pages", func(r segment.Run, _ []segment.Entry) []int64 {
			return []int64{r.IndexPos + 4*page + 9, r.IndexPos + 3*page + 9}
		}, 768, 1279},
		{"last page", func(r segment.Run, _ []segment.Entry) []int64 { return []int64{r.IndexPos + 7*page} }, 1792, 1999},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, p, m, run, entries := build()
			for _, pos := range c.pos(run, entries) {
				flip(t, f.fs, f.log.path(m.Segments[0].ID), pos)
			}
			got, lost := around(t, p)
			if len(lost) != 1 || lost[0].First != c.first || lost[0].Last != c.last {
				t.Fatalf("lost %v, want %d to %d", lost, c.first, c.last)
			}
			var want []rec
			for i := range n {
				for _, r := range numbered(fmt.Sprint(i), 2, int64(2*i)) {
					if r.offset < c.first || r.offset > c.last {
						want = append(want, r)
					}
				}
			}
			equal(t, got, want)
			if err := f.log.Check(m.Segments[0].ID); !errors.Is(err, ErrDamaged) {
				t.Fatalf("check: %v", err)
			}
		})
	}
}

// A compressed batch of valid CRC with rubbish inside is damage too.
func TestDamagedContent(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 2, 0), p)
	bad := batch("b", 2, 0)
	bad = reseal(append(bad[:record.HeaderSize], "rubbish"...), record.Zstd)
	f.publish(bad, p)
	lie := batch("c", 2, 0)
	lie[record.HeaderSize] = 0x7e // the first record's length
	f.publish(reseal(lie, record.None), p)
	f.publish(batch("d", 2, 0), p)
	want := append(numbered("a", 2, 0), numbered("d", 2, 6)...)
	for range 2 {
		c := p.Cursor()
		var got []rec
		var lost []string
		for len(got) < len(want) {
			v, err := c.Next()
			var d *Damage
			if errors.As(err, &d) {
				lost = append(lost, fmt.Sprint(d.First, "-", d.Last))
				c.SeekTo(d.Last + 1)
				continue
			}
			if err != nil || v == nil {
				t.Fatal(v, err)
			}
			got = append(got, rec{v.Offset, string(v.Value)})
		}
		equal(t, got, want)
		if fmt.Sprint(lost) != "[2-3 4-5]" {
			t.Fatal(lost)
		}
		f.seal()
	}
}

// A segment that is missing or damaged as a whole: readers are told to come
// back, the rest is served, and after Adopt all is there.
func TestMissingSegment(t *testing.T) {
	f := newFixture(t, 0)
	p, q := f.create(1), f.create(2)
	f.publish(batch("a", 3, 0), p)
	f.seal()
	f.publish(batch("b", 3, 0), p)
	f.publish(batch("q", 3, 0), q)
	m := f.seal()
	f.publish(batch("c", 3, 0), p)
	m3 := f.seal()
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	name := f.log.path(m.Segments[1].ID)
	size, _ := f.fs.Size(name)
	for _, how := range []string{"removed", "damaged"} {
		saved := make([]byte, size)
		file, _ := f.fs.Open(name)
		if _, err := file.ReadAt(saved, 0); err != nil {
			t.Fatal(err)
		}
		if how == "removed" {
			if err := f.fs.Remove(name); err != nil {
				t.Fatal(err)
			}
		} else {
			flip(t, f.fs, name, size-segment.FooterSize-30) // the run table
		}
		g := open(t, f.fs, f.wal, 0, m3)
		missing := g.log.Missing()
		if len(missing) != 1 || missing[0].ID != m.Segments[1].ID ||
			!errors.Is(missing[0].Err, fs.ErrNotExist) && !errors.Is(missing[0].Err, ErrDamaged) {
			t.Fatalf("%s: missing %v", how, missing)
		}
		p, q = g.log.Partition(1), g.log.Partition(2)
		var gap *Gap
		if _, err := p.Read(4, 100, nil); !errors.Is(err, ErrMissing) || !errors.As(err, &gap) || *gap != (Gap{4, 5}) {
			t.Fatalf("read: %v", err)
		}
		c := q.Cursor()
		if _, err := c.Next(); !errors.Is(err, ErrMissing) {
			t.Fatalf("next: %v", err)
		}
		if raw, err := p.Read(6, 100, nil); err != nil || record.BaseOffset(raw) != 6 {
			t.Fatalf("what is there: %v", err)
		}
		if raw, err := p.Read(0, 10000, nil); err != nil || record.LastOffset(raw) != 2 {
			t.Fatalf("up to the gap: %v", err)
		}
		if err := writeFile(g.fs, name, saved); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(g.log.Check(missing[0].ID), g.log.Adopt(missing[0].ID)); err != nil {
			t.Fatal(err)
		}
		equal(t, scan(t, p, 0), append(append(numbered("a", 3, 0), numbered("b", 3, 3)...), numbered("c", 3, 6)...))
		if v, err := c.Next(); err != nil || string(v.Value) != "q/0" {
			t.Fatal(v, err)
		}
		if err := g.log.Adopt(missing[0].ID); err != nil { // an exchange for the same
			t.Fatalf("adopted twice: %v", err)
		}
		equal(t, scan(t, q, 0), numbered("q", 3, 0))
		if err := g.log.Adopt(999); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("what nobody knows was adopted: %v", err)
		}
		if err := g.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A segment given up for good is a hole, also after the next start.
func TestDiscard(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	var m *Manifest
	for _, label := range []string{"a", "b", "c"} {
		f.publish(batch(label, 2, 0), p)
		m = f.seal()
	}
	lost := m.Segments[1].ID
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, f.fs, f.log.path(lost), 5)
	flip(t, f.fs, f.log.path(lost), m.Segments[1].Size-segment.FooterSize-5)
	want := append(numbered("a", 2, 0), numbered("c", 2, 4)...)
	g := open(t, f.fs, f.wal, 0, m)
	if err := g.log.Discard(m.Segments[0].ID); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a whole segment was discarded: %v", err)
	}
	if err := g.log.Discard(lost); err != nil {
		t.Fatal(err)
	}
	equal(t, scan(t, g.log.Partition(1), 0), want)
	m = g.seal()
	if err := g.log.Close(); err != nil || len(m.Segments) != 2 {
		t.Fatal(m, err)
	}
	g = open(t, f.fs, f.wal, 0, m)
	equal(t, scan(t, g.log.Partition(1), 0), want)
	if names, _ := f.fs.List(dir); len(names) != 3 || len(g.log.Missing()) != 0 {
		t.Fatal(names, g.log.Missing())
	}
}

// TestAlone: where no other node has a copy, a missing segment is damage, and
// readers go on behind it.
func TestAlone(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	var m *Manifest
	for i, label := range []string{"a", "b", "c", "d"} {
		f.publish(batch(label, 2, int64(10*i)), p)
		m = f.seal()
	}
	if err := errors.Join(f.log.Close(), f.fs.Remove(f.log.path(m.Segments[1].ID))); err != nil {
		t.Fatal(err)
	}
	flip(t, f.fs, f.log.path(m.Segments[3].ID), m.Segments[3].Size-segment.FooterSize-5)
	l, err := Open(f.fs, dir, Options{Cache: NewCache(0), Source: f.wal, Alone: true}, m)
	if err != nil {
		t.Fatal(err)
	}
	p = l.Partition(1)
	got, lost := around(t, p)
	equal(t, got, append(numbered("a", 2, 0), numbered("c", 2, 4)...))
	if len(lost) != 2 || lost[0].First != 2 || lost[0].Last != 3 || lost[1].First != 6 || lost[1].Last != 7 {
		t.Fatalf("lost: %+v", lost)
	}
	for ts, want := range map[int64]int64{1: 1, 2: 4, 11: 4, 21: 5, 30: 8} {
		if at, _, err := p.TimeOffset(ts); at != want || err != nil {
			t.Errorf("time %d: offset %d (%v), want %d", ts, at, err, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRefused: a segment that may not be opened is not a lost one.
func TestRefused(t *testing.T) {
	f := newFixture(t, 0)
	f.publish(batch("a", 2, 0), f.create(1))
	m := f.seal()
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewFault(f.fs, vfs.Rule{Op: vfs.OpOpen, Name: "*.seg", Err: fs.ErrPermission})
	if _, err := Open(disk, dir, Options{Source: f.wal, Alone: true}, m); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("opened: %v", err)
	}
}

// TestRepair: a segment whose ends alone are damaged loses nothing, and is whole
// again on the disk.
func TestRepair(t *testing.T) {
	for _, pos := range []int64{2, 7, -5, -20, -60} { // magic, version, the footer's magic, crc and positions
		f := newFixture(t, 0)
		p := f.create(1)
		f.publish(batch("a", 3, 0), p)
		m := f.seal()
		seg := m.Segments[0]
		if err := f.log.Close(); err != nil {
			t.Fatal(err)
		}
		if pos < 0 {
			pos += seg.Size
		}
		flip(t, f.fs, f.log.path(seg.ID), pos)
		g := open(t, f.fs, f.wal, 0, m)
		equal(t, scan(t, g.log.Partition(1), 0), numbered("a", 3, 0))
		if got := g.log.Repaired(); len(got) != 1 || got[0] != seg.ID {
			t.Errorf("repaired at %d: %v", pos, got)
		}
		if err := errors.Join(g.log.Check(seg.ID), g.log.Close()); err != nil {
			t.Fatal(err)
		}
		if g = open(t, f.fs, f.wal, 0, m); len(g.log.Repaired()) != 0 {
			t.Errorf("repaired at %d again", pos)
		}
	}
}
