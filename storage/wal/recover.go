package wal

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// recover reads all files in order and rebuilds the groups.
func (w *WAL) recover() error {
	seqs, err := w.listFiles()
	if err != nil {
		return err
	}
	if err := w.openFiles(seqs); err != nil {
		return err
	}
	if len(w.files) == 0 && w.opts.MustExist {
		return fmt.Errorf("%w: %s has no file of it", ErrMissing, w.dir)
	}
	if len(w.files) == 0 {
		return w.begin()
	}
	rp := &replay{w: w, moved: map[uint32]map[uint64]loc{}}
	for i, f := range w.files {
		end, empty, err := rp.file(f, i)
		if err != nil {
			return err
		}
		if empty && i == 0 && f.seq != 1 {
			return corrupt(f.name, fileHeaderSize, "no frames, but the files before are gone")
		}
		if empty && i > 0 {
			// Made ahead, or its first write was torn: nothing is in it.
			if i != len(w.files)-1 {
				return corrupt(f.name, fileHeaderSize, "no frames, but files follow")
			}
			if err := w.discard(); err != nil {
				return err
			}
			break
		}
		f.end, f.durable = end, end
	}
	w.cur = w.files[len(w.files)-1]
	w.recovery.Files, w.recovery.Entries = len(w.files), rp.entries
	if err := rp.finish(); err != nil {
		return err
	}
	return w.settle()
}

func (w *WAL) listFiles() ([]uint64, error) {
	seqs, err := listSeqs(w.fs, w.dir)
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	for i := 1; i < len(seqs); i++ {
		if seqs[i] != seqs[i-1]+1 {
			return nil, fmt.Errorf("%w: %s is missing", ErrCorrupt, fileName(w.dir, seqs[i-1]+1))
		}
	}
	return seqs, nil
}

