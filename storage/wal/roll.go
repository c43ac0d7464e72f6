package wal

import (
	"errors"
	"maps"
	"slices"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// spareFile is the outcome of making a file ahead of need.
type spareFile struct {
	file *file
	err  error
}

// nextFile returns a new file with at least size bytes, made ahead if possible.
func (w *WAL) nextFile(seq uint64, size int64) (*file, error) {
	if w.making {
		w.making = false
		s := <-w.spare
		if s.err == nil && s.file.limit >= size {
			return s.file, nil
		}
		if s.err == nil {
			if err := s.file.release(); err != nil {
				return nil, err
			}
		}
		// The disk may have been full then, or the file is too small now.
	}
	salt, err := w.salt()
	if err != nil {
		return nil, err
	}
	f, err := createFile(w.fs, w.dir, seq, size, salt)
	w.made(err)
	return f, err
}

// made notes whether a file could be made.
func (w *WAL) made(err error) {
	switch {
	case err == nil:
		w.cramped.Store(nil)
	case errors.Is(err, vfs.ErrNoSpace) && !w.opts.NoAhead:
		w.cramped.Store(&err)
	}
}

// Room returns an error matching vfs.ErrNoSpace once the next file could not be made,
// which is tried when the present one is half full: what writes much should stop
// then, so that the rest is left to what gives space back. It costs an atomic load.
func (w *WAL) Room() error {
	if err := w.cramped.Load(); err != nil {
		return *err
	}
	return nil
}

// MakeRoom has the next file tried again if it could not be made, in the background,
// and returns Room.
func (w *WAL) MakeRoom() error {
	if w.Room() == nil {
		return nil
	}
	w.mu.Lock()
	free := !w.busy && !w.closed && w.failed == nil
	if free {
		w.busy = true // what the writer owns is ours
	}
	w.mu.Unlock()
	if free {
		w.tryAhead()
		w.mu.Lock()
		w.handOver()
		w.mu.Unlock()
	}
	return w.Room()
}

// tryAhead is makeAhead after an attempt that has failed. Writer only.
func (w *WAL) tryAhead() {
	if w.making {
		select {
		case s := <-w.spare:
			if s.file != nil {
				w.spare <- s
				return
			}
			w.making = false
		default:
			return // on its way
		}
	}
	w.makeAhead(w.cur)
}

// makeAhead has the next file made once the present one is half full.
func (w *WAL) makeAhead(cur *file) {
	if w.opts.NoAhead || w.making || cur.end < cur.limit/2 {
		return
	}
	salt, err := w.salt()
	if err != nil {
		return // nextFile will meet it again
	}
	w.making = true
	w.ahead.Go(func() {
		f, err := createFile(w.fs, w.dir, cur.seq+1, w.opts.FileSize, salt)
		w.made(err)
		w.spare <- spareFile{f, err}
	})
}

// preamble begins a file: where the one before it ends, and the state of every
// group, so that the files before can be removed without another thought. The
// first frame counts the others: a file without all of them was never in use.
func (w *WAL) preamble(f *file) {
	h := frame{kind: kindRoll}
	if prev := w.cur; prev != f {
		h.index, h.term = prev.seq, uint64(prev.end)
	}
	groups := slices.DeleteFunc(w.sorted(), (*Group).blank)
	h.time = int64(len(groups))
	w.round.frame(&h, nil)
	for _, g := range groups {
		h := frame{kind: kindState, group: g.id, index: g.first, term: g.next}
		w.round.frame(&h, appendPairs(nil, g.kv))
	}
}

func (w *WAL) preambleSize() int64 {
	n := frameSize(0, 0)
	for _, g := range w.sorted() {
		n += frameSize(int64(len(appendPairs(nil, g.kv))), 0)
	}
	return n
}

// sorted returns the groups in the order of their ids.
func (w *WAL) sorted() []*Group {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*Group, 0, len(w.groups))
	for _, id := range slices.Sorted(maps.Keys(w.groups)) {
		out = append(out, w.groups[id])
	}
	return out
}
