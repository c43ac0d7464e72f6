package record

import "math/bits"

// Kafka's varints are zig-zag encoded, as in protocol buffers' sint types.

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// varintLen is the number of bytes that putVarint writes for v.
func varintLen(v int64) int { return (bits.Len64(zigzag(v)|1) + 6) / 7 }

// putVarint writes v at the start of b, which must have room, and returns the
// number of bytes written.
func putVarint(b []byte, v int64) int {
	u := zigzag(v)
	n := 0
	for u >= 0x80 {
		b[n] = byte(u) | 0x80
		u >>= 7
		n++
	}
	b[n] = byte(u)
	return n + 1
}

// varint reads a varint at pos and returns the position after it, or -1 when
// there is none. One and two bytes, nearly all of them, go the short way.
func varint(b []byte, pos int) (int64, int) {
	if uint(pos) >= uint(len(b)) {
		return 0, -1
	}
	u := uint64(b[pos])
	if u < 0x80 {
		return unzigzag(u), pos + 1
	}
	if pos++; pos < len(b) && b[pos] < 0x80 {
		return unzigzag(u&0x7f | uint64(b[pos])<<7), pos + 1
	}
	return longVarint(b, pos-1)
}

func longVarint(b []byte, pos int) (int64, int) {
	var u uint64
	for shift := uint(0); shift < 64; shift += 7 {
		if uint(pos) >= uint(len(b)) {
			return 0, -1
		}
		c := b[pos]
		pos++
		if shift == 63 && c > 1 {
			return 0, -1 // more than 64 bits
		}
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return unzigzag(u), pos
		}
	}
	return 0, -1
}
