package wal

import (
	"sync/atomic"
	"time"
)

// pace is how the syncs go, for those who must know while one hangs: it takes no lock.
// Times are since the log was opened, and not zero.
type pace struct {
	opened time.Time
	begun  atomic.Int64 // when the sync under way began, 0 = there is none
	slow   atomic.Int64 // when one last ended that was slow, 0 = none was
	before atomic.Int64 // when the one before it did
}

func (w *WAL) age() int64 { return int64(w.opts.Now().Sub(w.pace.opened)) + 1 }

// timed times a sync.
func (w *WAL) timed(sync func() error) error {
	start := w.age()
	w.pace.begun.Store(start)
	err := sync()
	end := w.age()
	w.pace.begun.Store(0)
	if took := time.Duration(end - start); took >= w.opts.SlowSync {
		w.pace.before.Store(w.pace.slow.Load())
		w.pace.slow.Store(end)
	}
	w.syncTime.Add(end - start)
	return err
}

// Syncing returns for how long the sync that is under way has been so, 0 if there is none.
// A disk that hangs does not hold it up.
func (w *WAL) Syncing() time.Duration {
	if begun := w.pace.begun.Load(); begun != 0 {
		return max(time.Duration(w.age()-begun), 1)
	}
	return 0
}

// Syncing is WAL.Syncing of the log that the group is in.
func (g *Group) Syncing() time.Duration { return g.w.Syncing() }

// Slow reports whether two syncs took as long as Options.SlowSync within that time: one may
// be a hiccup. One that is under way for as long counts. A disk that hangs does not hold it up.
func (w *WAL) Slow(within time.Duration) bool {
	second := &w.pace.before
	if w.Syncing() >= w.opts.SlowSync {
		second = &w.pace.slow
	}
	at := second.Load()
	return at != 0 && time.Duration(w.age()-at) < within
}
