package vfs

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// dirtyPage is the unit in which unsynced bytes are kept.
const dirtyPage = 4096

// unsyncedNode is the content of a file: pages not yet synced over what the file
// system below holds.
type unsyncedNode struct {
	mu     sync.Mutex
	real   string           // its name below; guarded by Unsynced.mu
	size   int64            // as the process sees it
	stored int64            // size below
	cut    int64            // bytes below from here on are not the file's: zeros in their place
	pages  map[int64][]byte // by number, each whole
}

// truncate changes the size; n.mu is held.
func (n *unsyncedNode) truncate(size int64) {
	if size < n.size {
		n.cut = min(n.cut, size)
		for p, b := range n.pages {
			switch begin := p * dirtyPage; {
			case begin >= size:
				delete(n.pages, p)
			case begin+dirtyPage > size:
				clear(b[size-begin:])
			}
		}
	}
	n.size = size
}

// page returns a page to change; n.mu is held.
func (n *unsyncedNode) page(under File, p int64) ([]byte, error) {
	if b := n.pages[p]; b != nil {
		return b, nil
	}
	b := make([]byte, dirtyPage)
	if err := n.below(under, b, p*dirtyPage); err != nil {
		return nil, err
	}
	n.pages[p] = b
	return b, nil
}

// below reads what the file system has, and zeros where it has nothing.
func (n *unsyncedNode) below(under File, b []byte, off int64) error {
	if have := min(n.cut, n.stored) - off; have > 0 {
		got, err := under.ReadAt(b[:min(have, int64(len(b)))], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		b = b[got:]
	}
	clear(b)
	return nil
}

// flush writes the pages below and syncs; n.mu is held. Pages stay when it fails.
func (n *unsyncedNode) flush(under File) error {
	if n.cut < n.stored {
		if err := under.Truncate(n.cut); err != nil {
			return err
		}
		n.stored = n.cut
	}
	for _, p := range slices.Sorted(maps.Keys(n.pages)) {
		begin := p * dirtyPage
		b := n.pages[p][:min(dirtyPage, n.size-begin)]
		if _, err := under.WriteAt(b, begin); err != nil {
			return err
		}
		n.stored = max(n.stored, begin+int64(len(b)))
	}
	if n.stored != n.size {
		if err := under.Truncate(n.size); err != nil {
			return err
		}
	}
	n.stored, n.cut = n.size, n.size
	clear(n.pages)
	return under.Sync()
}

// unsyncedFile is one opening of a file.
type unsyncedFile struct {
	node     *unsyncedNode
	under    File
	name     string
	writable bool
	once     sync.Mutex
	closed   bool
}

// ReadAt implements [File].
func (f *unsyncedFile) ReadAt(b []byte, off int64) (int, error) {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	done := 0
	for done < len(b) && off < n.size {
		p, at := off/dirtyPage, off%dirtyPage
		piece := b[done : done+int(min(int64(len(b)-done), dirtyPage-at, n.size-off))]
		if page := n.pages[p]; page != nil {
			copy(piece, page[at:])
		} else if err := n.below(f.under, piece, off); err != nil {
			return done, err
		}
		done += len(piece)
		off += int64(len(piece))
	}
	if done < len(b) {
		return done, io.EOF
	}
	return done, nil
}

// WriteAt implements [File].
func (f *unsyncedFile) WriteAt(b []byte, off int64) (int, error) {
	return f.WritevAt([][]byte{b}, off)
}

// WritevAt implements [File].
func (f *unsyncedFile) WritevAt(bufs [][]byte, off int64) (done int, err error) {
	if !f.writable {
		return 0, errors.New("vfs: " + f.name + " is open for reading")
	}
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range bufs {
		for len(b) > 0 {
			page, err := n.page(f.under, off/dirtyPage)
			if err != nil {
				return done, err
			}
			wrote := copy(page[off%dirtyPage:], b)
			b, off, done = b[wrote:], off+int64(wrote), done+wrote
			n.size = max(n.size, off)
		}
	}
	return done, nil
}

// Sync implements [File].
func (f *unsyncedFile) Sync() error {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return f.node.flush(f.under)
}

// Truncate implements [File].
func (f *unsyncedFile) Truncate(size int64) error {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.truncate(size)
	return nil
}

// Preallocate implements [File]: the space is taken below at once, which promises
// more than it must.
func (f *unsyncedFile) Preallocate(size int64) error {
	n := f.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := f.under.Preallocate(size); err != nil {
		return err
	}
	n.stored = max(n.stored, size)
	n.size = max(n.size, size)
	return nil
}

// Size implements [File].
func (f *unsyncedFile) Size() (int64, error) {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return f.node.size, nil
}

// Close implements [File].
func (f *unsyncedFile) Close() error {
	f.once.Lock()
	defer f.once.Unlock()
	if f.closed {
		return ErrClosed
	}
	f.closed = true
	return f.under.Close()
}