// listSeqs returns the sequence numbers of the files in dir, in order.
func listSeqs(fs vfs.FS, dir string) ([]uint64, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	var seqs []uint64
	for _, name := range names {
		if seq, ok := parseFileName(name); ok {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

// openFiles opens the files; the last one may be blank, and is then removed.
func (w *WAL) openFiles(seqs []uint64) error {
	for i, seq := range seqs {
		f, blank, err := openFile(w.fs, w.dir, seq)
		if err != nil {
			return err
		}
		if !blank {
			w.files = append(w.files, f)
			continue
		}
		name := fileName(w.dir, seq)
		if i != len(seqs)-1 {
			return corrupt(name, 0, "no header, but files follow")
		}
		if err := errors.Join(w.fs.Remove(name), w.fs.SyncDir(w.dir)); err != nil {
			return fmt.Errorf("wal: %w", err)
		}
	}
	return nil
}

// begin starts an empty log.
func (w *WAL) begin() error {
	salt, err := w.salt()
	if err != nil {
		return err
	}
	f, err := createFile(w.fs, w.dir, max(1, w.opts.firstSeq), w.opts.FileSize, salt)
	if err != nil {
		return err
	}
	w.files, w.cur = []*file{f}, f
	return nil
}

// discard removes the last file, which is empty.
func (w *WAL) discard() error {
	last := len(w.files) - 1
	f := w.files[last]
	w.files = w.files[:last]
	err := errors.Join(f.release(), w.fs.Remove(f.name), w.fs.SyncDir(w.dir))
	if err != nil {
		return fmt.Errorf("wal: %w", err)
	}
	return nil
}

// settle makes the last file fit for appending: what follows the end is cut
// off, so that a later frame can never lead on to old bytes; all that was read
// becomes durable, since a crash of the process alone leaves it in the page
// cache; and the space is reserved again.
func (w *WAL) settle() error {
	f := w.cur
	s, err := newScanner(f)
	if err != nil {
		return err
	}
	proven, dirty, err := s.provenAfter(f.end)
	if err != nil {
		return err
	}
	if proven {
		return corrupt(f.name, f.end, "frames that were synced later are valid")
	}
	if dirty {
		w.recovery.TornFile, w.recovery.TornAt = f.name, f.end
		if err := f.Truncate(f.end); err != nil {
			return fmt.Errorf("wal: cut %s: %w", f.name, err)
		}
	}
	if err := syncFile(f); err != nil {
		return fmt.Errorf("wal: sync %s: %w", f.name, err)
	}
	f.limit = max(f.limit, f.end)
	err = f.Preallocate(f.limit)
	if err == nil {
		err = syncFile(f)
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		f.limit = f.end // full: the next append needs a new file, and says so
		return nil
	}
	if err != nil {
		return fmt.Errorf("wal: reserve %s: %w", f.name, err)
	}
	return nil
}

// replay is the state of recovery.
type replay struct {
	w       *WAL
	entries int

	// moved has, by group, copies of entries whose first place was in a file
	// that is gone: a group of the oldest file may begin with such a gap.
	moved map[uint32]map[uint64]loc
}

// file replays one file and returns where its frames end.
func (rp *replay) file(f *file, i int) (end int64, empty bool, err error) {
	s, err := newScanner(f)
	if err != nil {
		return 0, false, err
	}
	missing := int64(1) // frames of the preamble
	for {
		h, data, off, ok, err := s.next()
		if err != nil {
			return 0, false, err
		}
		if !ok && missing == 0 {
			return off, false, nil
		}
		if !ok {
			return rp.unused(s, off)
		}
		if (off == fileHeaderSize) != (h.kind == kindRoll) {
			return 0, false, corrupt(f.name, off, "misplaced begin of a file")
		}
		if h.kind == kindRoll {
			if i > 0 {
				prev := rp.w.files[i-1]
				if h.index != prev.seq || h.term != uint64(prev.end) {
					return 0, false, corrupt(prev.name, prev.end, fmt.Sprintf("ends here, but %s says at %d", path.Base(f.name), h.term))
				}
			}
			missing = h.time
			continue
		}
		if missing > 0 {
			if h.kind != kindState {
				return 0, false, corrupt(f.name, off, "the state of groups is missing")
			}
			missing--
		}
		if what := rp.apply(f, &h, data, off, i); what != "" {
			return 0, false, corrupt(f.name, off, what)
		}
	}
}

// unused deals with a file that lacks a part of its preamble. Unless something
// proves that it had one, its first write was torn and nothing is in it.
func (rp *replay) unused(s *scanner, off int64) (int64, bool, error) {
	proven, _, err := s.provenAfter(off)
	if err != nil {
		return 0, false, err
	}
	if proven {
		return 0, false, corrupt(s.file.name, off, "frames that were synced later are valid")
	}
	return off, true, nil
}

// apply replays one frame; it returns what is wrong with it, or "".
func (rp *replay) apply(f *file, h *frame, data []byte, off int64, i int) string {
	g := rp.w.group(h.group)
	at := loc{file: f, off: uint32(off), size: uint32(h.size())}
	switch h.kind {
	case kindState:
		return rp.state(g, h, data, i)
	case kindEntry:
		if g.first == g.next && h.index > 0 {
			g.first, g.next = h.index, h.index
			delete(rp.moved, g.id)
		}
		if h.index != g.next || h.index == 0 {
			return fmt.Sprintf("entry %d of group %d does not follow %d", h.index, g.id, g.next-1)
		}
		rp.entries++
		g.addLoc(at)
	case kindCopy:
		rp.copied(g, h.index, at)
	case kindCut:
		if h.index <= g.first || h.index > g.next {
			return fmt.Sprintf("cut of group %d to %d outside of %d..%d", g.id, h.index, g.first, g.next)
		}
		rp.cut(g, h.index)
	case kindTrunc:
		if h.index < g.first || h.index >= g.next {
			return fmt.Sprintf("truncation of group %d to %d outside of %d..%d", g.id, h.index, g.first, g.next)
		}
		rp.truncate(g, h.index)
	case kindStable:
		if err := readPairs(data, g.kv); err != nil {
			return err.Error()
		}
	case kindDrop:
		rp.cut(g, g.next)
		delete(rp.moved, g.id)
		g.drop()
	}
	return ""
}

// state takes over or checks the state of a group at the begin of a file.
func (rp *replay) state(g *Group, h *frame, data []byte, i int) string {
	if h.index > h.term {
		return fmt.Sprintf("state of group %d: first %d, next %d", g.id, h.index, h.term)
	}
	if i == 0 {
		g.first, g.next = h.index, h.term
	} else if g.first != h.index || g.next != h.term {
		return fmt.Sprintf("group %d has %d..%d, not %d..%d: frames are missing before", g.id, g.first, g.next, h.index, h.term)
	}
	clear(g.kv)
	if err := readPairs(data, g.kv); err != nil {
		return err.Error()
	}
	return ""
}

// base is the index of the first entry in locs. During replay it may lie above
// first: what is between was copied forward and comes later.
func (g *Group) base() uint64 { return g.next - uint64(len(g.locs)) }

func (rp *replay) copied(g *Group, index uint64, at loc) {
	switch {
	case index < g.first || index >= g.next:
	case index >= g.base():
		old := &g.locs[index-g.base()]
		old.file.hold(-1, int64(old.size))
		at.file.hold(1, int64(at.size))
		old.file, old.off = at.file, at.off
	default:
		if rp.moved[g.id] == nil {
			rp.moved[g.id] = map[uint64]loc{}
		}
		rp.moved[g.id][index] = at
	}
}

func (rp *replay) cut(g *Group, index uint64) {
	base := g.base()
	if index <= base {
		g.first = index
		return
	}
	for _, l := range g.locs[:index-base] {
		l.file.hold(-1, int64(l.size))
	}
	g.locs, g.first = g.locs[index-base:], index
}

func (rp *replay) truncate(g *Group, index uint64) {
	base := g.base()
	keep := max(index, base) - base
	for _, l := range g.locs[keep:] {
		l.file.hold(-1, int64(l.size))
		g.bytes -= uint64(l.size)
	}
	g.locs, g.next = g.locs[:keep], index
	for i := range rp.moved[g.id] {
		if i >= index {
			delete(rp.moved[g.id], i)
		}
	}
}

// finish joins the copied entries with the others and checks that none of the
// live ones is missing.
func (rp *replay) finish() error {
	for _, g := range rp.w.sorted() {
		base := g.base()
		if g.first == base {
			continue
		}
		moved := rp.moved[g.id]
		if base-g.first > uint64(len(moved)) {
			return fmt.Errorf("%w: entries %d..%d of group %d are missing", ErrCorrupt, g.first, base-1, g.id)
		}
		rest := g.locs
		g.locs, g.next, g.bytes = nil, g.first, 0
		for i := g.first; i < base; i++ {
			at, ok := moved[i]
			if !ok {
				return fmt.Errorf("%w: entry %d of group %d is missing", ErrCorrupt, i, g.id)
			}
			g.addLoc(at)
		}
		for _, l := range rest {
			l.file.hold(-1, int64(l.size)) // addLoc counts it again
			g.addLoc(l)
		}
	}
	return nil
}

// Term returns the term of an entry.
func (g *Group) Term(index uint64) (uint64, error) {
	var l raft.Log
	if err := g.GetLog(index, &l); err != nil {
		return 0, err
	}
	return l.Term, nil
}
