// Package codec is the plain binary encoding of replicated metadata: unsigned
// varints, length-prefixed strings, single bytes. Appending never fails;
// reading checks every length against what is left before it allocates, and
// the first error sticks.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/trivium-mq/trivium/kernel"
)

// ErrCorrupt matches every error of a Reader.
var ErrCorrupt = errors.New("malformed encoding")

// AppendUint appends v as a varint.
func AppendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendInt appends v as a zigzag varint.
func AppendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// AppendString appends the length of s and s.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendFlags appends up to eight booleans as one byte, the first lowest.
func AppendFlags(b []byte, flags ...bool) []byte {
	var v byte
	for i, f := range flags {
		if f {
			v |= 1 << i
		}
	}
	return append(b, v)
}

// The tags of argument values.
const (
	tagNil = iota
	tagFalse
	tagTrue
	tagInt
	tagFloat
	tagString
	tagBytes
	tagRaw
)

// AppendArguments appends declaration arguments. Values of a type that
// kernel.Argument does not allow are written as nil.
func AppendArguments(b []byte, args []kernel.Argument) []byte {
	b = AppendUint(b, uint64(len(args)))
	for _, a := range args {
		b = AppendString(b, a.Name)
		switch v := a.Value.(type) {
		case bool:
			if v {
				b = append(b, tagTrue)
			} else {
				b = append(b, tagFalse)
			}
		case int64:
			b = AppendInt(append(b, tagInt), v)
		case float64:
			b = binary.LittleEndian.AppendUint64(append(b, tagFloat), math.Float64bits(v))
		case string:
			b = AppendString(append(b, tagString), v)
		case []byte:
			b = AppendString(append(b, tagBytes), string(v))
		case kernel.Raw:
			b = AppendString(append(b, tagRaw), string(v))
		default:
			b = append(b, tagNil)
		}
	}
	return b
}

// Reader reads what the Append functions wrote. Its zero value with B set is
// ready.
type Reader struct {
	B   []byte
	err error
}

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// Done returns the first error, or one if bytes are left over.
func (r *Reader) Done() error {
	if r.err == nil && len(r.B) > 0 {
		r.fail("bytes left over")
	}
	return r.err
}

func (r *Reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, what)
	}
	r.B = nil
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.B) == 0 {
		r.fail("it ends early")
		return 0
	}
	v := r.B[0]
	r.B = r.B[1:]
	return v
}

// Uint reads a varint.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Int reads a zigzag varint.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.fail("bad varint")
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Count reads a number of items, each of at least one byte.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.B)) {
		r.fail("count over what is left")
		return 0
	}
	return int(n)
}

// Bytes reads n bytes; they alias the input.
func (r *Reader) Bytes(n int) []byte {
	if n < 0 || n > len(r.B) {
		r.fail("it ends early")
		return nil
	}
	v := r.B[:n:n]
	r.B = r.B[n:]
	return v
}

// String reads a string.
func (r *Reader) String() string { return string(r.Bytes(r.Count())) }

// Flags reads one byte of booleans into the given variables.
func (r *Reader) Flags(to ...*bool) {
	v := r.Byte()
	for i, p := range to {
		*p = v&(1<<i) != 0
	}
}

// Arguments reads declaration arguments; none is nil.
func (r *Reader) Arguments() []kernel.Argument {
	n := r.Count()
	var args []kernel.Argument
	for range n {
		if r.err != nil {
			return nil
		}
		args = append(args, kernel.Argument{Name: r.String(), Value: r.value()})
	}
	return args
}

func (r *Reader) value() any {
	switch tag := r.Byte(); tag {
	case tagNil:
		return nil
	case tagFalse, tagTrue:
		return tag == tagTrue
	case tagInt:
		return r.Int()
	case tagFloat:
		b := r.Bytes(8)
		if b == nil {
			return nil
		}
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case tagString:
		return r.String()
	case tagBytes:
		return []byte(r.String())
	case tagRaw:
		return kernel.Raw(r.String())
	default:
		r.fail("unknown argument type")
		return nil
	}
}
