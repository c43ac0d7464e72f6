// Package checkpoint keeps the checkpoints of one Raft group: each file holds
// the complete state of a state machine as of one log index, behind the index,
// its term and the cluster configuration valid there.
//
// A file is written under a temporary name, synced, renamed, and its directory
// synced; so a checkpoint is there as a whole or not at all. The newest two are
// kept. A file that fails its checksum is set aside under the suffix
// ".damaged" and the one before it is used: whether the log still reaches back
// that far is for the caller to judge, who has the log.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	suffix        = ".ckpt"
	tmpSuffix     = ".tmp"
	damagedSuffix = ".damaged"

	// keep is how many checkpoints stay; the older one is the way back when
	// the newest turns out to be damaged.
	keep = 2
)

// Meta says what a checkpoint is a checkpoint of.
type Meta struct {
	Index              uint64 // last log entry whose effect is contained
	Term               uint64 // term of that entry
	Configuration      []byte // cluster configuration as of Index, encoded by its owner
	ConfigurationIndex uint64 // log index of that configuration
	Size               int64  // bytes of the payload; set by this package
}

// ID names the checkpoint within its store.
func (m Meta) ID() string { return fmt.Sprintf("%016x-%016x", m.Index, m.Term) }

// Store is the directory of one group's checkpoints. All methods may be called
// concurrently.
type Store struct {
	fs  vfs.FS
	dir string

	attached func(Meta, io.Reader) ([]string, error)

	mu     sync.Mutex
	files  []Meta // sorted, newest first
	pins   map[string]int
	tmp    int // counter for temporary names
	damage []error
}

// Open opens the store in dir, making the directory if need be, and removes
// what an interrupted write left. A file of an unknown version is an error
// matching ErrVersion; files with a damaged header are set aside (see
// [Store.Damage]).
func Open(fsys vfs.FS, dir string) (*Store, error) {
	s := &Store{fs: fsys, dir: dir, pins: map[string]int{}}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	names, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, tmpSuffix):
			if err := fsys.Remove(path.Join(dir, name)); err != nil {
				return nil, fmt.Errorf("checkpoint: %w", err)
			}
		case strings.HasSuffix(name, damagedSuffix):
			s.damage = append(s.damage, fmt.Errorf("checkpoint %s: %w", path.Join(dir, name), ErrCorrupt))
		case strings.HasSuffix(name, suffix):
			if err := s.adopt(name); err != nil {
				return nil, err
			}
		}
	}
	s.sort()
	return s, nil
}

// adopt adds a file found at Open to the list.
func (s *Store) adopt(name string) error {
	f, err := s.fs.Open(path.Join(s.dir, name))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	m, err := readMeta(f)
	err = errors.Join(err, f.Close())
	if err == nil && m.ID()+suffix != name {
		err = fmt.Errorf("%w: holds checkpoint %s", ErrCorrupt, m.ID())
	}
	if errors.Is(err, ErrCorrupt) {
		return s.setAside(name, err)
	}
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path.Join(s.dir, name), err)
	}
	s.files = append(s.files, m)
	return nil
}

// setAside renames a damaged file, so that nobody uses it and somebody can look
// at it.
func (s *Store) setAside(name string, cause error) error {
	full := path.Join(s.dir, name)
	if err := s.fs.Rename(full, full+damagedSuffix); err != nil {
		return fmt.Errorf("checkpoint: set aside: %w", err)
	}
	s.damage = append(s.damage, fmt.Errorf("checkpoint %s: %w", full, cause))
	return s.fs.SyncDir(s.dir)
}

func (s *Store) sort() {
	slices.SortFunc(s.files, func(a, b Meta) int { return strings.Compare(b.ID(), a.ID()) })
}

// List returns the checkpoints, newest first. The damage of a payload shows
// only when it is read.
func (s *Store) List() []Meta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.files)
}

// Damage returns an error for each file that is set aside, for the log and a
// metric. Somebody has to look at these files and remove them.
func (s *Store) Damage() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.damage)
}

