package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	// lostSuffix marks the files that Salvage has taken out of the log.
	lostSuffix = ".lost"

	// salvageSuffix marks the directory in which the new log is made.
	salvageSuffix = ".salvage"

	// salvageBatch is how many bytes are written again with one append.
	salvageBatch = 4 << 20

	// keyTerm is the key of hashicorp/raft for the present term.
	keyTerm = "CurrentTerm"
)

// Loss tells what Salvage has given up.
type Loss struct {
	File   string   // where the first damage is; "" = there is none, nothing was done
	Offset int64    // in File; 0 also where a whole file or what was in it is missing
	Kept   []string // the files of the old log
	Groups []GroupLoss
}

// GroupLoss is a group of which entries are known to be lost: those behind Last
// up to Seen.
type GroupLoss struct {
	Group uint32
	Last  uint64 // last entry that remains, here or in the checkpoint; 0 = none
	Seen  uint64 // last entry that is known to have been there
}

// Salvage makes a damaged log usable: it writes it anew from all frames that are
// whole, before and behind the damage, and names what is lost. Of each group it
// keeps the entries that go on without a gap from its checkpoint, whose index is
// in base (0: from the first entry ever); a group without such entries has only
// its stable store, and without a checkpoint not even that. It loses acknowledged
// entries, perhaps also votes: it is for an operator of a single node who has
// nothing else to go on with. Where a group has other members, it must not vote
// under its old identity afterwards. The damaged place itself may have been of
// any group.
//
// The old files stay in the directory, under names ending in ".lost". After a
// crash Salvage can be called again.
func Salvage(fs vfs.FS, dir string, base map[uint32]uint64, opts Options) (Loss, error) {
	w, err := Open(fs, dir, opts)
	if err == nil {
		return Loss{}, w.Close()
	}
	if !errors.Is(err, ErrCorrupt) {
		return Loss{}, err
	}
	lock, err := fs.Lock(path.Join(dir, "LOCK"))
	if err != nil {
		return Loss{}, fmt.Errorf("wal: salvage: %w", err)
	}
	s := salvage{fs: fs, dir: dir, base: base, groups: map[uint32]*remains{}}
	err = s.run(opts)
	for _, f := range s.files {
		err = errors.Join(err, f.release())
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return s.loss, fmt.Errorf("wal: salvage: %w", err)
	}
	return s.loss, nil
}

type salvage struct {
	fs     vfs.FS
	dir    string
	base   map[uint32]uint64
	loss   Loss
	files  []*file
	groups map[uint32]*remains
}

// run reads all files and writes what is usable to new ones.
func (s *salvage) run(opts Options) error {
	seqs, err := listSeqs(s.fs, s.dir)
	if err != nil {
		return err
	}
	for i, seq := range seqs {
		if i > 0 && seq != seqs[i-1]+1 {
			s.note(fileName(s.dir, seqs[i-1]+1), 0)
		}
		f, err := s.open(seq)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		s.files = append(s.files, f)
		if err := s.read(f); err != nil {
			return err
		}
	}
	s.note(s.dir, 0) // nothing is damaged: something must be missing
	return s.rebuild(seqs, opts)
}

// note remembers the first damage.
func (s *salvage) note(name string, off int64) {
	if s.loss.File == "" {
		s.loss.File, s.loss.Offset = name, off
	}
}

