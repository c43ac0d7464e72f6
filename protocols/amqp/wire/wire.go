// Package wire is the pure codec of AMQP 0-9-1 in RabbitMQ's dialect: frames,
// methods, content headers and field tables, both ways. It does no I/O of its
// own (FrameReader reads from what it is given), keeps no state, and no input
// makes it panic. Every length is checked before anything is allocated.
//
// Sources: AMQP 0-9-1 specification, sections 4.2.2-4.2.6 (framing, methods,
// content), and RabbitMQ's list of its field table types
// (https://www.rabbitmq.com/amqp-0-9-1-errata).
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
	"unsafe"
)

//go:generate go run ./gen spec.txt methods_gen.go

// ProtocolHeader is what a client sends first.
const ProtocolHeader = "AMQP\x00\x00\x09\x01"

// ErrSyntax is every complaint about a payload: too short, too long, bytes
// that are not UTF-8 where names are, an unknown type tag, too deep a table.
// It is wrapped with what was wrong.
var ErrSyntax = errors.New("malformed payload")

// ErrUnknownMethod is returned by ReadMethod for ids the table does not have.
var ErrUnknownMethod = errors.New("unknown method")

// ID is a method's class and method id.
type ID uint32

// Class returns the class id.
func (id ID) Class() uint16 { return uint16(id >> 16) }

// Method returns the method id within its class.
func (id ID) Method() uint16 { return uint16(id) }

func (id ID) number() string { return fmt.Sprintf("%d.%d", id.Class(), id.Method()) }

// Method is one method of the table. The set is closed: methods_gen.go.
type Method interface {
	ID() ID
	read(c *cursor)
	append(b []byte) []byte
}

// MethodID returns the id at the start of a method frame's payload.
func MethodID(payload []byte) (ID, error) {
	if len(payload) < 4 {
		return 0, fmt.Errorf("%w: a method of %d bytes", ErrSyntax, len(payload))
	}
	return ID(binary.BigEndian.Uint32(payload)), nil
}

// ReadMethod decodes the payload of a method frame into a new method. Strings
// are copied.
func ReadMethod(payload []byte) (Method, error) {
	id, err := MethodID(payload)
	if err != nil {
		return nil, err
	}
	m := New(id)
	if m == nil {
		return nil, fmt.Errorf("%w %v", ErrUnknownMethod, id)
	}
	var d Decoder
	return m, d.decode(m, payload, false)
}

// Decoder decodes methods without allocating. The zero value is ready; not
// safe for concurrent use.
type Decoder struct{ c cursor }

// Decode decodes the payload of a method frame, whose id the caller has looked
// at, into m. Strings alias payload: they hold only as long as its bytes.
func (d *Decoder) Decode(m Method, payload []byte) error { return d.decode(m, payload, true) }

func (d *Decoder) decode(m Method, payload []byte, alias bool) error {
	c := &d.c
	*c = cursor{rest: payload[4:], alias: alias}
	m.read(c)
	if c.err != nil {
		return fmt.Errorf("%v: %w", m.ID(), c.err)
	}
	if len(c.rest) != 0 {
		return fmt.Errorf("%v: %w: %d bytes too many", m.ID(), ErrSyntax, len(c.rest))
	}
	return nil
}

// AppendMethod appends a whole method frame.
func AppendMethod(b []byte, channel uint16, m Method) []byte {
	b, start := beginFrame(b, FrameMethod, channel)
	return endFrame(m.append(b), start)
}

// cursor reads fields from a payload. The first error sticks, and everything
// read after it is zero.
type cursor struct {
	rest  []byte
	alias bool // strings alias rest instead of being copied
	err   error
}

func (c *cursor) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrSyntax, what)
	}
	c.rest = nil
}

// take returns the next n bytes, nil when there are fewer.
func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.fail("too short")
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) octet() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) short() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) long() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) longlong() uint64 {
	if b := c.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// shortstr reads a short string, which must be UTF-8.
func (c *cursor) shortstr() string {
	b := c.take(int(c.octet()))
	if !utf8.Valid(b) {
		c.fail("a short string that is not UTF-8")
		return ""
	}
	return c.str(b)
}

// shortBytes reads a short string of any bytes, aliased.
func (c *cursor) shortBytes() []byte { return c.take(int(c.octet())) }

func (c *cursor) longstr() string { return c.str(c.longBytes()) }

// longBytes reads a long string, aliased.
func (c *cursor) longBytes() []byte {
	n := c.long()
	if uint64(n) > uint64(len(c.rest)) {
		c.fail("a length past the end")
		return nil
	}
	return c.take(int(n))
}

func (c *cursor) str(b []byte) string {
	if !c.alias {
		return string(b)
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func appendOctet(b []byte, v uint8) []byte     { return append(b, v) }
func appendShort(b []byte, v uint16) []byte    { return binary.BigEndian.AppendUint16(b, v) }
func appendLong(b []byte, v uint32) []byte     { return binary.BigEndian.AppendUint32(b, v) }
func appendLonglong(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }

func appendBits(b []byte, bits ...bool) []byte {
	var v byte
	for i, set := range bits {
		if set {
			v |= 1 << i
		}
	}
	return append(b, v)
}

// appendShortstr appends a short string, cut at 255 bytes on a character's
// boundary: nothing longer can be written, and a cut text is better than a
// broken stream.
func appendShortstr[T string | []byte](b []byte, s T) []byte {
	n := len(s)
	if n > math.MaxUint8 {
		n = math.MaxUint8
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
	}
	b = append(b, byte(n))
	return append(b, s[:n]...)
}

func appendLongstr[T string | []byte](b []byte, s T) []byte {
	b = appendLong(b, uint32(len(s)))
	return append(b, s...)
}
