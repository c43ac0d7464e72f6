package keyfile

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Reader reads the entries of one file, from front to back. It holds a block of
// it in memory.
type Reader struct {
	meta Meta
	name string
	file io.Closer // nil: the bytes come from elsewhere
	r    *bufio.Reader
	buf  []byte
	size int64 // read
	sum  uint32

	block        []byte // entries not yet returned
	last         []byte // key returned last
	count, bytes uint64
	begun        bool
}

// Open begins to read a file in dir. One that is missing is damage. Close is to be
// called.
func Open(fsys vfs.FS, dir string, m Meta) (*Reader, error) {
	name := path.Join(dir, m.Name())
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("keyfile: %w", err)
	}
	size, err := f.Size()
	if err == nil && size != m.Size {
		err = fmt.Errorf("%w: %d bytes, not %d", ErrDamaged, size, m.Size)
	}
	if err != nil {
		return nil, fmt.Errorf("keyfile %s: %w", name, errors.Join(err, f.Close()))
	}
	r := NewReader(io.NewSectionReader(f, 0, size), m)
	r.name, r.file = name, f
	return r, nil
}

// NewReader begins to read the file that m names from r, of which it takes exactly
// m.Size bytes if it is read to its end.
func NewReader(r io.Reader, m Meta) *Reader {
	return &Reader{meta: m, name: m.Name(), r: bufio.NewReaderSize(io.LimitReader(r, m.Size), blockBytes)}
}

// Close closes the file.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Next returns the next entry; ok is false at the end, when the file as a whole has
// been checked. Its slices are valid until the next call. Keys come in ascending
// order. Entries before damaged ones have been returned when the error, which
// matches ErrDamaged, comes: the caller then has nothing.
func (r *Reader) Next() (e Entry, ok bool, err error) {
	if e, ok, err = r.next(); err != nil {
		err = fmt.Errorf("keyfile %s: %w", r.name, err)
	}
	return e, ok, err
}

func (r *Reader) next() (e Entry, ok bool, err error) {
	if !r.begun {
		r.begun = true
		head, err := r.take(headerSize)
		if err == nil {
			err = r.meta.checkHeader(head)
		}
		if err != nil {
			return e, false, err
		}
	}
	if len(r.block) == 0 {
		if more, err := r.nextBlock(); err != nil || !more {
			return e, false, err
		}
	}
	if e, r.block, err = takeEntry(r.block); err != nil {
		return e, false, err
	}
	if r.count > 0 && bytes.Compare(e.Key, r.last) <= 0 {
		return e, false, fmt.Errorf("%w: keys are not in order", ErrDamaged)
	}
	r.last = append(r.last[:0], e.Key...)
	r.count++
	return e, true, nil
}

// nextBlock reads the next block and checks it; more is false after the last one.
func (r *Reader) nextBlock() (more bool, err error) {
	head, err := r.take(blockHead)
	if err != nil {
		return false, err
	}
	n, sum := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	if n == 0 {
		return false, r.end()
	}
	if int64(n) > maxBlock || int64(n) > r.meta.Size-r.size {
		return false, fmt.Errorf("%w: a block of %d bytes", ErrDamaged, n)
	}
	block, err := r.take(int(n))
	if err != nil {
		return false, err
	}
	if crc32.Checksum(block, castagnoli) != sum {
		return false, fmt.Errorf("%w: checksum of a block", ErrDamaged)
	}
	r.bytes += uint64(n)
	r.block = block
	return true, nil
}

func (r *Reader) end() error {
	foot, err := r.take(footerSize)
	switch {
	case err != nil:
		return err
	case string(foot) != string(encodeFooter(r.count, r.bytes)):
		return fmt.Errorf("%w: footer", ErrDamaged)
	case r.size != r.meta.Size || r.sum != r.meta.Sum:
		return fmt.Errorf("%w: another file than the checkpoint names", ErrDamaged)
	}
	return nil
}

// take reads n bytes, which are valid until the next call.
func (r *Reader) take(n int) ([]byte, error) {
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	b := r.buf[:n]
	if _, err := io.ReadFull(r.r, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: cut off", ErrDamaged)
	} else if err != nil {
		return nil, err
	}
	r.size += int64(n)
	r.sum = crc32.Update(r.sum, castagnoli, b)
	return b, nil
}
