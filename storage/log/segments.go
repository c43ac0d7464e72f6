package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/trivium-mq/trivium/storage/segment"
)

const (
	suffix     = ".seg"
	tempSuffix = ".seg.tmp"
	partSuffix = ".seg.part" // see Fetch
)

// segmentFile is a segment that the log refers to.
type segmentFile struct {
	meta SegmentMeta
	open atomic.Pointer[segment.File] // nil while it is missing; under Log.mu when written
	err  error                        // why it is missing
	runs atomic.Int32                 // runs that live
	live atomic.Int64                 // bytes of the batches in them
	pins int                          // under Log.mu: who else needs the file
	over bool                         // likewise: a merge has taken its place
}

// file is nil while the segment is missing.
func (s *segmentFile) file() *segment.File { return s.open.Load() }

// SegmentName is the base name of a segment's file in the log's directory.
func SegmentName(id uint64) string { return fmt.Sprintf("%016x%s", id, suffix) }

// SegmentID is the number of the segment whose SegmentName is name.
func SegmentID(name string) (id uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil && SegmentName(id) == name
}

func (l *Log) path(id uint64) string { return path.Join(l.dir, SegmentName(id)) }

// openSegments opens what the manifest names and removes what neither it nor
// the manifests of kept checkpoints name.
func (l *Log) openSegments(m *Manifest, kept []*Manifest) error {
	spare := make(map[string]uint64)
	for _, older := range kept {
		if older.Index >= m.Index {
			continue // what is newer is made again
		}
		for _, meta := range older.Segments {
			spare[SegmentName(meta.ID)] = meta.ID
		}
	}
	known := make(map[string]bool, len(m.Segments))
	for _, meta := range m.Segments {
		known[SegmentName(meta.ID)] = true
		s := &segmentFile{meta: meta}
		l.segments = append(l.segments, s)
		if err := l.openSegment(s); err != nil {
			if errors.Is(err, segment.ErrVersion) || refused(err) {
				return err
			}
			s.err = err
			l.missing[meta.ID] = s
			l.absent.Add(1)
		}
	}
	names, err := l.fs.List(l.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if id, ok := spare[name]; ok && !known[name] {
			l.spare = append(l.spare, id)
		} else if whole, ok := strings.CutSuffix(name, partSuffix); ok && l.wants(whole+suffix) {
			continue
		} else if !known[name] && (strings.HasSuffix(name, suffix) || strings.HasSuffix(name, tempSuffix) || ok) {
			if err := l.fs.Remove(path.Join(l.dir, name)); err != nil {
				return fmt.Errorf("remove unknown segment: %w", err)
			}
		}
	}
	return nil
}

// refused tells errors of opening a file that say nothing about what is in it.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// openSegment opens the file of a segment and gives its runs to the
// partitions.
func (l *Log) openSegment(s *segmentFile) error {
	file, err := l.openFile(s.meta)
	if err != nil {
		return err
	}
	if err := s.meta.match(file); err != nil {
		_ = file.Close()
		return err
	}
	l.mu.Lock()
	s.open.Store(file)
	s.err = nil
	l.mu.Unlock()
	for _, r := range file.TakeRuns() {
		if p := l.parts[r.Partition]; p != nil {
			p.addRun(run{r, s})
		}
	}
	return nil
}

// openFile opens a segment's file. If only its ends are damaged, they are written
// anew: the manifest knows what is between them.
func (l *Log) openFile(meta SegmentMeta) (*segment.File, error) {
	name := l.path(meta.ID)
	file, err := segment.Open(l.fs, name)
	if errors.Is(err, ErrDamaged) || errors.Is(err, segment.ErrVersion) {
		if segment.Repair(l.fs, name, meta.ID, meta.Size, meta.Checksum) == nil {
			l.repaired = append(l.repaired, meta.ID)
			return segment.Open(l.fs, name)
		}
	}
	return file, err
}

// addRun puts a run in its place among the partition's runs, if it lives.
func (p *Partition) addRun(r run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.End <= p.start.Load() {
		return
	}
	at, _ := slices.BinarySearchFunc(p.runs, r.Base, func(a run, base int64) int {
		if a.Base < base {
			return -1
		}
		return 1
	})
	p.runs = slices.Insert(slices.Clone(p.runs), at, r)
	p.hold(&r)
}

// hold counts a run that the partition takes, letGo one that it drops.
func (p *Partition) hold(r *run) {
	p.size.Add(r.Bytes)
	r.seg.runs.Add(1)
	r.seg.live.Add(r.Bytes)
}

// MissingSegment is a segment that the manifest names and that cannot be used.
type MissingSegment struct {
	SegmentMeta
	Err error // matches fs.ErrNotExist or ErrDamaged
}

// Missing lists the segments whose files are missing or damaged as a whole.
// They are to be fetched from another node with Fetch, and then given to Adopt.
func (l *Log) Missing() []MissingSegment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var out []MissingSegment
	for _, s := range l.segments {
		if s.file() == nil {
			out = append(out, MissingSegment{s.meta, s.err})
		}
	}
	return out
}

