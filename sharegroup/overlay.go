package sharegroup

import "math"

// overlay is what only the leader knows and what goes with its leadership. A
// record below next that has no slot and is not settled durably is on its way
// there: its settlement is gathered, proposed, or waits for its dead letter.
type overlay struct {
	term   uint64
	policy Policy
	end    int64 // of the log
	next   int64 // the next unread record; never a settled one
	gap    int64 // next..gap-1 is known to hold no settled or closing offset
	again  int64 // records below may have been handed out before next passed them
	ahead  int64 // settled offsets at or above next

	closing spanSet // holes at or above next, archived when next steps over them

	dir      pageDir
	backs    markHeap // pages with given-back records, lowest first
	acquired int      // held records
	returned int      // given-back records

	acquisition uint64
	holders     map[MemberID]*holder
	last        *holder // the one used last
	locks       markHeap
	timed       int // held records with a deadline

	pending Settlement
	ticket  uint64 // last ticket given to a settlement
	wrote   bool   // pending was added to since it was last cleared
	dead    []Dead

	failedKept int // length of pending.Failed when last compacted

	reservation
}

// Lead makes the window hand out records. end is the end of the log as of the
// last applied entry, term the leadership the settlements will carry; every
// entry of earlier leaders must have been applied. Everything unsettled is
// available, and marked redelivered below readTo.
func (w *Window) Lead(term uint64, end int64, policy Policy) {
	w.o = &overlay{term: term, policy: policy, end: max(end, w.floor), again: w.readTo}
	w.open()
}

// open starts the overlay at the floor with a new pending settlement.
func (w *Window) open() {
	o := w.o
	o.next = w.floor
	o.end = max(o.end, w.floor)
	o.ahead = w.settled.count
	o.reserved(w)
	w.newPending()
	w.advance()
	w.wake()
}

// restart begins anew after a seek: what was held is held no longer, what was on
// its way is void.
func (w *Window) restart() {
	old := w.o
	w.o = &overlay{
		term: old.term, policy: old.policy, end: old.end,
		again:       max(old.again, old.handed, w.readTo),
		acquisition: old.acquisition, ticket: old.ticket,
		reservation: reservation{handed: old.handed, pace: old.pace},
	}
	for _, r := range old.dir.live() {
		pages.Put(r.p)
	}
	w.open()
}

// Unlead drops the overlay. Settlements taken and not applied must not be
// proposed again.
func (w *Window) Unlead() {
	if w.o == nil {
		return
	}
	for _, r := range w.o.dir.live() {
		pages.Put(r.p)
	}
	w.o = nil
}

// Leading says whether the window has an overlay.
func (w *Window) Leading() bool { return w.o != nil }

// Term returns the term given to Lead, 0 if the window does not lead.
func (w *Window) Term() uint64 {
	if w.o == nil {
		return 0
	}
	return w.o.term
}

// SetPolicy replaces the policy of a leading window.
func (w *Window) SetPolicy(p Policy) {
	if w.o != nil {
		w.o.policy, w.o.waiting = p, nobody
		w.wake()
	}
}

// Extend tells that the log now ends at end (exclusive).
func (w *Window) Extend(end int64) {
	if o := w.o; o != nil && end > o.end {
		o.end = end
		w.advance()
		w.wake()
	}
}

// advance moves next over what is settled or closing, and finds the next gap.
func (w *Window) advance() {
	o := w.o
	for {
		if sp, ok := w.settled.from(o.next); ok && sp.First <= o.next {
			o.ahead -= sp.Last - o.next + 1
			o.next = sp.Last + 1
		} else if sp, ok := o.closing.front(); ok && sp.First <= o.next {
			w.archive(o.next, sp.Last)
			o.closing.popFront()
			o.next = sp.Last + 1
		} else {
			break
		}
	}
	o.gap = math.MaxInt64
	if sp, ok := w.settled.from(o.next); ok {
		o.gap = sp.First
	}
	if sp, ok := o.closing.front(); ok {
		o.gap = min(o.gap, sp.First)
	}
}

