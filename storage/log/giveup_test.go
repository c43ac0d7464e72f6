package log

import (
	"errors"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestGiveUp: the seal after plans that were given up takes what is still needed
// of theirs and no more, whether they were written or not.
func TestGiveUp(t *testing.T) {
	f := newFixture(t, 0)
	p, q := f.create(1), f.create(2)
	f.publish(batch("old", 2, 0), p, q)
	f.seal()
	f.publish(batch("a", 2, 0), p)
	f.publish(batch("a", 2, 0), q)
	first := f.log.Capture(f.wal.append([]byte("seal")))
	f.publish(batch("b", 2, 0), p)
	second := f.log.Capture(f.wal.append([]byte("seal")))
	if err := first.Write(); err != nil {
		t.Fatal(err)
	}
	q.Trim(4) // no longer needed
	f.publish(batch("c", 2, 0), p)
	if err := f.log.GiveUp(); err != nil {
		t.Fatal(err)
	}
	for _, plan := range []*Plan{first, second} {
		if err := plan.Write(); !plan.GivenUp() || !errors.Is(err, ErrOrder) {
			t.Fatalf("write: %v", err)
		}
		if err := f.log.Install(plan); !errors.Is(err, ErrOrder) {
			t.Fatalf("install: %v", err)
		}
		plan.Release()
	}
	if names, _ := f.fs.List(dir); len(names) != 1 {
		t.Fatalf("files: %v", names)
	}
	want := append(append(append(numbered("old", 2, 0), numbered("a", 2, 2)...), numbered("b", 2, 4)...), numbered("c", 2, 6)...)
	equal(t, scan(t, p, 0), want)
	m := f.seal()
	if n := f.log.HeadBytes(); len(m.Segments) != 2 || n != 0 {
		t.Fatalf("%d segments, %d bytes in heads", len(m.Segments), n)
	}
	equal(t, scan(t, p, 0), want)
	f.wal.cut(f.log.OldestNeededIndex())
	if err := f.log.Close(); err != nil {
		t.Fatal(err)
	}
	g := open(t, f.fs, f.wal, 0, m)
	equal(t, scan(t, g.log.Partition(1), 0), want)
	if start, end := g.log.Partition(2).Start(), g.log.Partition(2).End(); start != 4 || end != 4 {
		t.Fatalf("partition 2: [%d, %d)", start, end)
	}
}

// TestGiveUpWithoutRoom: a seal that found no room finds it when nothing of what
// it had captured is needed any more.
func TestGiveUpWithoutRoom(t *testing.T) {
	f := newFixture(t, 0)
	f.log.fs = vfs.NewFault(f.fs, vfs.Rule{Op: vfs.OpWrite, Name: "*.tmp", Err: vfs.ErrNoSpace})
	p := f.create(1)
	f.publish(batch("a", 2, 0), p)
	plan := f.log.Capture(f.wal.append([]byte("seal")))
	if err := plan.Write(); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("write: %v", err)
	}
	if err := f.log.GiveUp(); err != nil {
		t.Fatal(err)
	}
	plan.Release()
	p.Trim(2)
	if m := f.seal(); len(m.Segments) != 0 {
		t.Fatalf("%+v", m)
	}
}
