package retain

import (
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	// blockSize is how many names a block has at most.
	blockSize = 128
	// maxKept is the largest message that an index keeps beside its name.
	maxKept = 1 << 10
	// maxLook is how many names one call of Page looks at: writers wait for it.
	maxLook = 4096
)

// Budget bounds the bytes of messages that indexes keep beside the names. What
// they do not keep has to be read from where it is stored.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	b := new(Budget)
	b.left.Store(bytes)
	return b
}

func (b *Budget) take(n int) bool {
	if b.left.Add(int64(-n)) >= 0 {
		return true
	}
	b.left.Add(int64(n))
	return false
}

// Index knows the topics of one tenant that have something retained, sorted so
// that a wildcard lookup passes over what cannot match. A topic takes some 15 bytes
// beside its name and the message, if that is kept. It is safe for concurrent use.
type Index struct {
	budget *Budget

	mu     sync.RWMutex
	blocks []*block // none is empty
	count  int
	bytes  int64
	due    dueHeap
	timed  int // items that expire
}

// Found is one topic as Page finds it.
type Found struct {
	Name string
	// Value is the encoded message, "" if it has to be read from where it is
	// stored. It is never changed.
	Value   string
	Expires int64 // ms since 1970, 0 = never
	Size    int   // bytes of name and message
	// Index is that of the log, which wrote it.
	Index uint64
}

// NewIndex returns an empty index; it shares the budget with others.
func NewIndex(b *Budget) *Index { return &Index{budget: b} }

// Len is the number of topics, Bytes that of their names and messages.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.count
}

// Bytes is the size of all names and messages.
func (x *Index) Bytes() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.bytes
}

// Size returns the size of a topic's name and message; ok is false if it has none.
func (x *Index) Size(name string) (n int, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	b, i, ok := x.find(name)
	if !ok {
		return 0, false
	}
	it := x.blocks[b].item(i)
	return it.bytes(), true
}

// Find returns what is retained under a name.
func (x *Index) Find(name string) (f Found, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	b, i, ok := x.find(name)
	if !ok {
		return f, false
	}
	it := x.blocks[b].item(i)
	return found(&it), true
}

func found(it *item) Found {
	return Found{Name: it.name, Value: it.value, Expires: it.expires, Size: it.bytes(), Index: it.index}
}

// Put notes an encoded message, written at an index of the log, and returns when
// it expires (ms since 1970, 0 = never). What a higher index wrote stays. Name and
// value are copied.
func (x *Index) Put(name string, value []byte, index uint64) (expires int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, i, ok := x.find(name)
	if ok {
		old := x.blocks[b].item(i)
		if old.index > index {
			return old.expires
		}
		x.account(&old, -1)
	}
	it := item{name: name, expires: max(expiry(value), 0), index: index, size: uint32(min(len(value), math.MaxUint32))}
	if len(value) <= maxKept && x.budget.take(len(value)) {
		it.value = unsafe.String(unsafe.SliceData(value), len(value)) // until it is copied
	}
	if ok {
		x.blocks[b].replace(i, &it)
	} else {
		x.insert(b, i, &it)
	}
	x.account(&it, +1)
	if it.expires != 0 {
		x.due.push(due{it.expires, strings.Clone(name)})
		if len(x.due) > 2*x.timed+1024 {
			x.rebuild()
		}
	}
	return it.expires
}

// Delete forgets a topic, unless a higher index than upTo wrote it.
func (x *Index) Delete(name string, upTo uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b, i, ok := x.find(name)
	if !ok {
		return
	}
	bl := x.blocks[b]
	it := bl.item(i)
	if it.index > upTo {
		return
	}
	x.account(&it, -1)
	if bl.remove(i); len(bl.at) == 0 {
		x.blocks = slices.Delete(x.blocks, b, b+1)
	}
}

// account adds an item to the sums, or takes it out.
func (x *Index) account(it *item, sign int) {
	x.count += sign
	x.bytes += int64(sign * it.bytes())
	if sign < 0 {
		x.budget.left.Add(int64(len(it.value)))
	}
	if it.expires != 0 {
		x.timed += sign
	}
}

// find returns where a name is, or where it would be.
func (x *Index) find(name string) (b, i int, ok bool) {
	b = sort.Search(len(x.blocks), func(b int) bool { return compare(x.blocks[b].name(0), name) > 0 }) - 1
	if b < 0 {
		return 0, 0, false
	}
	i, ok = x.blocks[b].search(name)
	return b, i, ok
}

// insert adds an item where find would have it.
func (x *Index) insert(b, i int, it *item) {
	if len(x.blocks) == 0 {
		x.blocks = append(x.blocks, &block{})
	}
	bl := x.blocks[b]
	if len(bl.at) >= blockSize {
		half := blockSize / 2
		if i == blockSize && b == len(x.blocks)-1 {
			half = blockSize // names that come in order fill the blocks
		}
		right := bl.part(half, len(bl.at))
		*bl = *bl.part(0, half)
		x.blocks = slices.Insert(x.blocks, b+1, right)
		if i >= half && i != 0 {
			i, bl = i-half, right
		}
	}
	bl.insert(i, it)
}

// Page appends to out up to max topics that match f, from the one named from
// on, "" being the first. more says that there may be others, from next on.
func (x *Index) Page(f *Filter, from string, max int, out []Found) (_ []Found, nextName string, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if from == "" {
		from = f.first
	}
	c := cursor{x: x}
	c.seek(from)
	for looked := 0; c.valid(); looked++ {
		name := c.name()
		if max == 0 || looked == maxLook {
			return out, name, true
		}
		switch f.look(name) {
		case matches:
			it := c.item()
			out = append(out, found(&it))
			max--
			c.next()
		case next:
			c.next()
		case seek:
			c.skip(unsafe.String(unsafe.SliceData(f.target), len(f.target)))
		case ended:
			return out, "", false
		}
	}
	return out, "", false
}

// cursor is a place in the index, which is locked.
type cursor struct {
	x    *Index
	b, i int
}

func (c *cursor) valid() bool { return c.b < len(c.x.blocks) }

func (c *cursor) item() item { return c.x.blocks[c.b].item(c.i) }

func (c *cursor) name() string { return c.x.blocks[c.b].name(c.i) }

func (c *cursor) next() {
	if c.i++; c.i == len(c.x.blocks[c.b].at) {
		c.b, c.i = c.b+1, 0
	}
}

// seek goes to the first name that is not before the given one.
func (c *cursor) seek(name string) {
	c.b, c.i, _ = c.x.find(name)
	if c.valid() && c.i == len(c.x.blocks[c.b].at) {
		c.b, c.i = c.b+1, 0
	}
}

// skip is seek of a name after the present one, which is often close.
func (c *cursor) skip(name string) {
	const near = 4
	for range near {
		if c.next(); !c.valid() || compare(c.name(), name) >= 0 {
			return
		}
	}
	if bl := c.x.blocks[c.b]; compare(bl.name(len(bl.at)-1), name) >= 0 {
		c.i, _ = bl.search(name)
		return
	}
	c.seek(name)
}