// settleAhead is settle for a span that reaches next or beyond.
func (w *Window) settleAhead(first, last int64) {
	o := w.o
	o.end = max(o.end, last+1)
	if o.closing.spans > 0 {
		o.closing.cut(first, last)
	}
	if first <= w.floor {
		w.settleSpan(first, last)
		o.next = max(o.next, w.floor)
		o.ahead = w.settled.countFrom(o.next)
	} else {
		if first < o.next {
			w.settled.add(first, o.next-1)
		}
		o.ahead += w.settled.add(max(first, o.next), last)
	}
	w.advance()
}

// wake tells the group that there may be something to hand out.
func (w *Window) wake() {
	if w.host != nil && !w.runnable && w.HasAvailable() {
		w.host.available(w)
	}
}

// markDirty tells the group that there is something to log or dead-letter.
func (w *Window) markDirty() {
	if w.host != nil && !w.dirty {
		w.host.dirty(w)
	}
}

// Ready returns how many records are available now.
func (w *Window) Ready() int64 {
	if w.o == nil {
		return 0
	}
	return int64(w.o.returned) + w.o.unread()
}

func (o *overlay) unread() int64 {
	return max(0, o.end-o.next-o.ahead-o.closing.count)
}

// InFlight returns how many records are held by members.
func (w *Window) InFlight() int {
	if w.o == nil {
		return 0
	}
	return w.o.acquired
}

// Settling returns how many records are settled by their holders but not yet by
// an applied entry; those that wait for their dead letter are among them.
func (w *Window) Settling() int64 {
	o := w.o
	if o == nil {
		return 0
	}
	settledBelow := w.settled.count - o.ahead
	return o.next - w.floor - settledBelow - int64(o.acquired+o.returned)
}

// HasAvailable says whether Acquire would hand out a record: one that is
// available, with room below MaxAcquired and covered by ReadAhead.
func (w *Window) HasAvailable() bool {
	o := w.o
	if o == nil || o.policy.MaxAcquired > 0 && o.acquired >= o.policy.MaxAcquired {
		return false
	}
	return o.returned > 0 || o.next < o.end && !o.blocked()
}

// Peek returns the lowest available offset.
func (w *Window) Peek() (offset int64, ok bool) {
	o := w.o
	if o == nil {
		return 0, false
	}
	if p, i := o.lowestBack(); p != nil {
		return p.base + int64(i), true
	}
	return o.next, o.next < o.end
}

// Held returns how many records a member holds.
func (w *Window) Held(id MemberID) int {
	if w.o == nil {
		return 0
	}
	if h := w.o.lookup(id); h != nil {
		return h.held
	}
	return 0
}

// HeldBy appends the offsets that a member holds to dst, in their order.
func (w *Window) HeldBy(dst []int64, id MemberID) []int64 {
	if w.o == nil {
		return dst
	}
	h := w.o.lookup(id)
	if h == nil || h.held == 0 {
		return dst
	}
	w.o.sweepLog(h)
	return append(dst, h.log...)
}

// Footprint is what a leading window keeps in memory.
type Footprint struct {
	Slots   int // records in flight or given back
	Pages   int // each with up to 32 slots
	Spans   int // settled ranges above the floor, and holes ahead
	Failed  int // failed counts
	Logged  int // entries in the logs of members
	Locks   int // timed locks, some of them over
	Pending int // entries of the settlement being gathered
}

// Footprint counts what the window keeps, for tests and metrics. It walks it.
func (w *Window) Footprint() Footprint {
	f := Footprint{Spans: w.settled.spans, Failed: len(w.failed)}
	o := w.o
	if o == nil {
		return f
	}
	f.Slots, f.Pages = o.dir.count(), len(o.dir.live())
	f.Spans += o.closing.spans
	for _, h := range o.holders {
		f.Logged += len(h.log)
	}
	f.Locks = len(o.locks)
	f.Pending = len(o.pending.Accepted) + len(o.pending.Archived) + len(o.pending.Failed)
	return f
}
