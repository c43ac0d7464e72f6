package sharegroup

import (
	"encoding/binary"
	"fmt"
	"math"
)

// appendSpans encodes blocks of sorted, disjoint spans, n in all, that lie at
// or above base, as distances.
func appendSpans(dst []byte, base int64, n int, blocks ...[]Span) []byte {
	dst = binary.AppendUvarint(dst, uint64(n))
	for _, spans := range blocks {
		for _, sp := range spans {
			dst = binary.AppendUvarint(dst, uint64(sp.First-base))
			dst = binary.AppendUvarint(dst, uint64(sp.Last-sp.First))
			base = sp.Last + 1
		}
	}
	return dst
}

// appendFailed encodes counts sorted by offset, all at or above base.
func appendFailed(dst []byte, base int64, list []FailedCount) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, f := range list {
		dst = binary.AppendUvarint(dst, uint64(f.Offset-base))
		dst = binary.AppendUvarint(dst, uint64(f.Count))
		base = f.Offset + 1
	}
	return dst
}

// reader takes values from the front of b. The first failure sticks.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
	}
}

func (r *reader) byte() byte {
	if r.err != nil || len(r.b) == 0 {
		r.fail("truncated")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("truncated or oversized varint")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uvarint()
	if v > math.MaxUint32 {
		r.fail("value %d exceeds 32 bits", v)
		return 0
	}
	return uint32(v)
}

// offset reads a distance from base and returns the offset.
func (r *reader) offset(base int64) int64 {
	v := r.uvarint()
	if v > uint64(MaxOffset) || base+int64(v) > MaxOffset {
		r.fail("offset too high")
		return 0
	}
	return base + int64(v)
}

// length reads a count of items of at least two bytes each and refuses one that
// the input cannot hold.
func (r *reader) length() int {
	n := r.uvarint()
	if n > uint64(len(r.b)/2) {
		r.fail("%d items in %d bytes", n, len(r.b))
		return 0
	}
	return int(n)
}

func (r *reader) spans(dst []Span, base int64) []Span {
	for n := r.length(); n > 0 && r.err == nil; n-- {
		first := r.offset(base)
		last := r.offset(first)
		dst = append(dst, Span{first, last})
		base = last + 1
	}
	return dst
}

func (r *reader) failed(dst []FailedCount, base int64) []FailedCount {
	for n := r.length(); n > 0 && r.err == nil; n-- {
		f := FailedCount{Offset: r.offset(base)}
		count := r.uvarint()
		if count == 0 || count > math.MaxUint16 {
			r.fail("failed count %d", count)
		}
		f.Count = uint16(count)
		dst = append(dst, f)
		base = f.Offset + 1
	}
	return dst
}
