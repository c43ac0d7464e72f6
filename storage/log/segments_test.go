package log

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// A full disk fails the write, not the log, and the plan can be written again.
func TestFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	fault := vfs.NewFault(mem)
	f := open(t, fault, newWAL(), 0, &Manifest{})
	p := f.create(1)
	f.publish(batch("a", 3, 0), p)
	plan := f.log.Capture(f.wal.append(nil))
	fault.Add(vfs.Rule{Op: vfs.OpWrite, Err: vfs.ErrNoSpace})
	if err := plan.Write(); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	if err := f.log.Install(plan); !errors.Is(err, ErrOrder) {
		t.Fatal(err)
	}
	if names, _ := mem.List(dir); len(names) != 0 {
		t.Fatalf("left behind: %v", names)
	}
	f.publish(batch("b", 3, 0), p)
	fault.Clear()
	later := f.log.Capture(f.wal.append(nil))
	if err := errors.Join(later.Write(), plan.Write()); err != nil {
		t.Fatal(err)
	}
	if err := f.log.Install(later); !errors.Is(err, ErrOrder) {
		t.Fatal(err)
	}
	if err := errors.Join(f.log.Install(plan), f.log.Install(later)); err != nil {
		t.Fatal(err)
	}
	equal(t, scan(t, p, 0), append(numbered("a", 3, 0), numbered("b", 3, 3)...))
	m, _ := later.Manifest()
	if len(m.Segments) != 2 || m.Partitions[0].End != 6 {
		t.Fatal(m)
	}
}

// Sweep removes a dead segment only when no checkpoint and no peer needs it.
func TestSweep(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 3, 0), p)
	m1 := f.seal()
	p.Trim(3)
	f.publish(batch("b", 3, 0), p)
	m2 := f.seal()
	if len(m2.Segments) != 1 {
		t.Fatalf("the dead segment is named: %v", m2)
	}
	files := func() int {
		names, err := f.fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	release := f.log.Pin(m1)
	_, done, err := f.log.Send(m1.Segments[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []func(){func() {}, release, done} {
		if err := f.log.Sweep(m2); err != nil || files() != 2 {
			t.Fatalf("step %d: %d files, %v", i, files(), err)
		}
		step()
	}
	if err := f.log.Sweep(m1, m2); err != nil || files() != 2 {
		t.Fatalf("named: %d files, %v", files(), err)
	}
	if err := f.log.Sweep(m2); err != nil || files() != 1 {
		t.Fatalf("at last: %d files, %v", files(), err)
	}
	if stats := f.log.Segments(); len(stats) != 1 || stats[0].Runs != 1 {
		t.Fatal(stats)
	}
}

// A merge keeps what lives, once, and the sources go with the next sweep. One
// that meets damage is given up and nothing has changed.
func TestMerge(t *testing.T) {
	f := newFixture(t, 0)
	p, q, r := f.create(1), f.create(2), f.create(3)
	shared := batch("shared", 200, 0)
	var want []rec
	for i := range 4 {
		f.publish(batch(fmt.Sprint("p", i), 3, 0), p)
		f.publish(shared, q, r, p)
		want = append(append(want, numbered(fmt.Sprint("p", i), 3, int64(203*i))...), numbered("shared", 200, int64(203*i+3))...)
		f.seal()
	}
	p.Trim(204)
	f.log.Drop(2)
	segments := f.log.Segments()
	id := func(i int) uint64 { return segments[i].ID }
	apart := f.log.Merge(100, id(0), id(2))
	if err := apart.Write(); !errors.Is(err, ErrNeighbours) {
		t.Fatal(err)
	}
	if err := f.log.Abandon(apart); err != nil {
		t.Fatal(err)
	}
	apart.Release()
	if err := f.log.Install(&Plan{log: f.log}); !errors.Is(err, ErrOrder) {
		t.Fatal(err)
	}
	index := f.wal.append(nil)
	plan := f.log.Merge(index, id(1), id(2), 12345)
	early := f.log.Merge(index+1, id(0), index)
	if err := early.Write(); !errors.Is(err, ErrOrder) {
		t.Fatal(err)
	}
	if err := f.log.Abandon(early); err != nil {
		t.Fatal(err)
	}
	early.Release()
	if err := errors.Join(plan.Write(), f.log.Install(plan)); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Manifest(); !errors.Is(err, ErrOrder) {
		t.Fatal(err)
	}
	m := f.seal()
	if len(m.Segments) != 3 || m.Segments[0].ID != id(0) || m.Segments[1].ID != index || m.Segments[2].ID != id(3) {
		t.Fatal(m)
	}
	if size := m.Segments[1].Size; size > int64(2*len(shared)+2000) {
		t.Fatalf("%d bytes: shared batches were stored twice", size)
	}
	plan.Release()
	if err := f.log.Sweep(m); err != nil || len(f.log.Segments()) != 3 {
		t.Fatal(err, f.log.Segments())
	}
	equal(t, scan(t, p, 204), want[204:])
	equal(t, fetch(t, p, 204, 1<<20), want[204:])
	got := scan(t, r, 190)
	if len(got) != 610 || got[10] != (rec{200, "shared/0"}) {
		t.Fatal(len(got), got[:11])
	}

	flip(t, f.fs, f.log.path(id(3)), 300)
	bad := f.log.Merge(f.wal.append(nil), index, id(3))
	later := f.log.Capture(f.wal.append(nil))
	if err := bad.Write(); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	if err := errors.Join(f.log.Abandon(bad), later.Write(), f.log.Install(later)); err != nil {
		t.Fatal(err)
	}
	bad.Release()
	if m2, err := later.Manifest(); err != nil || fmt.Sprint(m2.Segments) != fmt.Sprint(m.Segments) {
		t.Fatal(m2, err)
	}
}

// A start from the newest checkpoint leaves the older one's segments in place
// until a sweep that no longer names it.
func TestOpenKeepsOlderCheckpoint(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 3, 0), p)
	m1 := f.seal()
	p.Trim(3)
	f.publish(batch("b", 3, 0), p)
	m2 := f.seal()
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := Open(f.fs, dir, Options{Source: f.wal, Kept: []*Manifest{m1, m2}}, m2)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kept  []*Manifest
		files int
	}{{[]*Manifest{m1, m2}, 2}, {[]*Manifest{m2}, 1}, {[]*Manifest{m2}, 1}} {
		if err := l.Sweep(c.kept...); err != nil {
			t.Fatal(err)
		}
		if names, _ := f.fs.List(dir); len(names) != c.files {
			t.Fatalf("%v, want %d files", names, c.files)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	g := open(t, f.fs, f.wal, 0, m1) // a file that only m2 names is removed
	if names, _ := f.fs.List(dir); len(names) != 0 || len(g.log.Missing()) != 1 {
		t.Fatal(names, g.log.Missing())
	}
}
