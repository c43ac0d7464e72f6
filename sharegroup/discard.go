package sharegroup

import "math/bits"

// Hole tells that first..last hold no record for the group: compacted away,
// control records, trimmed. Whoever holds some of them holds them no longer, and
// in a Group gets its credit back. Offsets not yet reached are archived when next
// steps over them, the others now. Offsets at or above the end of the log are
// left out.
func (w *Window) Hole(first, last int64) {
	o := w.o
	if o == nil {
		return
	}
	first, last = max(first, w.floor), min(last, o.end-1)
	if first > last {
		return
	}
	if first < o.next {
		to := min(last, o.next-1)
		w.dropTracked(first, to, true)
		w.archive(first, to)
		w.wake()
		first = o.next
	}
	for off := first; off <= last; { // closing and settled stay disjoint
		to := last
		if sp, ok := w.settled.from(off); ok {
			if sp.First <= off {
				off = sp.Last + 1
				continue
			}
			to = min(to, sp.First-1)
		}
		o.closing.add(off, to)
		off = to + 1
	}
	w.advance()
	w.wake() // what hand-outs waited for may have gone
}

// Purge archives all available records; held ones stay with their holders. It
// returns how many, and the ticket of the settlement.
func (w *Window) Purge() (n int64, ticket uint64) {
	o := w.o
	if o == nil {
		return 0, 0
	}
	n = w.Ready()
	for _, r := range o.dir.live() {
		for todo := r.p.back; todo != 0; todo &= todo - 1 {
			off := r.base + int64(bits.TrailingZeros32(todo))
			w.archive(off, off)
		}
	}
	for off := int64(0); ; {
		p := o.dir.from(off)
		if p == nil {
			break
		}
		off = p.base + pageSize
		p.back, p.queued = 0, false
		o.drain(p)
	}
	o.returned, o.backs = 0, nil
	if o.next < o.end {
		w.archive(o.next, o.end-1)
		o.next, o.ahead, o.closing = o.end, 0, spanSet{}
		w.advance()
	}
	return n, o.pending.Seq
}

// SeekTo returns the settlement that moves the group to offset: what lies below is
// settled, everything else is unsettled again, failed counts are forgotten. It
// takes effect for all replicas when applied; then nothing is held any more, and
// every settlement and ticket from before is void (Apply returns false for those
// already proposed). Only one seek may be on its way at a time.
func (w *Window) SeekTo(offset int64) (Settlement, error) {
	o := w.o
	if o == nil {
		return Settlement{}, ErrNotLeader
	}
	o.ticket++
	return Settlement{
		Term: o.term, Epoch: w.epoch + 1, Seq: o.ticket,
		ReadTo: max(o.handed, w.readTo), Lowered: o.lowered,
		Seek: true, SeekTo: min(max(offset, 0), o.end),
	}, nil
}

// dropTracked forgets the slots of first..last.
func (w *Window) dropTracked(first, last int64, refund bool) {
	o := w.o
	for off := first; off <= last; {
		p := o.dir.from(off)
		if p == nil || p.base > last {
			return
		}
		off = p.base + pageSize
		mask := p.mask(first, last)
		o.returned -= bits.OnesCount32(p.back & mask)
		p.back &^= mask
		for todo := p.held & mask; todo != 0; todo &= todo - 1 {
			i := bits.TrailingZeros32(todo)
			h := o.lookup(p.slots[i].member)
			o.unhold(p, 1<<i, h)
			if refund && w.host != nil {
				w.host.refund(h.Member, 1)
			}
		}
		o.drain(p)
	}
}
