package placement

import (
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/storage/record"
)

// sizes knows the payload bytes of the records of a window, in a group whose
// bytes are limited: 8 bytes for each record from the floor on. They are read
// when they are first asked for, and as records come.
type sizes struct {
	base int64   // offset of the first
	sums []int64 // sums[i] is the bytes of the records base..base+i
}

// to returns the bytes of the records below offset, from base on.
func (z *sizes) to(offset int64) int64 {
	i := min(offset-z.base, int64(len(z.sums)))
	if i <= 0 {
		return 0
	}
	return z.sums[i-1]
}

// size returns the bytes of first..last.
func (z *sizes) size(first, last int64) int64 { return z.to(last+1) - z.to(first) }

// measured returns the sizes of the records below end.
func (w *window) measured(end int64) *sizes {
	if w.sizes == nil {
		w.sizes = &sizes{base: w.Floor()}
	}
	z := w.sizes
	if gone := w.Floor() - z.base; gone > 1024 && gone > int64(len(z.sums))/2 {
		z.forget(min(gone, int64(len(z.sums))))
	}
	next := z.base + int64(len(z.sums))
	if next >= end {
		return z
	}
	if w.look == nil {
		w.look = w.part.log.Cursor()
	}
	sum := z.to(next)
	for next < end {
		w.look.SeekTo(next)
		v, err := w.look.Next()
		reach, size := end, int64(0) // what cannot be read has no size
		switch {
		case err != nil:
			last, _ := badEnd(err, next)
			reach = min(end, last+1)
		case v != nil:
			reach = min(end, v.Offset)
			size = int64(len(v.Value))
		}
		for ; next < reach; next++ {
			z.sums = append(z.sums, sum)
		}
		if err == nil && v != nil && next < end {
			sum += size
			z.sums = append(z.sums, sum)
			next++
		}
	}
	w.rest()
	return z
}

// forget drops the first n.
func (z *sizes) forget(n int64) {
	gone := z.sums[n-1]
	sums := make([]int64, len(z.sums)-int(n))
	for i := range sums {
		sums[i] = z.sums[int(n)+i] - gone
	}
	z.base, z.sums = z.base+n, sums
}

// readyBytes returns the payload bytes of what is available in a window.
func (w *window) readyBytes() (n int64) {
	if !w.Leading() {
		return 0
	}
	z := w.measured(w.known)
	for sp := range w.Available() {
		n += z.size(sp.First, sp.Last)
	}
	return n
}

func (sh *share) readyBytes() (n int64) {
	for _, w := range sh.windows {
		n += w.readyBytes()
	}
	return n
}

// over returns how many of the oldest available records have at least that many
// bytes together.
func (w *window) over(bytes int64) (n int64) {
	z := w.measured(w.known)
	for sp := range w.Available() {
		for off := sp.First; off <= sp.Last; off++ {
			n++
			if bytes -= z.size(off, off); bytes <= 0 {
				return n
			}
		}
	}
	return n
}

// tally counts the payload bytes appended to a topic since it was begun, while a
// group refuses publishes by size.
type tally struct {
	on    atomic.Bool
	mu    sync.Mutex
	bytes int64
	scan  *scan // nil until it is on
}

// scan is what it takes to look at batches.
type scan struct {
	d  record.Decompressor
	it record.Iter
}

// measure begins or ends the count.
func (t *tally) measure(parts []*partition, on bool) {
	if t.on.Load() == on {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = 0
	if t.scan == nil {
		t.scan = new(scan)
	}
	for _, p := range parts {
		p.tallied = p.log.End()
	}
	t.on.Store(on)
}

// add counts a batch that ends at end.
func (t *tally) add(p *partition, batch []byte, end int64) {
	n := payload(batch, &t.scan.it, &t.scan.d)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += n
	p.tallied = end
}

func (t *tally) load() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// payload returns the bytes of a batch's values, without keys and headers.
func payload(batch []byte, it *record.Iter, d *record.Decompressor) (n int64) {
	if it.Reset(batch, d) != nil {
		return 0
	}
	for it.Next() {
		n += int64(len(it.View().Value))
	}
	return n
}
