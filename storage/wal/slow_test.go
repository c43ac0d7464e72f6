package wal

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestSlowWrites: a disk is slow whose syncs take long again and again, also while one hangs;
// one that took long once is not.
func TestSlowSyncs(t *testing.T) {
	var now, step atomic.Int64 // step is how long a sync takes
	w := openTest(t, vfs.NewFault(vfs.NewMem(), vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Before: func(vfs.Op, string) { now.Add(step.Load()) }}),
		Options{SlowWrite: time.Second, Now: func() time.Time { return time.Unix(0, now.Load()) }})
	last := uint64(0)
	write := func(took time.Duration) {
		t.Helper()
		step.Store(int64(took))
		last++
		must(t, w.Group(1).StoreLogs(entries(last, last, 10)))
	}
	is := func(slow bool, why string) {
		t.Helper()
		if w.Slow(time.Minute) != slow {
			t.Errorf("%s: slow: %v", why, !slow)
		}
	}
	is(false, "new")
	write(time.Second)
	is(false, "a hiccup")
	write(time.Second - 1)
	is(false, "almost slow")
	write(2 * time.Second)
	is(true, "two")
	if w.Writing() != 0 {
		t.Error("a sync is under way")
	}
	now.Add(int64(time.Minute))
	is(false, "a minute later")
	write(time.Second)
	is(false, "another hiccup")
	begun := now.Load()
	step.Store(int64(5 * time.Second))
	w.fs.(*vfs.Fault).Add(vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Before: func(vfs.Op, string) {
		if got := w.Writing(); got != time.Duration(now.Load()-begun) || got < 5*time.Second {
			t.Errorf("the sync has been under way for %v", got)
		}
		is(true, "a second one is under way")
	}})
	last++
	must(t, w.Group(1).StoreLogs(entries(last, last, 10)))
	w.fs.(*vfs.Fault).Clear()
	must(t, w.Close())
}
