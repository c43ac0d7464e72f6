package wal

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// lostSuffix marks what Salvage has taken out of the log.
const lostSuffix = ".lost"

// Loss tells what Salvage has given up.
type Loss struct {
	File   string   // where the damage is; "" = there is none, nothing was done
	Offset int64    // everything in File from here on, and all later files
	Kept   []string // files that hold the bytes given up
	Groups []GroupLoss
}

// GroupLoss is a group that had frames behind the damage.
type GroupLoss struct {
	Group uint32
	Last  uint64 // last entry that remains; 0 = none
	Seen  uint64 // highest entry found behind the damage; 0 = none
}

// Salvage makes a damaged log usable by giving up everything from the damage
// on, and names what that is. It loses acknowledged entries, perhaps also
// votes: it is for an operator of a single node who has nothing else to go on
// with. Where a group has other members, it must not vote under its old
// identity afterwards. The damaged place itself may have been of any group.
//
// The bytes given up stay in the directory, under names ending in ".lost".
func Salvage(fs vfs.FS, dir string, opts Options) (Loss, error) {
	lock, err := fs.Lock(path.Join(dir, "LOCK"))
	if err != nil {
		return Loss{}, fmt.Errorf("wal: salvage: %w", err)
	}
	s := salvage{fs: fs, dir: dir, seen: map[uint32]uint64{}}
	err = s.run()
	if err = errors.Join(err, lock.Close()); err != nil {
		return s.loss, fmt.Errorf("wal: salvage: %w", err)
	}
	w, err := Open(fs, dir, opts)
	if err != nil {
		return s.loss, err
	}
	for _, id := range slices.Sorted(maps.Keys(s.seen)) {
		last, _ := w.Group(id).LastIndex() // never fails
		s.loss.Groups = append(s.loss.Groups, GroupLoss{Group: id, Last: last, Seen: s.seen[id]})
	}
	return s.loss, w.Close()
}

type salvage struct {
	fs   vfs.FS
	dir  string
	loss Loss
	seen map[uint32]uint64
}

// run finds the first bad place and cuts there.
func (s *salvage) run() error {
	seqs, err := listSeqs(s.fs, s.dir)
	if err != nil {
		return err
	}
	prevEnd := int64(0) // of the file before; 0 = there is none
	for i, seq := range seqs {
		if i > 0 && seq != seqs[i-1]+1 {
			return s.cut(seqs[i:], 0) // a file is missing
		}
		f, blank, err := openFile(s.fs, s.dir, seq)
		if blank && i == len(seqs)-1 {
			return nil
		}
		if blank || errors.Is(err, ErrCorrupt) {
			return s.cut(seqs[i:], 0)
		}
		if err != nil {
			return err
		}
		end, prev, sound, err := extent(f, i == len(seqs)-1)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		if prevEnd > 0 && prev > 0 && prev != prevEnd {
			return s.cut(seqs[i-1:], prevEnd)
		}
		if !sound {
			return s.cut(seqs[i:], end)
		}
		prevEnd = end
	}
	return nil
}

// extent returns where the frames of a file end, and where its first frame says
// that those of the file before do (0: it does not say). sound is false when
// frames behind the end prove it to be damage.
func extent(f *file, last bool) (end, prev int64, sound bool, err error) {
	sc, err := newScanner(f)
	if err != nil {
		return 0, 0, false, err
	}
	for {
		h, _, off, ok, err := sc.next()
		if err != nil {
			return 0, 0, false, err
		}
		if !ok {
			end = off
			break
		}
		if h.kind == kindRoll {
			prev = int64(h.term)
		}
	}
	proven, _, err := sc.provenAfter(end)
	if err != nil {
		return 0, 0, false, err
	}
	// A file without frames is sound only as the one made ahead.
	return end, prev, !proven && (end > fileHeaderSize || last), nil
}

// cut takes the files seqs out of the log, the first one from end on (0: as a
// whole). From the last one back: a crash leaves a row without a hole.
func (s *salvage) cut(seqs []uint64, end int64) error {
	s.loss.File, s.loss.Offset = fileName(s.dir, seqs[0]), end
	for i, seq := range slices.Backward(seqs) {
		name := fileName(s.dir, seq)
		from := int64(fileHeaderSize)
		if i == 0 && end > 0 {
			from = end
		}
		if err := s.survey(seq, from); err != nil {
			return err
		}
		s.loss.Kept = append(s.loss.Kept, name+lostSuffix)
		if i == 0 && end > 0 {
			if err := s.split(name, end); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(s.fs.Rename(name, name+lostSuffix), s.fs.SyncDir(s.dir)); err != nil {
			return err
		}
	}
	return nil
}

// survey notes the groups that have frames from the offset on.
func (s *salvage) survey(seq uint64, from int64) error {
	f, blank, err := openFile(s.fs, s.dir, seq)
	if blank || errors.Is(err, ErrCorrupt) {
		return nil // without its salt, nothing in it can be told
	}
	if err != nil {
		return err
	}
	sc, err := newScanner(f)
	for off := from; err == nil && off < sc.size; off += frameAlign {
		sc.off = off
		h, _, _, ok, nerr := sc.next()
		if err = nerr; !ok || err != nil || h.kind == kindRoll {
			continue
		}
		index := s.seen[h.group]
		if h.kind == kindEntry {
			index = max(index, h.index)
		}
		s.seen[h.group] = index
		off = sc.off - frameAlign
	}
	return errors.Join(err, f.Close())
}

// split copies a file as a whole and cuts the original.
func (s *salvage) split(name string, end int64) error {
	f, err := s.fs.OpenFile(name)
	if err != nil {
		return err
	}
	err = s.copyTo(name+lostSuffix, f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (s *salvage) copyTo(name string, from vfs.File) error {
	size, err := from.Size()
	if err != nil {
		return err
	}
	to, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	buf := make([]byte, min(size, scanWindow))
	for off := int64(0); off < size && err == nil; off += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), size-off)]
		if _, err = from.ReadAt(b, off); err == nil {
			_, err = to.WriteAt(b, off)
		}
	}
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close(), s.fs.SyncDir(s.dir))
}
