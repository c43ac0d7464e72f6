package log

import (
	"errors"
	"io/fs"
	"testing"
)

// raw is the bytes of a segment's file.
func raw(t *testing.T, l *Log, id uint64) []byte {
	t.Helper()
	r, done, err := l.Send(id)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	b := make([]byte, r.Size())
	if _, err := r.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFetch: a fetch that is broken off, by a restart too, goes on where it was; what
// is not the segment begins anew; what nobody knows is not begun.
func TestFetch(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 300, 0), p)
	m := f.seal()
	id := m.Segments[0].ID
	bytes := raw(t, f.log, id)
	if err := errors.Join(f.log.Close(), f.fs.Remove(f.log.path(id))); err != nil {
		t.Fatal(err)
	}
	g := open(t, f.fs, f.wal, 0, m)
	if g.log.Whole() {
		t.Fatal("whole without its segment")
	}
	part, err := g.log.Fetch(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(bytes[:1000]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(part.Stop(), g.log.Close()); err != nil {
		t.Fatal(err)
	}

	g = open(t, f.fs, f.wal, 0, m)
	part, err = g.log.Fetch(id)
	if err != nil || part.Offset() != 1000 || part.Size() != int64(len(bytes)) {
		t.Fatalf("goes on at %d: %v", part.Offset(), err)
	}
	wrong := append([]byte(nil), bytes[1000:]...)
	wrong[50] ^= 1
	if _, err := part.Write(append(wrong, 0)); !errors.Is(err, ErrDamaged) {
		t.Fatalf("too many bytes: %v", err)
	}
	if _, err := part.Write(wrong); err != nil {
		t.Fatal(err)
	}
	if err := part.Finish(); !errors.Is(err, ErrDamaged) {
		t.Fatalf("damage was taken: %v", err)
	}
	part, err = g.log.Fetch(id)
	if err != nil || part.Offset() != 0 {
		t.Fatalf("begins anew at %d: %v", part.Offset(), err)
	}
	if _, err = part.Write(bytes); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(part.Finish(), g.log.Adopt(id)); err != nil {
		t.Fatal(err)
	}
	equal(t, scan(t, g.log.Partition(1), 0), numbered("a", 300, 0))
	if _, err := g.log.Fetch(12345); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a fetch of nothing: %v", err)
	}
	if names, _ := g.fs.List(dir); len(names) != 1 || !g.log.Whole() {
		t.Fatal(names)
	}
}

// TestCursorAcrossArrival: a cursor that stands before the records of a missing segment
// does not step over them when the segment comes.
func TestCursorAcrossArrival(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 10, 0), p)
	f.seal()
	f.publish(batch("b", 10, 0), p)
	f.seal()
	f.publish(batch("c", 10, 0), p)
	m := f.seal()
	id := m.Segments[1].ID
	bytes := raw(t, f.log, id)
	if err := errors.Join(f.log.Close(), f.fs.Remove(f.log.path(id))); err != nil {
		t.Fatal(err)
	}
	f = open(t, f.fs, f.wal, 0, m)
	p = f.log.Partition(1)
	c := p.Cursor()
	for range 10 {
		if _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
	}
	part, err := f.log.Fetch(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(bytes); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(part.Finish(), f.log.Adopt(id)); err != nil {
		t.Fatal(err)
	}
	for {
		v, err := c.Next()
		if errors.Is(err, ErrMissing) {
			continue // as of when the cursor came to its batch; it looks again
		}
		if err != nil || v == nil || v.Offset != 10 {
			t.Fatalf("after 9 comes %+v (%v)", v, err)
		}
		return
	}
}

// TestFetchAgain: a damaged range of a segment that readers have open is whole after
// a fetch, and a reader goes on.
func TestFetchAgain(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	for range 20 {
		f.publish(batch("a", 10, 0), p)
	}
	m := f.seal()
	id := m.Segments[0].ID
	bytes := raw(t, f.log, id)
	c := p.Cursor()
	if _, err := c.Next(); err != nil {
		t.Fatal(err)
	}
	flip(t, f.fs, f.log.path(id), int64(len(bytes))/2+40)
	if _, lost := around(t, p); len(lost) == 0 {
		t.Fatal("no damage")
	}
	for range 19 {
		if _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
	}
	part, err := f.log.Fetch(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(bytes); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(part.Finish(), f.log.Adopt(id)); err != nil {
		t.Fatal(err)
	}
	if got, lost := around(t, p); len(lost) > 0 || len(got) != 200 {
		t.Fatalf("%d records, lost %v", len(got), lost)
	}
	for range 180 {
		if v, err := c.Next(); err != nil || v == nil {
			t.Fatal(v, err)
		}
	}
	f.log.Drop(1)
	part, err = f.log.Fetch(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.Write(bytes); err != nil {
		t.Fatal(err)
	}
	if err := f.log.Sweep(); err != nil {
		t.Fatal(err)
	}
	if err := part.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := f.log.Adopt(id); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("what was swept was adopted: %v", err)
	}
	if names, _ := f.fs.List(dir); len(names) != 0 {
		t.Fatal(names)
	}
}
