package wal

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

const (
	// pinnedFiles is how many files there must be before live entries are
	// copied out of the oldest one.
	pinnedFiles = 4

	// copyFraction of a file may be live for it to be worth copying: what is
	// written again stays a small part of what is given back.
	copyFraction = 8
)

// reclaim removes the oldest files that no group needs any more. When an idle
// group holds a few entries in an old file, they are written again, so that it
// cannot keep everything behind it.
func (w *WAL) reclaim() error {
	if !w.reclaiming.TryLock() {
		return nil // somebody is at it
	}
	defer w.reclaiming.Unlock()
	for {
		w.mu.Lock()
		if w.closed || len(w.files) < 2 {
			w.mu.Unlock()
			return nil
		}
		oldest, n := w.files[0], len(w.files)
		w.mu.Unlock()
		if oldest.live.Load() == 0 {
			if err := w.removeOldest(oldest); err != nil {
				return err
			}
			continue
		}
		if n < pinnedFiles || oldest.liveBytes.Load() > w.opts.FileSize/copyFraction {
			return nil
		}
		if err := w.copyForward(oldest); err != nil {
			if full(err) {
				return nil // no harm done: it is tried again
			}
			return err
		}
		if oldest.live.Load() != 0 {
			return nil // changed meanwhile; the next call looks again
		}
	}
}

// removeOldest deletes the first file. One removal is durable before the next
// begins: recovery takes a hole in the row of files for damage.
func (w *WAL) removeOldest(f *file) error {
	if w.dirDirty {
		if err := w.fs.SyncDir(w.dir); err != nil {
			return fmt.Errorf("wal: remove files: %w", err)
		}
		w.dirDirty = false
	}
	if err := w.fs.Remove(f.name); err != nil {
		return fmt.Errorf("wal: remove file: %w", err)
	}
	w.dirDirty = true
	w.mu.Lock()
	w.files = append(w.files[:0:0], w.files[1:]...)
	w.mu.Unlock()
	err := w.fs.SyncDir(w.dir)
	w.dirDirty = err != nil
	if err = errors.Join(err, f.release()); err != nil {
		return fmt.Errorf("wal: remove %s: %w", f.name, err)
	}
	return nil
}

// copyForward appends what is live in f once more.
func (w *WAL) copyForward(f *file) error {
	for _, g := range w.sorted() {
		r := newRequest(g, kindCopy)
		for _, l := range g.locsIn(f, &r.from) {
			h, data, ext, err := f.read(int64(l.off), int64(l.size))
			if err != nil {
				return err
			}
			log := &raft.Log{}
			h.toLog(data, ext, log)
			r.logs = append(r.logs, log)
			r.sums = append(r.sums, h.dataSum)
		}
		var err error
		if len(r.logs) > 0 {
			err = w.submit(r)
		}
		r.free()
		if err != nil {
			return err
		}
	}
	return nil
}

// locsIn collects the places in f that the group needs.
func (g *Group) locsIn(f *file, out *[]loc) []loc {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, l := range g.locs {
		if l.file == f {
			*out = append(*out, l)
		}
	}
	return *out
}
