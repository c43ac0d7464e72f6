package wal

import (
	"sync/atomic"
	"time"
)

// pace is how rounds of writing go, each with its sync, for those who must know while one
// hangs: it takes no lock. Times are since the log was opened, and not zero.
type pace struct {
	opened time.Time
	begun  atomic.Int64 // when the round under way began, 0 = there is none
	slow   atomic.Int64 // when one last ended that was slow, 0 = none was
	before atomic.Int64 // when the one before it did
}

func (w *WAL) age() int64 { return int64(w.opts.Now().Sub(w.pace.opened)) + 1 }

// writes notes that a round begins, and returns when, for wrote, which notes its end.
func (w *WAL) writes() (start int64) {
	start = w.age()
	w.pace.begun.Store(start)
	return start
}

func (w *WAL) wrote(start int64) {
	end := w.age()
	w.pace.begun.Store(0)
	if time.Duration(end-start) >= w.opts.SlowWrite {
		w.pace.before.Store(w.pace.slow.Load())
		w.pace.slow.Store(end)
	}
}

// Writing returns for how long the round that is under way has been written and synced, 0 if
// there is none. A disk that hangs does not hold it up.
func (w *WAL) Writing() time.Duration {
	if begun := w.pace.begun.Load(); begun != 0 {
		return max(time.Duration(w.age()-begun), 1)
	}
	return 0
}

// Writing is WAL.Writing of the log that the group is in.
func (g *Group) Writing() time.Duration { return g.w.Writing() }

// Slow reports whether two rounds took as long as Options.SlowWrite within that time: one may
// be a hiccup. One that is under way for as long counts. A disk that hangs does not hold it up.
func (w *WAL) Slow(within time.Duration) bool {
	second := &w.pace.before
	if w.Writing() >= w.opts.SlowWrite {
		second = &w.pace.slow
	}
	at := second.Load()
	return at != 0 && time.Duration(w.age()-at) < within
}
