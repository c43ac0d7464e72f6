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

// Pending says whether Take would return something.
func (w *Window) Pending() bool {
	o := w.o
	return o != nil && (!o.pending.Empty() || o.readTarget() > o.logged)
}

// Urgent says that hand-outs wait for what Take returns: propose it at once.
func (w *Window) Urgent() bool {
	o := w.o
	return o != nil && o.blocked && o.readTarget() > o.logged
}

// Blocked says that records are withheld until a settlement that covers them by
// readTo is applied: an empty Acquire does not mean an empty window.
func (w *Window) Blocked() bool { return w.o != nil && w.o.blocked }

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
	o.logged = max(o.logged, o.readTarget())
	o.pending.ReadTo = o.logged
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

// readTarget returns how far readTo should be logged. Nothing is reserved before
// somebody takes: an idle window logs nothing.
func (o *overlay) readTarget() int64 {
	step := min(o.step, int64(o.policy.ReadAhead))
	if step > 0 && (o.blocked || o.handed > 0) && o.next+(step+1)/2 > o.logged {
		return max(o.handed, o.next+step)
	}
	return o.handed
}

// block notes that a hand-out waits for readTo. The first to wait doubles what is
// reserved from now on, so that fast groups wait rarely and slow ones reserve
// little.
func (o *overlay) block() {
	if o.blocked {
		return
	}
	o.blocked = true
	o.step = min(2*o.step, int64(o.policy.ReadAhead))
}