// open opens a file, also one with a damaged header, as long as its salt may be
// right: with a wrong one no frame will be found. It returns nil for a blank one.
func (s *salvage) open(seq uint64) (*file, error) {
	f, _, err := openFile(s.fs, s.dir, seq)
	if !errors.Is(err, ErrCorrupt) {
		return f, err
	}
	name := fileName(s.dir, seq)
	s.note(name, 0)
	h, err := s.fs.OpenFile(name)
	if err != nil {
		return nil, err
	}
	size, err := h.Size()
	head := make([]byte, fileHeaderSize)
	if err == nil && size >= fileHeaderSize && size <= maxFileSize {
		_, err = h.ReadAt(head, 0)
	} else {
		return nil, errors.Join(err, h.Close())
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	f = &file{File: h, name: name, seq: seq, salt: saltOf(head, seq), limit: size}
	f.refs.Store(1)
	return f, nil
}

// saltOf returns the salt of a damaged header, which it mends if it is one bit.
func saltOf(head []byte, seq uint64) uint32 {
	for i := range 8 * fileHeaderSize {
		head[i/8] ^= 1 << (i % 8)
		salt, err := getFileHeader(head, seq)
		head[i/8] ^= 1 << (i % 8)
		if err == nil {
			return salt
		}
	}
	return binary.LittleEndian.Uint32(head[16:])
}

// read takes in all whole frames of a file.
func (s *salvage) read(f *file) error {
	sc, err := newScanner(f)
	if err != nil {
		return err
	}
	bad := int64(-1)
	f.end = fileHeaderSize
	for sc.off < sc.size {
		h, data, off, ok, err := sc.next()
		if err != nil {
			return err
		}
		if !ok {
			if bad < 0 {
				bad = off
			}
			sc.off = off + frameAlign
			continue
		}
		if bad >= 0 {
			s.note(f.name, bad)
			bad = -1
		}
		if n := len(s.files); h.kind == kindRoll && n > 1 {
			if prev := s.files[n-2]; prev.seq == h.index && uint64(prev.end) != h.term {
				s.note(prev.name, min(prev.end, int64(h.term)))
			}
		}
		f.end = sc.off
		if err := s.apply(f, &h, data, off); err != nil {
			return err
		}
	}
	return nil
}

func (s *salvage) apply(f *file, h *frame, data []byte, off int64) error {
	if h.kind == kindRoll {
		return nil
	}
	r := s.groups[h.group]
	if r == nil || h.kind == kindDrop {
		r = &remains{at: map[uint64]loc{}, kv: map[string][]byte{}}
		s.groups[h.group] = r
	}
	if err := r.apply(h, data, loc{file: f, off: uint32(off), size: uint32(h.size())}); err != nil {
		return corrupt(f.name, off, err.Error())
	}
	return nil
}

// remains is what is left of a group.
type remains struct {
	floor uint64 // entries before were cut off
	next  uint64 // behind the last entry
	at    map[uint64]loc
	kv    map[string][]byte
}

func (r *remains) apply(h *frame, data []byte, at loc) error {
	switch h.kind {
	case kindState:
		r.truncate(h.term)
		r.floor, r.next = h.index, h.term
		clear(r.kv)
		return readPairs(data, r.kv)
	case kindEntry:
		if r.floor >= r.next || h.index < r.floor {
			clear(r.at)
			r.floor = h.index
		}
		r.truncate(h.index)
		r.at[h.index], r.next = at, h.index+1
	case kindCopy:
		r.at[h.index], r.next = at, max(r.next, h.index+1)
	case kindCut:
		r.floor, r.next = max(r.floor, h.index), max(r.next, h.index)
	case kindTrunc:
		r.truncate(h.index)
	case kindStable:
		return readPairs(data, r.kv)
	}
	return nil
}

// truncate forgets the entries from index on.
func (r *remains) truncate(index uint64) {
	if index >= r.next {
		return
	}
	maps.DeleteFunc(r.at, func(i uint64, _ loc) bool { return i >= index })
	r.next = index
}

// usable returns the entries first..next-1 that go on from a checkpoint, or up to it, without
// a gap; first == next: there are none.
func (r *remains) usable(base uint64) (first, next uint64) {
	has := func(i uint64) bool {
		_, ok := r.at[i]
		return ok && i >= max(r.floor, 1)
	}
	first, next = base+1, base+1
	for has(next) {
		next++
	}
	for has(first - 1) {
		first--
	}
	return first, next
}

// rebuild writes the new log beside the old one, under higher numbers, and then
// puts it in its place. Until the last step of that, Open refuses what there is.
func (s *salvage) rebuild(seqs []uint64, opts Options) error {
	dir := s.dir + salvageSuffix
	if err := s.fs.MkdirAll(dir); err != nil {
		return err
	}
	if err := s.clear(dir); err != nil {
		return err
	}
	opts.NoAhead, opts.MustExist, opts.firstSeq = true, false, seqs[len(seqs)-1]+1
	w, err := Open(s.fs, dir, opts)
	if err != nil {
		return err
	}
	empty := true
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		r, base := s.groups[id], s.base[id]
		first, next := r.usable(base)
		if base > 0 || first < next {
			empty = false
			if err := r.writeTo(w.Group(id), first, next); err != nil {
				return errors.Join(err, w.Close())
			}
		}
		if last := max(base, next-1); r.next > r.floor && r.next-1 > last {
			s.loss.Groups = append(s.loss.Groups, GroupLoss{Group: id, Last: last, Seen: r.next - 1})
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if !empty {
		err = s.moveIn(dir)
	}
	if err == nil {
		err = s.moveOut(seqs)
	}
	if err == nil {
		err = errors.Join(s.clear(dir), s.fs.Remove(dir))
	}
	return err
}

// writeTo writes the stable store and the entries first..next-1. The store comes
// first: an entry may be too large for the first file, which must not stay empty.
func (r *remains) writeTo(g *Group, first, next uint64) error {
	if err := g.setPairs(appendPairs(nil, r.kv)); err != nil {
		return err
	}
	var logs []*raft.Log
	var size int64
	var term uint64
	for i := first; i < next; i++ {
		at := r.at[i]
		h, data, ext, err := at.file.read(int64(at.off), int64(at.size))
		if err != nil {
			return err
		}
		l := &raft.Log{}
		h.toLog(data, ext, l)
		logs, size, term = append(logs, l), size+int64(at.size), max(term, l.Term)
		if size >= min(salvageBatch, g.w.opts.FileSize/8) || i == next-1 {
			if err := g.StoreLogs(logs); err != nil {
				return err
			}
			logs, size = nil, 0
		}
	}
	// The frame with the newest term may be among the lost ones.
	if v := r.kv[keyTerm]; first == next || len(v) == 8 && binary.BigEndian.Uint64(v) >= term {
		return nil
	}
	return g.SetUint64([]byte(keyTerm), term)
}

// moveIn puts the new files beside the old ones, the last one first: as long as
// one lacks there is a hole in the row.
func (s *salvage) moveIn(dir string) error {
	seqs, err := listSeqs(s.fs, dir)
	if err != nil {
		return err
	}
	for _, seq := range slices.Backward(seqs) {
		if err := s.fs.Rename(fileName(dir, seq), fileName(s.dir, seq)); err != nil {
			return err
		}
		if err := s.fs.SyncDir(s.dir); err != nil {
			return err
		}
	}
	return nil
}

// moveOut takes the old files out of the log.
func (s *salvage) moveOut(seqs []uint64) error {
	for _, seq := range slices.Backward(seqs) {
		name := fileName(s.dir, seq)
		if err := errors.Join(s.fs.Rename(name, name+lostSuffix), s.fs.SyncDir(s.dir)); err != nil {
			return err
		}
		s.loss.Kept = append(s.loss.Kept, name+lostSuffix)
	}
	return nil
}

// clear removes the files of a directory.
func (s *salvage) clear(dir string) error {
	names, err := s.fs.List(dir)
	for _, name := range names {
		err = errors.Join(err, s.fs.Remove(path.Join(dir, name)))
	}
	return errors.Join(err, s.fs.SyncDir(dir))
}
