package sharegroup

// keepPending is the capacity of settlement lists that are kept for reuse.
const keepPending = 4096

func (w *Window) newPending() {
	o := w.o
	if cap(o.pending.Accepted)+cap(o.pending.Archived)+cap(o.pending.Failed) > keepPending {
		o.pending = Settlement{}
	}
	o.pending.reset()
	o.pending.Term, o.pending.Epoch = o.term, w.epoch
	o.ticket++
	o.pending.Seq = o.ticket
	o.failedKept = 0
}

// Take moves what has been gathered into s, coalesced, to be logged; it returns
// false if there is nothing. The slices of s change owner: the window reuses the
// old ones, and the caller owns the new ones until it calls Take with s again.
//
// The caller proposes the settlement and calls Apply when it is committed. If it
// certainly will not be, the caller proposes the same settlement again, as often
// as needed and in any order, as long as the window leads in that term. If that
// is unknown it does nothing: either Apply comes or Unlead.
func (w *Window) Take(s *Settlement) bool {
	o := w.o
	if !w.Pending() {
		return false
	}
	o.pending.ReadTo, o.pending.Lowered = o.reserve()
	o.pending.normalize()
	*s, o.pending = o.pending, *s
	w.newPending()
	return true
}

// TakeDead appends the records to be dead-lettered to dst, each once. If the
// policy says DeadLetter the caller calls Archive when the copy is safe, else
// they are archived already.
func (w *Window) TakeDead(dst []Dead) []Dead {
	o := w.o
	if o == nil || len(o.dead) == 0 {
		return dst
	}
	dst = append(dst, o.dead...)
	if o.dead = o.dead[:0]; cap(o.dead) > keepPending {
		o.dead = nil
	}
	return dst
}

// Archive gathers dead records of first..last, whose copies are safe, as
// archived and returns the ticket. Records that are available or held are left
// alone.
func (w *Window) Archive(first, last int64) (ticket uint64) {
	o := w.o
	if o == nil {
		return 0
	}
	for off := max(first, w.floor); off <= min(last, o.next-1); off++ {
		if p := o.dir.find(off); p == nil || (p.held|p.back)&(1<<(off&pageMask)) == 0 {
			w.archive(off, off)
		}
	}
	return o.pending.Seq
}
