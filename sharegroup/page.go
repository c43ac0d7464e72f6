package sharegroup

import (
	"math/bits"
	"sync"
)

const (
	pageBits = 5
	pageSize = 1 << pageBits
	pageMask = pageSize - 1
)

// slot is what the leader remembers of one record in flight or given back.
type slot struct {
	member      MemberID // holder, if held
	acquired    uint16   // hand-outs so far
	failed      uint16   // counted returns so far, logged or on their way
	acquisition uint64   // number of the last hand-out
	deadline    int64    // end of the lock, 0 for a session-bound one
}

// page holds the slots of pageSize neighbouring offsets. A record has a slot
// while its bit is in held or back; it is never in both. Pages hold no pointers,
// so the garbage collector passes them by.
type page struct {
	base   int64
	held   uint32 // acquired by a member
	back   uint32 // given back, available again
	queued bool   // base is in overlay.backs
	slots  [pageSize]slot
}

// pages recycles pages between windows: an idle window keeps none.
var pages = sync.Pool{New: func() any { return new(page) }}

// mask returns the bits of the offsets first..last that lie in the page.
func (p *page) mask(first, last int64) uint32 {
	lo, hi := max(first-p.base, 0), min(last-p.base, pageSize-1)
	if lo > hi {
		return 0
	}
	return ^uint32(0) << lo & (^uint32(0) >> (pageSize - 1 - hi))
}

// pageDir lists the pages of a window by base.
type pageDir struct {
	buf  []pageRef
	head int // buf[head:] is in use
	hot  *page
}

type pageRef struct {
	base int64
	p    *page
}

func (d *pageDir) live() []pageRef { return d.buf[d.head:] }

// search returns the index of the first page with a base >= base. While no page
// is missing the two bounds meet and nothing is searched.
func (d *pageDir) search(base int64) int {
	refs := d.live()
	n := len(refs)
	if n == 0 || base <= refs[0].base {
		return 0
	}
	if base > refs[n-1].base {
		return n
	}
	hi := int(min(int64(n-1), (base-refs[0].base)>>pageBits))
	lo := int(max(0, int64(n-1)-(refs[n-1].base-base)>>pageBits))
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); refs[mid].base < base {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns the page of an offset, or nil.
func (d *pageDir) find(offset int64) *page {
	base := offset &^ pageMask
	if d.hot != nil && d.hot.base == base {
		return d.hot
	}
	refs := d.live()
	if i := d.search(base); i < len(refs) && refs[i].base == base {
		d.hot = refs[i].p
		return d.hot
	}
	return nil
}

// from returns the first page that ends behind offset, or nil.
func (d *pageDir) from(offset int64) *page {
	if refs, i := d.live(), d.search(offset&^pageMask); i < len(refs) {
		return refs[i].p
	}
	return nil
}

// tail returns the page of an offset at or behind the last page.
func (d *pageDir) tail(offset int64) *page {
	if p := d.find(offset); p != nil {
		return p
	}
	p := pages.Get().(*page)
	p.base, p.held, p.back, p.queued = offset&^pageMask, 0, 0, false
	if len(d.buf) == cap(d.buf) && d.head > len(d.buf)/2 {
		n := copy(d.buf, d.live())
		clear(d.buf[n:])
		d.buf, d.head = d.buf[:n], 0
	}
	d.buf = append(d.buf, pageRef{p.base, p})
	d.hot = p
	return p
}

// keepDir is the capacity of a directory that an empty window keeps.
const keepDir = 64

// free gives an empty page back.
func (d *pageDir) free(p *page) {
	refs := d.live()
	i := d.search(p.base)
	if i < len(refs)/2 || i == 0 { // move the shorter side
		copy(refs[1:i+1], refs[:i])
		refs[0] = pageRef{}
		d.head++
	} else {
		copy(refs[i:], refs[i+1:])
		refs[len(refs)-1] = pageRef{}
		d.buf = d.buf[:len(d.buf)-1]
	}
	if d.head == len(d.buf) {
		d.buf, d.head = d.buf[:0], 0
		if cap(d.buf) > keepDir {
			d.buf = nil
		}
	}
	if d.hot == p {
		d.hot = nil
	}
	pages.Put(p)
}

// count returns how many records have a slot, by walking all pages.
func (d *pageDir) count() (n int) {
	for _, r := range d.live() {
		n += bits.OnesCount32(r.p.held | r.p.back)
	}
	return n
}
