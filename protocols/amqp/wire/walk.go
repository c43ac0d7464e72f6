package wire

import "fmt"

// Walk steps over the content of a table in place: no copy, no allocation.
// It does not look into nested values; CheckTable does.
//
//	for w := WalkTable(content); w.Next(); {
//		use(w.Name, w.Tag, w.Value)
//	}
type Walk struct {
	Name  []byte // of the entry Next stepped to
	Tag   byte
	Value []byte // after the tag; of strings, tables and arrays without the length

	c       cursor
	unnamed bool // an array: no entry has a name
}

// WalkTable begins a walk over the content of a table, which is what follows
// its length.
func WalkTable(content []byte) Walk { return Walk{c: cursor{rest: content}} }

// WalkArray begins a walk over the content of an array; Name stays empty.
func WalkArray(content []byte) Walk { return Walk{c: cursor{rest: content}, unnamed: true} }

// Next steps to the next entry; false at the end or at a malformed one.
func (w *Walk) Next() bool {
	if len(w.c.rest) == 0 || w.c.err != nil {
		return false
	}
	if !w.unnamed {
		w.Name = w.c.shortBytes()
	}
	w.Tag = w.c.octet()
	w.Value = w.c.skip(w.Tag)
	return w.c.err == nil
}

// Rest is what has not been walked over yet.
func (w *Walk) Rest() []byte { return w.c.rest }

// Err is why the walk ended early, nil when it did not.
func (w *Walk) Err() error { return w.c.err }

// skip steps over a value of that tag and returns its bytes.
func (c *cursor) skip(tag byte) []byte {
	switch tag {
	case 't', 'b', 'B':
		return c.take(1)
	case 's', 'u':
		return c.take(2)
	case 'I', 'i', 'f':
		return c.take(4)
	case 'D':
		return c.take(5)
	case 'l', 'L', 'd', 'T':
		return c.take(8)
	case 'S', 'x', 'A', 'F':
		return c.longBytes()
	case 'V':
		return nil
	default:
		c.fail(fmt.Sprintf("type tag %q", tag))
		return nil
	}
}

// CheckTable checks the content of a table to its depths, without allocating.
func CheckTable(content []byte) error {
	c := cursor{rest: content}
	c.check('F', 1)
	return c.err
}

// check walks everything in c, which is the content of a table or an array.
func (c *cursor) check(kind byte, depth int) {
	if depth > MaxDepth {
		c.fail("nested too deep")
		return
	}
	for len(c.rest) > 0 {
		if kind == 'F' {
			c.shortBytes()
		}
		tag := c.octet()
		v := c.skip(tag)
		if tag == 'A' || tag == 'F' {
			inner := cursor{rest: v}
			if inner.check(tag, depth+1); inner.err != nil {
				c.err, c.rest = inner.err, nil
			}
		}
	}
}

// AppendLongstrField appends a table entry with a long string value.
func AppendLongstrField[N, V string | []byte](b []byte, name N, value V) []byte {
	b = appendShortstr(b, name)
	return appendLongstr(append(b, 'S'), value)
}

// AppendBytesField appends a table entry with a byte array value.
func AppendBytesField[N string | []byte](b []byte, name N, value []byte) []byte {
	b = appendShortstr(b, name)
	return appendLongstr(append(b, 'x'), value)
}

// AppendBoolField appends a table entry with a boolean value.
func AppendBoolField[N string | []byte](b []byte, name N, value bool) []byte {
	b = appendShortstr(b, name)
	return appendBits(append(b, 't'), value)
}

// AppendLongField appends a table entry with a 64 bit integer.
func AppendLongField[N string | []byte](b []byte, name N, value int64) []byte {
	return appendLonglong(append(appendShortstr(b, name), 'l'), uint64(value))
}

// AppendVoidField appends a table entry without value.
func AppendVoidField[N string | []byte](b []byte, name N) []byte {
	return append(appendShortstr(b, name), 'V')
}
