package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand"
	"path"
	"slices"
	"strings"
	"sync"
)

// sector is the unit in which an unsynced write survives a power loss or not.
const sector = 512

// MemFS is a file system in memory. It remembers what has been synced and what
// has not, so that [MemFS.CrashClone] can tell what a power loss leaves.
//
// One mutex guards everything: the same calls in the same order give the same
// state, which deterministic tests build on.
type MemFS struct {
	mu      sync.Mutex
	dirs    map[string]bool
	names   map[string]*memNode // what a running process sees
	durable map[string]*memNode // what SyncDir has made safe
	pending []dirOp             // in order, not yet synced
	locks   map[string]bool
	free    int64 // bytes that may still be allocated; < 0: no limit
}

// dirOp is one change of a directory that waits for SyncDir.
type dirOp struct {
	dir      string
	set, del string   // names to point at node / to drop; "" = none
	node     *memNode // for set
}

// NewMem returns an empty file system with a root directory.
func NewMem() *MemFS {
	return &MemFS{
		dirs:    map[string]bool{".": true, "/": true},
		names:   map[string]*memNode{},
		durable: map[string]*memNode{},
		locks:   map[string]bool{},
		free:    -1,
	}
}

// SetFree limits the bytes that files may still grow by; a negative n lifts
// the limit. Growth beyond it fails with ErrNoSpace.
func (m *MemFS) SetFree(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free = n
}

func notExist(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Create implements [FS].
func (m *MemFS) Create(name string) (File, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[path.Dir(name)] {
		return nil, notExist("create", name)
	}
	node := m.names[name]
	if node == nil {
		node = &memNode{}
		m.names[name] = node
		m.pending = append(m.pending, dirOp{dir: path.Dir(name), set: name, node: node})
	} else {
		m.resize(node, 0)
	}
	return &memFile{fs: m, node: node, name: name, writable: true}, nil
}

// Open implements [FS].
func (m *MemFS) Open(name string) (File, error) { return m.open(name, false) }

// OpenFile implements [FS].
func (m *MemFS) OpenFile(name string) (File, error) { return m.open(name, true) }

func (m *MemFS) open(name string, writable bool) (File, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.names[name]
	if node == nil {
		return nil, notExist("open", name)
	}
	return &memFile{fs: m, node: node, name: name, writable: writable}, nil
}

// Remove implements [FS].
func (m *MemFS) Remove(name string) error {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.names[name]
	if node == nil {
		return m.removeDir(name)
	}
	delete(m.names, name)
	m.pending = append(m.pending, dirOp{dir: path.Dir(name), del: name})
	if m.free >= 0 {
		m.free += node.size
	}
	return nil
}

func (m *MemFS) removeDir(name string) error {
	if !m.dirs[name] {
		return notExist("remove", name)
	}
	for other := range m.names {
		if path.Dir(other) == name {
			return fmt.Errorf("remove %s: directory not empty", name)
		}
	}
	for other := range m.dirs {
		if other != name && path.Dir(other) == name {
			return fmt.Errorf("remove %s: directory not empty", name)
		}
	}
	delete(m.dirs, name)
	return nil
}

// Rename implements [FS].
func (m *MemFS) Rename(from, to string) error {
	from, to = path.Clean(from), path.Clean(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.names[from]
	if node == nil || !m.dirs[path.Dir(to)] {
		return notExist("rename", from)
	}
	if from == to {
		return nil
	}
	delete(m.names, from)
	m.names[to] = node
	if path.Dir(from) == path.Dir(to) {
		m.pending = append(m.pending, dirOp{dir: path.Dir(to), set: to, node: node, del: from})
		return nil
	}
	// Each directory is synced by itself: either half may get lost.
	m.pending = append(m.pending,
		dirOp{dir: path.Dir(to), set: to, node: node},
		dirOp{dir: path.Dir(from), del: from})
	return nil
}

// MkdirAll implements [FS].
func (m *MemFS) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := path.Clean(dir); !m.dirs[d]; d = path.Dir(d) {
		if m.names[d] != nil {
			return fmt.Errorf("vfs: %s is not a directory", d)
		}
		m.dirs[d] = true
	}
	return nil
}

// List implements [FS].
func (m *MemFS) List(dir string) ([]string, error) {
	dir = path.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return nil, notExist("list", dir)
	}
	var out []string
	for name := range m.names {
		if path.Dir(name) == dir {
			out = append(out, path.Base(name))
		}
	}
	for name := range m.dirs {
		if name != dir && path.Dir(name) == dir {
			out = append(out, path.Base(name))
		}
	}
	slices.Sort(out)
	return out, nil
}

// Size implements [FS].
func (m *MemFS) Size(name string) (int64, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.names[name]
	if node == nil {
		return 0, notExist("size", name)
	}
	return node.size, nil
}

// Capacity implements [FS]: nobody knows.
func (m *MemFS) Capacity(string) (int64, error) { return math.MaxInt64, nil }

// Free implements [FS].
func (m *MemFS) Free(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free < 0 {
		return math.MaxInt64, nil
	}
	return m.free, nil
}

// SyncDir implements [FS].
func (m *MemFS) SyncDir(dir string) error {
	dir = path.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dirs[dir] {
		return notExist("syncdir", dir)
	}
	rest := m.pending[:0]
	for _, op := range m.pending {
		if op.dir == dir {
			op.apply(m.durable)
		} else {
			rest = append(rest, op)
		}
	}
	clear(m.pending[len(rest):])
	m.pending = rest
	return nil
}

func (op dirOp) apply(names map[string]*memNode) {
	if op.del != "" {
		delete(names, op.del)
	}
	if op.set != "" {
		names[op.set] = op.node
	}
}

// Lock implements [FS]. Locks do not survive a CrashClone.
func (m *MemFS) Lock(name string) (io.Closer, error) {
	name = path.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	m.locks[name] = true
	return &memLock{fs: m, name: name}, nil
}

type memLock struct {
	fs   *MemFS
	name string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.fs.mu.Lock()
		defer l.fs.mu.Unlock()
		delete(l.fs.locks, l.name)
	})
	return nil
}

// CrashClone returns what a power loss at this moment could leave on the disk,
// as a new file system on which everything is durable; m itself goes on
// unharmed. What was synced is there. Each sector of an unsynced write, each
// unsynced truncation and each unsynced directory change is kept or dropped as
// rng decides, independently of one another; a nil rng drops them all.
func (m *MemFS) CrashClone(rng *rand.Rand) *MemFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := func() bool { return rng != nil && rng.Intn(2) == 0 }

	survivors := map[string]*memNode{}
	for name, node := range m.durable {
		survivors[name] = node
	}
	for _, op := range m.pending {
		if keep() {
			op.apply(survivors)
		}
	}

	out := NewMem()
	for dir := range m.dirs {
		out.dirs[dir] = true
	}
	// In the order of names, so that one seed gives one outcome.
	names := make([]string, 0, len(survivors))
	for name := range survivors {
		names = append(names, name)
	}
	slices.Sort(names)
	copies := map[*memNode]*memNode{}
	for _, name := range names {
		node := survivors[name]
		if copies[node] == nil {
			copies[node] = node.crash(keep)
		}
		out.names[name] = copies[node]
		out.durable[name] = copies[node]
	}
	return out
}

// String lists the files with their sizes, for failure messages.
func (m *MemFS) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := make([]string, 0, len(m.names))
	for name, node := range m.names {
		lines = append(lines, fmt.Sprintf("%s %d (synced %d)", name, node.size, node.syncedSize))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
