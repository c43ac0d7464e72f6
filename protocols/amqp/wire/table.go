package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MaxDepth is how deep tables and arrays may nest.
const MaxDepth = 64

// Table is a field table with its order and duplicates kept.
type Table []Field

// Field is one entry of a table. Value is one of: nil, bool, int8, uint8,
// int16, uint16, int32, uint32, int64, float32, float64, Decimal, string,
// []byte, Timestamp, Array, Table.
type Field struct {
	Name  string
	Value any
}

// Array is a field array; its elements are what Field.Value may be.
type Array []any

// Timestamp is seconds since 1970.
type Timestamp uint64

// Decimal is Value / 10^Scale.
type Decimal struct {
	Scale uint8
	Value uint32
}

// Get returns the first value of that name.
func (t Table) Get(name string) (any, bool) {
	for i := range t {
		if t[i].Name == name {
			return t[i].Value, true
		}
	}
	return nil, false
}

// ReadTable decodes the content of a table (what follows its length). Names
// and strings are copied.
func ReadTable(content []byte) (Table, error) {
	c := cursor{rest: content}
	t := c.fields(1)
	return t, c.err
}

// table reads a table with its length.
func (c *cursor) table() Table { return c.tableAt(1) }

func (c *cursor) tableAt(depth int) Table {
	if depth > MaxDepth {
		c.fail("a table nested too deep")
		return nil
	}
	inner := cursor{rest: c.longBytes(), alias: c.alias}
	t := inner.fields(depth)
	if inner.err != nil && c.err == nil {
		c.err, c.rest = inner.err, nil
	}
	return t
}

func (c *cursor) fields(depth int) Table {
	var t Table
	for len(c.rest) > 0 && c.err == nil {
		name := c.str(c.shortBytes())
		t = append(t, Field{Name: name, Value: c.value(depth)})
	}
	return t
}

func (c *cursor) array(depth int) Array {
	if depth > MaxDepth {
		c.fail("an array nested too deep")
		return nil
	}
	inner := cursor{rest: c.longBytes(), alias: c.alias}
	a := Array{}
	for len(inner.rest) > 0 && inner.err == nil {
		a = append(a, inner.value(depth))
	}
	if inner.err != nil && c.err == nil {
		c.err, c.rest = inner.err, nil
	}
	return a
}

// value reads a tagged value. The tags are RabbitMQ's: where they differ from
// the specification, clients follow RabbitMQ ('s' is a short, 'l' and 'L' are
// the same signed 64 bits).
func (c *cursor) value(depth int) any {
	switch tag := c.octet(); tag {
	case 't':
		return c.octet() != 0
	case 'b':
		return int8(c.octet())
	case 'B':
		return c.octet()
	case 's':
		return int16(c.short())
	case 'u':
		return c.short()
	case 'I':
		return int32(c.long())
	case 'i':
		return c.long()
	case 'l', 'L':
		return int64(c.longlong())
	case 'f':
		return math.Float32frombits(c.long())
	case 'd':
		return math.Float64frombits(c.longlong())
	case 'D':
		return Decimal{Scale: c.octet(), Value: c.long()}
	case 'S':
		return c.longstr()
	case 'x':
		return append([]byte{}, c.longBytes()...)
	case 'T':
		return Timestamp(c.longlong())
	case 'A':
		return c.array(depth + 1)
	case 'F':
		return c.tableAt(depth + 1)
	case 'V':
		return nil
	default:
		c.fail(fmt.Sprintf("type tag %q", tag))
		return nil
	}
}

// AppendTable appends a table with its length. A value of a type that Field
// does not name is written as void.
func AppendTable(b []byte, t Table) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	for i := range t {
		b = appendShortstr(b, t[i].Name)
		b = appendValue(b, t[i].Value)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		return appendBits(append(b, 't'), v)
	case int8:
		return append(b, 'b', byte(v))
	case uint8:
		return append(b, 'B', v)
	case int16:
		return appendShort(append(b, 's'), uint16(v))
	case uint16:
		return appendShort(append(b, 'u'), v)
	case int32:
		return appendLong(append(b, 'I'), uint32(v))
	case uint32:
		return appendLong(append(b, 'i'), v)
	case int64:
		return appendLonglong(append(b, 'l'), uint64(v))
	case float32:
		return appendLong(append(b, 'f'), math.Float32bits(v))
	case float64:
		return appendLonglong(append(b, 'd'), math.Float64bits(v))
	case Decimal:
		return appendLong(append(b, 'D', v.Scale), v.Value)
	case string:
		return appendLongstr(append(b, 'S'), v)
	case []byte:
		return appendLongstr(append(b, 'x'), v)
	case Timestamp:
		return appendLonglong(append(b, 'T'), uint64(v))
	case Array:
		b = append(b, 'A', 0, 0, 0, 0)
		start := len(b)
		for _, e := range v {
			b = appendValue(b, e)
		}
		binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
		return b
	case Table:
		return AppendTable(append(b, 'F'), v)
	default:
		return append(b, 'V')
	}
}
