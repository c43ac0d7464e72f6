package vfs

import (
	"fmt"
	"io"
	"os"
)

// memNode is the content of one file. data may be shorter than size: what is
// missing reads as zero, so that preallocation costs no memory.
type memNode struct {
	data       []byte
	size       int64
	synced     []byte // as of the last Sync
	syncedSize int64
	pending    []nodeOp // since the last Sync, in order
}

// nodeOp is an unsynced write (data at off) or, with data nil, an unsynced
// change of the size to off.
type nodeOp struct {
	off  int64
	data []byte
}

// put writes p into a buffer with a zero tail, growing it as needed.
func put(buf []byte, p []byte, off int64) []byte {
	if need := off + int64(len(p)); need > int64(len(buf)) {
		buf = grow(buf, need)
	}
	copy(buf[off:], p)
	return buf
}

func grow(buf []byte, n int64) []byte {
	if n <= int64(cap(buf)) {
		old := len(buf)
		buf = buf[:n]
		clear(buf[old:])
		return buf
	}
	out := make([]byte, n, n+n/4)
	copy(out, buf)
	return out
}

func cut(buf []byte, size int64) []byte {
	if int64(len(buf)) > size {
		return buf[:size]
	}
	return buf
}

// crash returns the node as a power loss may leave it.
func (n *memNode) crash(keep func() bool) *memNode {
	data := append([]byte(nil), n.synced...)
	size := n.syncedSize
	for _, op := range n.pending {
		if op.data == nil {
			if keep() {
				data, size = cut(data, op.off), op.off
			}
			continue
		}
		for from := int64(0); from < int64(len(op.data)); {
			at := op.off + from
			to := min(int64(len(op.data)), from+sector-at%sector)
			if keep() {
				data = put(data, op.data[from:to], at)
				size = max(size, op.off+to)
			}
			from = to
		}
	}
	return &memNode{data: data, size: size, synced: append([]byte(nil), data...), syncedSize: size}
}

// resize changes the size with the lock held.
func (m *MemFS) resize(n *memNode, size int64) {
	if m.free >= 0 {
		m.free += n.size - size
	}
	n.data, n.size = cut(n.data, size), size
	n.pending = append(n.pending, nodeOp{off: size})
}

// reserve checks that n may become size bytes long.
func (m *MemFS) reserve(n *memNode, size int64) error {
	if more := size - n.size; m.free >= 0 && more > m.free {
		return ErrNoSpace
	}
	return nil
}

type memFile struct {
	fs       *MemFS
	node     *memNode
	name     string
	writable bool
	closed   bool
}

// begin takes the lock and checks that the file may be used.
func (f *memFile) begin(op string, write bool) error {
	f.fs.mu.Lock()
	switch {
	case f.closed:
		f.fs.mu.Unlock()
		return fmt.Errorf("%s %s: %w", op, f.name, ErrClosed)
	case write && !f.writable:
		f.fs.mu.Unlock()
		return &os.PathError{Op: op, Path: f.name, Err: os.ErrPermission}
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.begin("read", false); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("read %s: negative offset", f.name)
	}
	if off >= f.node.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), f.node.size-off))
	done := 0
	if off < int64(len(f.node.data)) {
		done = copy(p[:n], f.node.data[off:])
	}
	clear(p[done:n])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	return f.WritevAt([][]byte{p}, off)
}

func (f *memFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	if err := f.begin("write", true); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	if off < 0 {
		return 0, fmt.Errorf("write %s: negative offset", f.name)
	}
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if total == 0 {
		return 0, nil
	}
	end := off + int64(total)
	if err := f.fs.reserve(f.node, end); err != nil {
		return 0, fmt.Errorf("write %s: %w", f.name, err)
	}
	joined := make([]byte, 0, total)
	for _, b := range bufs {
		joined = append(joined, b...)
	}
	n := f.node
	n.data = put(n.data, joined, off)
	if end > n.size {
		if f.fs.free >= 0 {
			f.fs.free -= end - n.size
		}
		n.size = end
	}
	n.pending = append(n.pending, nodeOp{off: off, data: joined})
	return total, nil
}

func (f *memFile) Sync() error {
	if err := f.begin("sync", false); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	n := f.node
	for _, op := range n.pending {
		if op.data == nil {
			n.synced = cut(n.synced, op.off)
		} else {
			n.synced = put(n.synced, op.data, op.off)
		}
	}
	clear(n.pending)
	n.pending, n.syncedSize = n.pending[:0], n.size
	return nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.begin("truncate", true); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if err := f.fs.reserve(f.node, size); err != nil {
		return fmt.Errorf("truncate %s: %w", f.name, err)
	}
	f.fs.resize(f.node, size)
	return nil
}

func (f *memFile) Preallocate(size int64) error {
	if err := f.begin("preallocate", true); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	if size <= f.node.size {
		return nil
	}
	if err := f.fs.reserve(f.node, size); err != nil {
		return fmt.Errorf("preallocate %s: %w", f.name, err)
	}
	f.fs.resize(f.node, size)
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.begin("size", false); err != nil {
		return 0, err
	}
	defer f.fs.mu.Unlock()
	return f.node.size, nil
}

func (f *memFile) Close() error {
	if err := f.begin("close", false); err != nil {
		return err
	}
	defer f.fs.mu.Unlock()
	f.closed = true
	return nil
}
