package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// fetchSync is how much of a fetched file is written before it is synced: all at the
// end would hold up the syncs of others.
const fetchSync = 4 << 20

// Fetch gathers the file of a segment that another node sends. What has come stays
// when it is broken off, also over a restart, and the next Fetch goes on with it. It
// is for one goroutine.
type Fetch struct {
	log    *Log
	meta   SegmentMeta
	name   string
	file   vfs.File
	at     int64
	behind int // written and not synced
}

// Fetch begins, or goes on with, the fetching of a segment that the log knows: one
// that is missing, or whose file is damaged. The error matches fs.ErrNotExist if it
// is not known any more.
func (l *Log) Fetch(id uint64) (*Fetch, error) {
	s, _ := l.wanted(id)
	if s == nil {
		return nil, fmt.Errorf("log: fetch segment %x: %w", id, fs.ErrNotExist)
	}
	f := &Fetch{log: l, meta: s.meta, name: l.path(id) + partSuffix[len(suffix):]}
	file, err := l.fs.OpenFile(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = l.fs.Create(f.name)
	}
	if err != nil {
		return nil, fmt.Errorf("log: fetch: %w", err)
	}
	f.file = file
	if f.at, err = file.Size(); err == nil && f.at > f.meta.Size {
		f.at, err = 0, file.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("log: fetch %s: %w", f.name, err), file.Close())
	}
	return f, nil
}

// wanted returns a segment that the log knows, and whether its file is missing.
func (l *Log) wanted(id uint64) (s *segmentFile, missing bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s = l.missing[id]; s != nil {
		return s, true
	}
	if i := slices.IndexFunc(l.segments, func(s *segmentFile) bool { return s.meta.ID == id }); i >= 0 {
		return l.segments[i], false
	}
	return nil, false
}

// wants tells whether a file of that name is missing.
func (l *Log) wants(name string) bool {
	for id := range l.missing {
		if SegmentName(id) == name {
			return true
		}
	}
	return false
}

// Offset is where the bytes that are to come begin, Size where the last one ends.
func (f *Fetch) Offset() int64 { return f.at }

// Size is the size of the whole file.
func (f *Fetch) Size() int64 { return f.meta.Size }

// Write adds bytes. More than the segment has are an error that matches ErrDamaged.
func (f *Fetch) Write(b []byte) (int, error) {
	if int64(len(b)) > f.meta.Size-f.at {
		return 0, fmt.Errorf("log: fetch %s: %w: more than %d bytes", f.name, ErrDamaged, f.meta.Size)
	}
	n, err := f.file.WriteAt(b, f.at)
	f.at += int64(n)
	if f.behind += n; err == nil && f.behind >= fetchSync {
		f.behind = 0
		err = f.file.Sync()
	}
	if err != nil {
		return n, fmt.Errorf("log: fetch: %w", err)
	}
	return n, nil
}

// Finish checks what has come against the manifest, and puts the file in its place
// for Adopt. An error that matches ErrDamaged says that what has come was not what
// the manifest names: it is gone, and the next Fetch begins anew.
func (f *Fetch) Finish() error {
	err := f.file.Sync()
	if err = errors.Join(err, f.file.Close()); err != nil {
		return fmt.Errorf("log: fetch %s: %w", f.name, err)
	}
	l := f.log
	if err := f.check(); err != nil {
		if errors.Is(err, ErrDamaged) || errors.Is(err, segment.ErrVersion) {
			err = errors.Join(ErrDamaged, err, l.fs.Remove(f.name))
		}
		return fmt.Errorf("log: fetch: %w", err)
	}
	if err := l.fs.Rename(f.name, l.path(f.meta.ID)); err != nil {
		return fmt.Errorf("log: fetch: %w", err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return fmt.Errorf("log: fetch: %w", err)
	}
	return nil
}

func (f *Fetch) check() error {
	file, err := segment.Open(f.log.fs, f.name)
	if err != nil {
		return err
	}
	if err = f.meta.match(file); err == nil {
		err = file.Verify()
	}
	return errors.Join(err, file.Close())
}

// match returns an error unless the file is the segment.
func (m *SegmentMeta) match(file *segment.File) error {
	if file.ID() != m.ID || file.Size() != m.Size || file.Checksum() != m.Checksum {
		return fmt.Errorf("%w: %s is not the segment that the manifest names", ErrDamaged, file.Name())
	}
	return nil
}

// Stop breaks it off. What has come stays.
func (f *Fetch) Stop() error {
	if err := f.file.Close(); err != nil {
		return fmt.Errorf("log: fetch %s: %w", f.name, err)
	}
	return nil
}

// exchange takes another file, of the same content, for a segment that has one.
// Readers of the old one get vfs.ErrClosed and look again.
func (l *Log) exchange(s *segmentFile) error {
	file, err := segment.Open(l.fs, l.path(s.meta.ID))
	if err != nil {
		return fmt.Errorf("log: adopt: %w", err)
	}
	if err := s.meta.match(file); err != nil {
		return errors.Join(fmt.Errorf("log: adopt: %w", err), file.Close())
	}
	file.TakeRuns()
	l.mu.Lock()
	if !slices.Contains(l.segments, s) { // swept meanwhile
		l.mu.Unlock()
		return errors.Join(fmt.Errorf("log: adopt segment %x: %w", s.meta.ID, fs.ErrNotExist), file.Close(), l.fs.Remove(l.path(s.meta.ID)))
	}
	old := s.open.Swap(file)
	l.mu.Unlock()
	if err := old.Close(); err != nil {
		return fmt.Errorf("log: adopt: %w", err)
	}
	return nil
}
