package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// scanWindow is the unit of sequential reads.
const scanWindow = 1 << 20

// scanner walks the frames of one file.
type scanner struct {
	file *file
	size int64
	off  int64 // of the frame that next reads
	at   int64 // file offset of buf[0]
	buf  []byte
}

func newScanner(f *file) (*scanner, error) {
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("wal: %s: %w", f.name, err)
	}
	return &scanner{file: f, size: size, off: fileHeaderSize}, nil
}

// window returns n bytes at off, valid until the next call; fewer only at the
// end of the file. n is bounded by the size of the file.
func (s *scanner) window(off, n int64) ([]byte, error) {
	n = max(0, min(n, s.size-off))
	if off >= s.at && off+n <= s.at+int64(len(s.buf)) {
		return s.buf[off-s.at:][:n], nil
	}
	want := min(max(n, scanWindow), s.size-off)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	s.buf = s.buf[:want]
	if k, err := s.file.ReadAt(s.buf, off); err != nil && (!errors.Is(err, io.EOF) || int64(k) < want) {
		s.buf = s.buf[:0]
		return nil, fmt.Errorf("wal: read %s: %w", s.file.name, err)
	}
	s.at = off
	return s.buf[:n], nil
}

// next returns the frame at off with its data, which is valid until the next
// call. ok is false where no valid frame begins.
func (s *scanner) next() (f frame, data []byte, off int64, ok bool, err error) {
	b, err := s.window(s.off, frameHeaderSize)
	if err != nil {
		return f, nil, 0, false, err
	}
	f, ok = getFrame(b, s.file.salt)
	if !ok || f.size() > s.size-s.off {
		return f, nil, s.off, false, nil
	}
	b, err = s.window(s.off, f.size())
	if err != nil {
		return f, nil, 0, false, err
	}
	body := b[frameHeaderSize:][:int64(f.length)+int64(f.ext)]
	if dataSum(body[:f.length], body[f.length:]) != f.dataSum {
		return f, nil, s.off, false, nil
	}
	off = s.off
	s.off += f.size()
	return f, body[:f.length], off, true, nil
}

// provenAfter looks behind a bad place for a frame which says that the place
// had been synced. It also tells whether anything but zeros follows.
func (s *scanner) provenAfter(bad int64) (proven, dirty bool, err error) {
	for from := bad; from < s.size; from += scanWindow {
		b, err := s.window(from, scanWindow)
		if err != nil {
			return false, false, err
		}
		proven, stained, err := s.search(b, from, bad)
		if err != nil || proven {
			return proven, true, err
		}
		dirty = dirty || stained
	}
	return false, dirty, nil
}

// search looks for such a frame in the bytes b at offset from.
func (s *scanner) search(b []byte, from, bad int64) (proven, dirty bool, err error) {
	for i := 0; i < len(b); i += frameAlign {
		word := b[i:min(len(b), i+frameAlign)]
		if isZeroWord(word) {
			continue // no checksum is zero twice
		}
		dirty = true
		head := b[i:]
		if len(head) < frameHeaderSize {
			// It goes on in the next window; a new buffer leaves b alone.
			rest := scanner{file: s.file, size: min(s.size, from+int64(i)+frameHeaderSize)}
			if head, err = rest.window(from+int64(i), frameHeaderSize); err != nil {
				return false, true, err
			}
		}
		if f, ok := getFrame(head, s.file.salt); ok && int64(f.durable) > bad {
			return true, true, nil
		}
	}
	return false, dirty, nil
}

func isZeroWord(b []byte) bool {
	if len(b) == frameAlign {
		return binary.LittleEndian.Uint64(b) == 0
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
