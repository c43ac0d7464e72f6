package sharegroup

import (
	"iter"
	"math/bits"
)

// Bury makes up to most of the available records below an offset dead, the
// oldest first, and returns how many. With Policy.DeadLetter each is listed by
// TakeDead and waits for Archive; otherwise they are archived at once, as
// ranges, and not listed. Held records stay with their holders.
func (w *Window) Bury(below, most int64, why Reason) (n int64) {
	o := w.o
	if o == nil {
		return 0
	}
	most = min(most, MaxOffset)
	for n < most {
		p, i := o.lowestBack()
		if p == nil || p.base+int64(i) >= below {
			break
		}
		s := p.slots[i]
		o.unback(p, i)
		o.drain(p)
		w.inter(Dead{p.base + int64(i), s.acquired, s.failed, why}, 1)
		n++
	}
	for below = min(below, o.end); n < most && o.next < below; {
		to := min(o.next+most-n, o.gap, below)
		w.interUnread(o.next, to-1, why)
		n += to - o.next
		if o.next = to; to == o.gap {
			w.advance()
		}
	}
	if n > 0 {
		w.wake() // what hand-outs waited for may have gone
	}
	return n
}

// unback takes a record out of those given back. lowestBack has left its page
// on top of the heap.
func (o *overlay) unback(p *page, i int) {
	p.back &^= 1 << i
	o.returned--
	if p.back == 0 {
		o.backs.pop()
		p.queued = false
	}
}

// interUnread buries unread records. Their failed counts, of earlier leaders,
// show in what is listed only.
func (w *Window) interUnread(first, last int64, why Reason) {
	if !w.o.policy.DeadLetter {
		w.inter(Dead{Offset: first, Reason: why}, last-first+1)
		return
	}
	for off := first; off <= last; off++ {
		failed := w.failed[off]
		w.inter(Dead{off, failed, failed, why}, 1)
	}
}

// inter lists a dead record, or archives n from there on if nobody wants to
// hear of them.
func (w *Window) inter(d Dead, n int64) {
	if w.o.policy.DeadLetter {
		w.bury(d)
	} else {
		w.archive(d.Offset, d.Offset+n-1)
	}
}

// Unread returns the lowest offset that has never been available to a member
// under this leader, 0 if the window does not lead.
func (w *Window) Unread() int64 {
	if w.o == nil {
		return 0
	}
	return w.o.next
}

// Available yields the ranges of the available records in order. The window
// must not change meanwhile.
func (w *Window) Available() iter.Seq[Span] {
	return func(yield func(Span) bool) {
		o := w.o
		if o == nil || !o.eachBack(yield) {
			return
		}
		for off := o.next; off < o.end; {
			to := o.end
			for _, set := range []*spanSet{&w.settled, &o.closing} {
				if sp, ok := set.from(off); ok && sp.First <= off {
					off, to = sp.Last+1, -1
					break
				} else if ok {
					to = min(to, sp.First)
				}
			}
			if to < 0 {
				continue
			}
			if !yield(Span{off, to - 1}) {
				return
			}
			off = to
		}
	}
}

// eachBack yields the ranges of the given-back records page by page.
func (o *overlay) eachBack(yield func(Span) bool) bool {
	if o.returned == 0 {
		return true
	}
	for _, r := range o.dir.live() {
		for todo := r.p.back; todo != 0; {
			i := bits.TrailingZeros32(todo)
			size := bits.TrailingZeros32(^(todo >> i))
			first := r.base + int64(i)
			if !yield(Span{first, first + int64(size) - 1}) {
				return false
			}
			todo &^= (1<<size - 1) << i
		}
	}
	return true
}

// Demand returns how many records the members whose turn comes could take now.
func (g *Group) Demand() (n int64) {
	if g.turn == nil {
		return 0
	}
	for m := g.turn; ; {
		n = min(n+int64(m.credit), MaxOffset)
		if m = m.next; m == g.turn {
			return n
		}
	}
}
