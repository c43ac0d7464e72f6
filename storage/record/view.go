package record

import (
	"bytes"
	"fmt"
)

// View is one stored record, seen in place: Key, Value and the headers alias
// the batch (or its decompressed form). Copy the struct to keep it beyond the
// next step of its iterator; the bytes live as long as they are referenced
// and must not be changed.
type View struct {
	Offset     int64
	Timestamp  int64 // ms since the Unix epoch
	Key, Value []byte
	Size       int   // encoded size of the record in bytes
	Attributes int16 // of the batch: the Attr constants
	ProducerID int64 // of the batch, -1 for none

	headerCount int32
	headers     []byte // encoded, after the count
}

// IsControl tells whether the record is a transaction marker.
func (v *View) IsControl() bool { return v.Attributes&AttrControl != 0 }

// IsOwn tells whether the broker encoded the record itself, so that its reserved
// header names can be believed.
func (v *View) IsOwn() bool { return v.Attributes&AttrOwn != 0 }

// HeaderCount is the number of headers.
func (v *View) HeaderCount() int { return int(v.headerCount) }

// Headers starts a walk over the headers in their order.
func (v *View) Headers() HeaderIter { return HeaderIter{rest: v.headers, left: v.headerCount} }

// Header returns the value of the first header of that name; a null value is
// nil, true.
func (v *View) Header(name string) (value []byte, ok bool) {
	it := v.Headers()
	for {
		k, val, more := it.Next()
		if !more {
			return nil, false
		}
		if string(k) == name {
			return val, true
		}
	}
}

// Record returns the record in its writing form. Key, Value and header values
// alias the view's bytes; header names are copied.
func (v *View) Record() Record {
	r := Record{Key: v.Key, Value: v.Value, Timestamp: v.Timestamp}
	if v.headerCount > 0 {
		r.Headers = make([]Header, 0, v.headerCount)
		it := v.Headers()
		for k, val, ok := it.Next(); ok; k, val, ok = it.Next() {
			r.Headers = append(r.Headers, Header{Key: string(k), Value: val})
		}
	}
	return r
}

// Clone returns a view that shares no memory with v, for those who keep a
// small record of a large batch.
func (v *View) Clone() *View {
	c := *v
	c.Key, c.Value = bytes.Clone(v.Key), bytes.Clone(v.Value)
	c.headers = bytes.Clone(v.headers)
	return &c
}

// HeaderIter walks the headers of one record without allocating.
type HeaderIter struct {
	rest []byte
	left int32
	bad  bool
}

// Next returns the next name and value, aliasing the record's bytes, and
// false after the last one or at a malformed one (then Err says so). A null
// value is nil, an empty one is not.
func (it *HeaderIter) Next() (key, value []byte, ok bool) {
	if it.left <= 0 {
		return nil, nil, false
	}
	key, pos := field(it.rest, 0)
	if pos < 0 || key == nil {
		return it.fail()
	}
	value, pos = field(it.rest, pos)
	if pos < 0 {
		return it.fail()
	}
	it.rest = it.rest[pos:]
	it.left--
	return key, value, true
}

func (it *HeaderIter) fail() (key, value []byte, ok bool) {
	it.left, it.bad = 0, true
	return nil, nil, false
}

// Err is ErrInvalid when the walk ended at a malformed header. A batch that
// passed Validate or ValidateRecords has none.
func (it *HeaderIter) Err() error {
	if it.bad {
		return fmt.Errorf("%w: malformed header", ErrInvalid)
	}
	return nil
}

// check walks all headers and wants nothing to remain.
func (it HeaderIter) check() error {
	for {
		if _, _, ok := it.Next(); !ok {
			break
		}
	}
	if it.bad || len(it.rest) != 0 {
		return fmt.Errorf("%w: malformed headers", ErrInvalid)
	}
	return nil
}

// field reads a byte string with its length at pos: nil for null, and the
// position after it or -1 when malformed.
func field(b []byte, pos int) ([]byte, int) {
	n, pos := varint(b, pos)
	if pos < 0 || n < 0 {
		if n == -1 {
			return nil, pos
		}
		return nil, -1
	}
	if n > int64(len(b)-pos) {
		return nil, -1
	}
	end := pos + int(n)
	return b[pos:end:end], end
}