// Latest verifies and opens the newest undamaged checkpoint; the damaged ones
// before it are set aside, so that List no longer shows them. The reader gives
// exactly Meta.Size bytes and must be closed. Without any checkpoint the error
// is ErrNone; when only damaged ones were there, it matches ErrCorrupt.
func (s *Store) Latest() (Meta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) > 0 {
		m := s.files[0]
		r, err := s.open(m)
		if err == nil {
			return m, r, nil
		}
		if !errors.Is(err, ErrCorrupt) {
			return Meta{}, nil, fmt.Errorf("checkpoint %s: %w", s.name(m), err)
		}
		s.files = s.files[1:]
		if err := s.setAside(m.ID()+suffix, err); err != nil {
			return Meta{}, nil, err
		}
	}
	if len(s.damage) > 0 {
		return Meta{}, nil, errors.Join(s.damage...)
	}
	return Meta{}, nil, ErrNone
}

// Read verifies and opens one checkpoint of List. The reader gives exactly
// Meta.Size bytes, also when the store removes the file meanwhile, and must be
// closed.
func (s *Store) Read(id string) (Meta, io.ReadCloser, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.files, func(m Meta) bool { return m.ID() == id })
	if i < 0 {
		s.mu.Unlock()
		return Meta{}, nil, fmt.Errorf("checkpoint %s: %w", id, fs.ErrNotExist)
	}
	m := s.files[i]
	release := s.pin(id)
	s.mu.Unlock()
	defer release()
	r, err := s.open(m)
	if err != nil {
		return m, nil, fmt.Errorf("checkpoint %s: %w", s.name(m), err)
	}
	return m, r, nil
}

// SetAside takes a checkpoint out that turned out to be of no use, as Latest does
// with a damaged one.
func (s *Store) SetAside(id string, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.files, func(m Meta) bool { return m.ID() == id })
	if i < 0 {
		return nil
	}
	s.files = slices.Delete(s.files, i, i+1)
	return s.setAside(id+suffix, cause)
}

func (s *Store) name(m Meta) string { return path.Join(s.dir, m.ID()+suffix) }

// open verifies the whole file and positions a reader at its payload.
func (s *Store) open(m Meta) (io.ReadCloser, error) {
	f, err := s.fs.Open(s.name(m))
	if err != nil {
		return nil, err
	}
	start := int64(headerSize + len(m.Configuration))
	if err := verify(f, start, m.Size); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &payload{SectionReader: io.NewSectionReader(f, start, m.Size), file: f}, nil
}

type payload struct {
	*io.SectionReader
	file vfs.File
}

func (p *payload) Close() error { return p.file.Close() }

// Pin keeps a checkpoint from being removed until release is called. Pinning
// one that is not there has no effect.
func (s *Store) Pin(id string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pin(id)
}

func (s *Store) pin(id string) (release func()) {
	s.pins[id]++
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.pins[id]--; s.pins[id] == 0 {
				delete(s.pins, id)
			}
		})
	}
}

// Write makes a checkpoint with the payload that fill writes. When it returns
// nil the checkpoint is durable and older ones beyond the newest two are gone,
// except pinned ones. After an error the store is as it was.
func (s *Store) Write(m Meta, fill func(io.Writer) error) error {
	w, err := s.Create(m)
	if err != nil {
		return err
	}
	if err := fill(w); err != nil {
		return errors.Join(fmt.Errorf("checkpoint %s: %w", m.ID(), err), w.Abort())
	}
	return w.Commit()
}

// commit puts a written file under its name and forgets older ones.
func (s *Store) commit(m Meta, tmp string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fs.Rename(tmp, s.name(m)); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	s.files = slices.DeleteFunc(s.files, func(o Meta) bool { return o.ID() == m.ID() })
	s.files = append(s.files, m)
	s.sort()
	s.prune()
	return nil
}

// prune removes all but the newest. A file that cannot be removed now is tried
// again next time; that is no reason to fail the checkpoint just made.
func (s *Store) prune() {
	kept := s.files[:0:0]
	for i, m := range s.files {
		if i < keep || s.pins[m.ID()] > 0 || s.fs.Remove(s.name(m)) != nil {
			kept = append(kept, m)
		}
	}
	s.files = kept
}