// Whole tells whether no segment is missing.
func (l *Log) Whole() bool { return l.absent.Load() == 0 }

// Repaired lists the segments whose ends Open found damaged and wrote anew. They
// are whole, and their disk may not be. Writer only.
func (l *Log) Repaired() []uint64 { return l.repaired }

// Adopt takes in the file of a missing segment that Fetch has brought, or a new file
// for one whose file is damaged. A segment that nobody needs any more is removed: then
// the error matches fs.ErrNotExist. Writer only.
func (l *Log) Adopt(id uint64) error {
	s, missing := l.wanted(id)
	switch {
	case s == nil:
		return errors.Join(fmt.Errorf("log: adopt segment %x: %w", id, fs.ErrNotExist), l.fs.Remove(l.path(id)))
	case !missing:
		return l.exchange(s)
	}
	if err := l.openSegment(s); err != nil {
		return fmt.Errorf("log: adopt: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.missing, id)
	l.absent.Add(-1)
	return nil
}

// Discard gives up a missing segment for good: an operator has decided that
// no copy of it will come. What was in it becomes holes. A damaged file is
// kept under another name. Writer only; it is remembered by the next seal's
// manifest.
func (l *Log) Discard(id uint64) error {
	l.mu.Lock()
	s := l.missing[id]
	if s != nil {
		delete(l.missing, id)
		l.segments = slices.DeleteFunc(slices.Clone(l.segments), func(o *segmentFile) bool { return o == s })
		l.absent.Add(-1)
	}
	l.mu.Unlock()
	if s == nil {
		return fmt.Errorf("log: discard segment %x: %w", id, fs.ErrNotExist)
	}
	err := l.fs.Rename(l.path(id), l.path(id)+".lost")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("log: discard: %w", err)
	}
	return nil
}

// Check reads a segment file whole and compares it with its checksum, and
// with the one the log knows: after a fetch, and from time to time to find
// damage early. The error matches ErrDamaged if they differ.
func (l *Log) Check(id uint64) error { return l.CheckPaced(id, nil) }

// Send opens a segment's raw bytes to send them to another node. The segment
// stays until close is called.
func (l *Log) Send(id uint64) (r *io.SectionReader, close func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments {
		if s.meta.ID == id && s.file() != nil {
			s.pins++
			return s.file().Reader(), func() { l.unpin(s) }, nil
		}
	}
	return nil, nil, fmt.Errorf("log: send segment %x: %w", id, fs.ErrNotExist)
}

// Pin keeps the segments that a manifest names from being removed until
// release is called: for as long as somebody who was sent the manifest may
// come for them.
func (l *Log) Pin(m *Manifest) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var pinned []*segmentFile
	for _, s := range l.segments {
		if slices.ContainsFunc(m.Segments, func(meta SegmentMeta) bool { return meta.ID == s.meta.ID }) {
			s.pins++
			pinned = append(pinned, s)
		}
	}
	return func() { l.unpin(pinned...) }
}

func (l *Log) unpin(segments ...*segmentFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range segments {
		s.pins--
	}
}

// Sweep removes the segment files in which nothing lives and that none of the
// given manifests names: those of the checkpoints that are kept. It may be
// called from any goroutine, after a checkpoint was written.
func (l *Log) Sweep(kept ...*Manifest) error {
	named := make(map[uint64]bool)
	for _, m := range kept {
		for _, s := range m.Segments {
			named[s.ID] = true
		}
	}
	var dead []*segmentFile
	l.mu.Lock()
	l.segments = slices.DeleteFunc(slices.Clone(l.segments), func(s *segmentFile) bool {
		if s.file() == nil || s.runs.Load() > 0 || s.pins > 0 || named[s.meta.ID] {
			return false
		}
		dead = append(dead, s)
		return true
	})
	var remove []uint64
	l.spare = slices.DeleteFunc(l.spare, func(id uint64) bool {
		if !named[id] {
			remove = append(remove, id)
		}
		return !named[id]
	})
	l.mu.Unlock()
	var errs []error
	for _, s := range dead {
		errs = append(errs, s.file().Close())
		remove = append(remove, s.meta.ID)
	}
	for _, id := range remove {
		errs = append(errs, l.fs.Remove(l.path(id)))
	}
	if len(remove) > 0 {
		errs = append(errs, l.fs.SyncDir(l.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("log: sweep %s: %w", l.dir, err)
	}
	return nil
}

// SegmentStat is a segment as metrics and the choice of what to merge see it.
type SegmentStat struct {
	SegmentMeta
	Runs      int   // that live
	LiveBytes int64 // of the batches in them, shared ones counted in each
	Missing   bool  // see Log.Missing
}

// Segments lists the segments, oldest content first.
func (l *Log) Segments() []SegmentStat {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]SegmentStat, len(l.segments))
	for i, s := range l.segments {
		out[i] = SegmentStat{s.meta, int(s.runs.Load()), s.live.Load(), s.file() == nil}
	}
	return out
}
