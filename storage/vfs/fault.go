package vfs

import (
	"fmt"
	"io"
	"path"
	"sync"
	"time"
)

// Op names a kind of operation for a [Rule].
type Op uint8

// The operations that a [Rule] can match.
const (
	OpAny Op = iota
	OpCreate
	OpOpen
	OpRead
	OpWrite // WriteAt and WritevAt
	OpSync
	OpTruncate
	OpPreallocate
	OpRemove
	OpRename
	OpList
	OpSyncDir
	OpMkdir
	OpLock
)

// Rule says which operations go wrong, and how.
type Rule struct {
	Op    Op     // OpAny matches every kind
	Name  string // pattern of path.Match on the base name; "" matches all
	After int    // matching operations to let pass first
	Times int    // how many then go wrong; 0 = all

	Err    error                    // returned; nil = the operation is done
	Short  int                      // OpWrite with Err: bytes written before it fails
	Delay  time.Duration            // waited before anything else
	Before func(op Op, name string) // called before anything else; may block
}

// Fault wraps a file system and breaks it by rules.
type Fault struct {
	fs FS

	mu    sync.Mutex
	rules []*armed
	full  bool // Free tells 0
}

type armed struct {
	Rule
	seen int
}

// NewFault returns fs with the given rules; more can be added later.
func NewFault(fs FS, rules ...Rule) *Fault {
	f := &Fault{fs: fs}
	for _, r := range rules {
		f.Add(r)
	}
	return f
}

// Add arms a further rule.
func (f *Fault) Add(r Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &armed{Rule: r})
}

// Clear removes all rules, and SetFull's effect.
func (f *Fault) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.full = nil, false
}

// SetFull makes [Fault.Free] tell 0 until Clear. That writes fail is for rules.
func (f *Fault) SetFull() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = true
}

// check counts the operation against every rule, runs the delays, and returns
// the error of the first rule that has one.
func (f *Fault) check(op Op, name string) (short int, err error) {
	f.mu.Lock()
	var hit []Rule
	for _, r := range f.rules {
		if r.Op != OpAny && r.Op != op {
			continue
		}
		if r.Name != "" {
			if ok, _ := path.Match(r.Name, path.Base(name)); !ok {
				continue
			}
		}
		r.seen++
		if r.seen > r.After && (r.Times == 0 || r.seen <= r.After+r.Times) {
			hit = append(hit, r.Rule)
		}
	}
	f.mu.Unlock()
	for _, r := range hit {
		if r.Before != nil {
			r.Before(op, name)
		}
		if r.Delay > 0 {
			time.Sleep(r.Delay)
		}
		if r.Err != nil && err == nil {
			err, short = fmt.Errorf("%s: %w", name, r.Err), r.Short
		}
	}
	return short, err
}

// Create implements [FS].
func (f *Fault) Create(name string) (File, error) { return f.open(OpCreate, name, f.fs.Create) }

// Open implements [FS].
func (f *Fault) Open(name string) (File, error) { return f.open(OpOpen, name, f.fs.Open) }

// OpenFile implements [FS].
func (f *Fault) OpenFile(name string) (File, error) { return f.open(OpOpen, name, f.fs.OpenFile) }

func (f *Fault) open(op Op, name string, open func(string) (File, error)) (File, error) {
	if _, err := f.check(op, name); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f, name: name}, nil
}

// Remove implements [FS].
func (f *Fault) Remove(name string) error {
	if _, err := f.check(OpRemove, name); err != nil {
		return err
	}
	return f.fs.Remove(name)
}

// Rename implements [FS]; rules match the new name.
func (f *Fault) Rename(from, to string) error {
	if _, err := f.check(OpRename, to); err != nil {
		return err
	}
	return f.fs.Rename(from, to)
}

// MkdirAll implements [FS].
func (f *Fault) MkdirAll(dir string) error {
	if _, err := f.check(OpMkdir, dir); err != nil {
		return err
	}
	return f.fs.MkdirAll(dir)
}

// List implements [FS].
func (f *Fault) List(dir string) ([]string, error) {
	if _, err := f.check(OpList, dir); err != nil {
		return nil, err
	}
	return f.fs.List(dir)
}

// Size implements [FS].
func (f *Fault) Size(name string) (int64, error) { return f.fs.Size(name) }

// Free implements [FS].
func (f *Fault) Free(dir string) (int64, error) {
	f.mu.Lock()
	full := f.full
	f.mu.Unlock()
	if full {
		return 0, nil
	}
	return f.fs.Free(dir)
}

// Capacity implements [FS].
func (f *Fault) Capacity(dir string) (int64, error) { return f.fs.Capacity(dir) }

// SyncDir implements [FS].
func (f *Fault) SyncDir(dir string) error {
	if _, err := f.check(OpSyncDir, dir); err != nil {
		return err
	}
	return f.fs.SyncDir(dir)
}

// Lock implements [FS].
func (f *Fault) Lock(name string) (io.Closer, error) {
	if _, err := f.check(OpLock, name); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

type faultFile struct {
	File
	fs   *Fault
	name string
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if _, err := f.fs.check(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WritevAt([][]byte{p}, off)
}

func (f *faultFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	short, err := f.fs.check(OpWrite, f.name)
	if err == nil {
		return f.File.WritevAt(bufs, off)
	}
	done := 0
	for _, b := range bufs {
		b = b[:min(len(b), short-done)]
		if len(b) == 0 {
			break
		}
		n, werr := f.File.WriteAt(b, off+int64(done))
		done += n
		if werr != nil {
			break
		}
	}
	return done, err
}

func (f *faultFile) Sync() error {
	if _, err := f.fs.check(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) Truncate(size int64) error {
	if _, err := f.fs.check(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Preallocate(size int64) error {
	if _, err := f.fs.check(OpPreallocate, f.name); err != nil {
		return err
	}
	return f.File.Preallocate(size)
}
