package wire

import "io"

// Sizes of a Reader's buffer in bytes.
const (
	readerSmall = 4 << 10  // of a quiet connection
	readerLarge = 64 << 10 // of a busy one; larger only while one packet needs it

	calmFills = 32 // fills with little in them before the buffer shrinks
)

// Reader cuts a byte stream into packets in place. What Take returns aliases
// its buffer and is valid until the next Fill. A length that a peer announces
// is checked against the limit before anything is allocated, and the buffer
// grows only as bytes arrive. A Reader is for one goroutine.
type Reader struct {
	src   io.Reader
	buf   []byte
	r, w  int
	limit int
	need  int // size of the packet that begins at r, once its header is there
	calm  int

	// Grow, if it is set, is asked before the buffer grows beyond 64 KiB by so many
	// bytes, and told with a negative number that it shrinks to that again. It may
	// wait. false ends the reading with an *Error.
	Grow  func(n int) bool
	grown int // what Grow has granted
}

// NewReader returns a reader of packets of at most limit bytes, fixed header
// included.
func NewReader(src io.Reader, limit int) *Reader {
	return &Reader{src: src, limit: limit, buf: make([]byte, readerSmall)}
}

// SetLimit changes the largest packet accepted from the next one on.
func (r *Reader) SetLimit(limit int) { r.limit = limit }

// Take returns the next packet that is in the buffer whole: its first byte and
// what follows the fixed header. ok is false when more bytes are needed. The
// error is an *Error; the stream has then lost its rhythm.
func (r *Reader) Take() (first byte, body []byte, ok bool, err error) {
	b := r.buf[r.r:r.w]
	if len(b) < 2 {
		r.need = 2
		return 0, nil, false, nil
	}
	size, n, err := varint(b[1:])
	if err != nil {
		return 0, nil, false, err
	}
	if n == 0 {
		r.need = len(b) + 1
		return 0, nil, false, nil
	}
	total := 1 + n + size
	if total > r.limit {
		return 0, nil, false, &Error{PacketTooLarge, "packet larger than the maximum packet size"}
	}
	if total > len(b) {
		r.need = total
		return 0, nil, false, nil
	}
	r.r += total
	return b[0], b[1+n : total : total], true, nil
}

// First returns the first byte of the next packet, if it has come.
func (r *Reader) First() (first byte, ok bool) {
	if r.r == r.w {
		return 0, false
	}
	return r.buf[r.r], true
}

// Buffered is how many bytes have come that Take has not returned.
func (r *Reader) Buffered() int { return r.w - r.r }

// Pull takes packets without a body that begin with a byte out of the buffer, wherever
// they are in it whole, and returns how many. The others stay in their order. What Take
// has returned is not valid any more.
func (r *Reader) Pull(first byte) (n int) {
	to, at := r.r, r.r
	for at < r.w {
		b := r.buf[at:r.w]
		size, k, err := varint(b[1:])
		total := 1 + k + size
		if err != nil || k == 0 || total > len(b) {
			break
		}
		if at += total; b[0] == first && size == 0 {
			n++
			continue
		}
		to += copy(r.buf[to:], b[:total])
	}
	r.w = to + copy(r.buf[to:], r.buf[at:r.w])
	return n
}

// Fill reads once from the source and returns how many bytes came. Errors are
// those of the source.
func (r *Reader) Fill() (int, error) {
	if !r.makeRoom() {
		return 0, &Error{QuotaExceeded, "too many bytes of packets that are not whole yet on this node"}
	}
	n, err := r.src.Read(r.buf[r.w:])
	r.w += n
	if n > 0 {
		return n, nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return 0, err
}

// Release gives back what Grow has granted: nothing is read any more.
func (r *Reader) Release() { r.account(0) }

// account asks Grow for a buffer of size bytes.
func (r *Reader) account(size int) bool {
	n := max(0, size-readerLarge) - r.grown
	if r.Grow == nil || n == 0 {
		return true
	}
	if !r.Grow(n) {
		return false
	}
	r.grown += n
	return true
}

// makeRoom moves what is left to the front and fits the buffer to the load. false:
// Grow does not grant it.
func (r *Reader) makeRoom() bool {
	left := r.w - r.r
	full := r.w == len(r.buf)
	if r.w < len(r.buf)/8 {
		r.calm++
	} else {
		r.calm = 0
	}
	size := len(r.buf)
	switch {
	case left == 0 && size > readerLarge:
		size = readerLarge
	case left == 0 && size > readerSmall && r.calm >= calmFills:
		size = readerSmall
	case full && size < readerLarge:
		size *= 2
	case full && left == size: // one packet larger than the buffer: double as it arrives
		size = min(2*size, max(r.need, size+1))
	}
	if size != len(r.buf) {
		if !r.account(size) {
			return false
		}
		grown := make([]byte, size)
		copy(grown, r.buf[r.r:r.w])
		r.buf, r.r, r.w, r.calm = grown, 0, left, 0
		return true
	}
	if r.r > 0 {
		copy(r.buf, r.buf[r.r:r.w])
		r.r, r.w = 0, left
	}
	return true
}

// varint reads a variable byte integer (1.5.5): its value and length, length 0
// when more bytes are needed. Longer than four bytes or not minimal is an
// error.
func varint(b []byte) (v, n int, err error) {
	for i := 0; i < len(b) && i < 4; i++ {
		v |= int(b[i]&0x7F) << (7 * i)
		if b[i] < 0x80 {
			if i > 0 && b[i] == 0 {
				return 0, 0, malformed("variable byte integer is not minimal")
			}
			return v, i + 1, nil
		}
	}
	if len(b) >= 4 {
		return 0, 0, malformed("variable byte integer longer than four bytes")
	}
	return 0, 0, nil
}

// AppendVarint appends v, at most 268,435,455, as a variable byte integer.
func AppendVarint(dst []byte, v int) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

// varintLen is the encoded size of v.
func varintLen(v int) int {
	switch {
	case v < 1<<7:
		return 1
	case v < 1<<14:
		return 2
	case v < 1<<21:
		return 3
	}
	return 4
}
