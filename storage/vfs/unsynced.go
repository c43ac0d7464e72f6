package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
)

// unlinked begins the names of files whose own names are not durable yet.
const unlinked = ".unsynced-"

// Unsynced wraps a file system so that a kill of the process is a power loss: it
// keeps in memory what the rules of this package do not promise to be durable,
// so written bytes reach fs with [File.Sync] and names with [FS.SyncDir], and
// the rest is gone with the process. For builds that tests kill; it is slow.
//
// A file whose name is not durable is in its directory under a name that List
// does not tell and a later process deletes.
type Unsynced struct {
	fs FS

	mu      sync.Mutex
	names   map[string]*unsyncedNode // what a running process sees, where it has looked
	gone    map[string]bool          // names that are on disk, but not for the process
	pending []link                   // changes of names, in order
	cleaned map[string]bool          // directories without files of a former process
	next    int
}

// link is a name that waits for SyncDir: of a node, or (nil) of nothing any more.
type link struct {
	name string
	node *unsyncedNode
}

// NewUnsynced returns fs behind a cache that is lost with the process.
func NewUnsynced(fs FS) *Unsynced {
	return &Unsynced{fs: fs, names: map[string]*unsyncedNode{}, gone: map[string]bool{}, cleaned: map[string]bool{}}
}

// lookup returns the node of a name; u.mu is held.
func (u *Unsynced) lookup(name string) (*unsyncedNode, error) {
	if n := u.names[name]; n != nil {
		return n, nil
	}
	if u.gone[name] {
		return nil, notExist("open", name)
	}
	size, err := u.fs.Size(name)
	if err != nil {
		return nil, err
	}
	n := &unsyncedNode{real: name, size: size, stored: size, cut: size, pages: map[int64][]byte{}}
	u.names[name] = n
	return n, nil
}

// Create implements [FS].
func (u *Unsynced) Create(name string) (File, error) {
	name = path.Clean(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := u.lookup(name)
	if err == nil {
		n.mu.Lock()
		n.truncate(0)
		n.mu.Unlock()
		return u.open(n, name, true)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	u.next++
	n = &unsyncedNode{real: path.Join(path.Dir(name), fmt.Sprintf("%s%d", unlinked, u.next)), pages: map[int64][]byte{}}
	file, err := u.fs.Create(n.real)
	if err != nil {
		return nil, err
	}
	u.names[name] = n
	u.pending = append(u.pending, link{name, n})
	return &unsyncedFile{node: n, under: file, name: name, writable: true}, nil
}

// Open implements [FS].
func (u *Unsynced) Open(name string) (File, error) { return u.openName(name, false) }

// OpenFile implements [FS].
func (u *Unsynced) OpenFile(name string) (File, error) { return u.openName(name, true) }

func (u *Unsynced) openName(name string, writable bool) (File, error) {
	name = path.Clean(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := u.lookup(name)
	if err != nil {
		return nil, err
	}
	return u.open(n, name, writable)
}

func (u *Unsynced) open(n *unsyncedNode, name string, writable bool) (File, error) {
	open := u.fs.Open
	if writable {
		open = u.fs.OpenFile
	}
	file, err := open(n.real)
	if err != nil {
		return nil, err
	}
	return &unsyncedFile{node: n, under: file, name: name, writable: writable}, nil
}

// Remove implements [FS].
func (u *Unsynced) Remove(name string) error {
	name = path.Clean(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, err := u.fs.List(name); err == nil && u.names[name] == nil {
		if err := u.settle(name); err != nil {
			return err
		}
		return u.fs.Remove(name)
	}
	if _, err := u.lookup(name); err != nil {
		return err
	}
	delete(u.names, name)
	u.gone[name] = true
	u.pending = append(u.pending, link{name: name})
	return nil
}

// Rename implements [FS].
func (u *Unsynced) Rename(from, to string) error {
	from, to = path.Clean(from), path.Clean(to)
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := u.lookup(from)
	if err != nil || from == to {
		return err
	}
	delete(u.names, from)
	u.gone[from] = true
	u.names[to] = n
	u.pending = append(u.pending, link{to, n})
	return nil
}

// SyncDir implements [FS].
func (u *Unsynced) SyncDir(dir string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.settle(path.Clean(dir)); err != nil {
		return err
	}
	return u.fs.SyncDir(dir)
}

// settle does what is pending in a directory; u.mu is held.
func (u *Unsynced) settle(dir string) error {
	rest := u.pending[:0:0]
	for i, l := range u.pending {
		if path.Dir(l.name) != dir {
			rest = append(rest, l)
			continue
		}
		if err := u.apply(l); err != nil {
			u.pending = append(rest, u.pending[i:]...)
			return err
		}
	}
	u.pending = rest
	return nil
}

func (u *Unsynced) apply(l link) error {
	if l.node != nil {
		if err := u.fs.Rename(l.node.real, l.name); err != nil {
			return err
		}
		delete(u.gone, l.node.real) // nothing is there any more
		l.node.real = l.name
		if u.names[l.name] == l.node {
			delete(u.gone, l.name)
		}
		return nil
	}
	if u.names[l.name] == nil {
		delete(u.gone, l.name)
	}
	if err := u.fs.Remove(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // a name that never got to the disk is not there
	}
	return nil
}

// List implements [FS].
func (u *Unsynced) List(dir string) ([]string, error) {
	dir = path.Clean(dir)
	u.mu.Lock()
	defer u.mu.Unlock()
	stored, err := u.fs.List(dir)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, base := range stored {
		name := path.Join(dir, base)
		switch {
		case strings.HasPrefix(base, unlinked):
			if !u.cleaned[dir] && !u.mine(name) {
				_ = u.fs.Remove(name) // of a former process
			}
		case !u.gone[name]:
			seen[base] = true
		}
	}
	u.cleaned[dir] = true
	for name := range u.names {
		if path.Dir(name) == dir {
			seen[path.Base(name)] = true
		}
	}
	out := make([]string, 0, len(seen))
	for base := range seen {
		out = append(out, base)
	}
	slices.Sort(out)
	return out, nil
}

// mine reports whether a hidden file is this process's; u.mu is held.
func (u *Unsynced) mine(real string) bool {
	for _, n := range u.names {
		if n.real == real {
			return true
		}
	}
	return slices.ContainsFunc(u.pending, func(l link) bool { return l.node != nil && l.node.real == real })
}

// Size implements [FS].
func (u *Unsynced) Size(name string) (int64, error) {
	name = path.Clean(name)
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.names[name]; n != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.size, nil
	}
	if u.gone[name] {
		return 0, notExist("size", name)
	}
	return u.fs.Size(name)
}

// MkdirAll implements [FS].
func (u *Unsynced) MkdirAll(dir string) error { return u.fs.MkdirAll(dir) }

// Free implements [FS].
func (u *Unsynced) Free(dir string) (int64, error) { return u.fs.Free(dir) }

// Capacity implements [FS].
func (u *Unsynced) Capacity(dir string) (int64, error) { return u.fs.Capacity(dir) }

// Lock implements [FS].
func (u *Unsynced) Lock(name string) (io.Closer, error) { return u.fs.Lock(name) }
