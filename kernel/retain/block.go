package retain

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// block is a part of an index: up to blockSize items in the order of their names. They
// lie one after the other in a few bytes with no pointers, as they came: an item that
// is replaced stays as waste until there is more waste than not. What has been written
// is never changed, so strings may point into it.
type block struct {
	bytes []byte
	at    []uint32 // where the items are, by name
	waste int      // bytes
}

// item is what is known of one topic.
type item struct {
	name    string
	value   string // the encoded message, "" if it is not kept here
	expires int64  // ms since 1970, 0 = never
	index   uint64 // of the log, that wrote it
	size    uint32 // of the encoded message
}

func (it *item) bytes() int { return len(it.name) + int(it.size) }

// text returns n bytes of the block, which never change, and the rest.
func text(b []byte, n uint64) (string, []byte) {
	return unsafe.String(unsafe.SliceData(b), int(n)), b[n:]
}

func number(b []byte) (uint64, []byte) {
	if b[0] < 0x80 { // most are
		return uint64(b[0]), b[1:]
	}
	v, n := binary.Uvarint(b)
	return v, b[n:]
}

// name returns the name of item i, which is part of the block.
func (b *block) name(i int) string {
	n, rest := number(b.bytes[b.at[i]:])
	s, _ := text(rest, n)
	return s
}

// item returns item i, whose strings are part of the block.
func (b *block) item(i int) (it item) {
	it, _ = b.decode(i)
	return it
}

// decode returns item i and how many bytes it takes.
func (b *block) decode(i int) (it item, size int) {
	from := b.bytes[b.at[i]:]
	n, rest := number(from)
	it.name, rest = text(rest, n)
	it.index, rest = number(rest)
	n, rest = number(rest)
	it.expires = int64(n)
	n, rest = number(rest)
	it.size = uint32(n)
	n, rest = number(rest)
	it.value, rest = text(rest, n)
	return it, len(from) - len(rest)
}

// write adds the bytes of an item and returns where they are.
func (b *block) write(it *item) uint32 {
	at := len(b.bytes)
	p := append(binary.AppendUvarint(b.bytes, uint64(len(it.name))), it.name...)
	p = binary.AppendUvarint(p, it.index)
	p = binary.AppendUvarint(p, uint64(it.expires))
	p = binary.AppendUvarint(p, uint64(it.size))
	p = binary.AppendUvarint(p, uint64(len(it.value)))
	b.bytes = append(p, it.value...)
	return uint32(at)
}

// insert adds an item at place i.
func (b *block) insert(i int, it *item) { b.at = slices.Insert(b.at, i, b.write(it)) }

// replace puts an item in the place of item i, whose name it has.
func (b *block) replace(i int, it *item) {
	b.drop(i)
	b.at[i] = b.write(it)
	b.tidy()
}

// remove takes item i out.
func (b *block) remove(i int) {
	b.drop(i)
	b.at = slices.Delete(b.at, i, i+1)
	b.tidy()
}

func (b *block) drop(i int) {
	_, size := b.decode(i)
	b.waste += size
}

// tidy leaves the waste behind when it is half of all.
func (b *block) tidy() {
	if b.waste > 512 && b.waste > len(b.bytes)/2 {
		*b = *b.part(0, len(b.at))
	}
}

// part copies the items from..to-1, with no room to spare.
func (b *block) part(from, to int) *block {
	size := 0
	for i := from; i < to; i++ {
		_, n := b.decode(i)
		size += n
	}
	c := &block{bytes: make([]byte, 0, size), at: make([]uint32, 0, to-from)}
	for i := from; i < to; i++ {
		_, n := b.decode(i)
		c.at = append(c.at, uint32(len(c.bytes)))
		c.bytes = append(c.bytes, b.bytes[b.at[i]:][:n]...)
	}
	return c
}

// search returns where a name is in the block, or would be.
func (b *block) search(name string) (int, bool) {
	lo, hi := 0, len(b.at)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := compare(b.name(mid), name); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}
