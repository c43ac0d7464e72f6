package placement

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errFormat wraps every error of decoding an entry or a checkpoint.
var errFormat = errors.New("placement: bad format")

// decoder takes values from the front of b. The first failure sticks, and
// every value after it is zero. Slices it returns alias b.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errFormat, what)
		d.b = nil
	}
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("truncated")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("boolean")
	}
	return v == 1
}

func (d *decoder) uint64() uint64 {
	if len(d.b) < 8 {
		d.fail("truncated")
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail("truncated or oversized varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// offset reads a log offset.
func (d *decoder) offset() int64 {
	v := d.uvarint()
	if v > 1<<62 {
		d.fail("offset too high")
		return 0
	}
	return int64(v)
}

// int reads a number between 0 and limit.
func (d *decoder) int(limit int) int {
	v := d.uvarint()
	if v > uint64(limit) {
		d.fail(fmt.Sprintf("%d exceeds %d", v, limit))
		return 0
	}
	return int(v)
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail("truncated or oversized varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes reads a length and that many bytes.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail("truncated")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads how many items of at least size bytes each follow, and refuses
// what the input cannot hold.
func (d *decoder) count(size int) int { return d.int(len(d.b) / size) }

func appendBytes(dst, p []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(p)))
	return append(dst, p...)
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}
