package sharegroup

// reservation is how the overlay keeps readTo above what it hands out. readTo is
// logged before, so hand-outs wait for it; how much more than what they wait for is
// reserved is a matter of pace.
//
// Lowering readTo is safe because nothing above is handed out from the moment the
// lowering is taken until readTo is applied with its number (see covered).
type reservation struct {
	handed  int64  // what was handed out lies below
	logged  int64  // readTo of the settlements taken so far
	lowered uint64 // and how often that was lowered
	base    int64  // to where, the last time
	lower   bool   // it is to be lowered
	wanted  int64  // hand-outs could go on to there now
	waiting int64  // a hand-out of this record waits for readTo if it is still the next
	pace
}

// nobody waits.
const nobody = -1

// pace decides whether to reserve ahead of demand: only when hand-outs have waited
// again and again, so that the mark of a slow group is exact.
type pace struct {
	margin  int64 // records reserved ahead
	streak  int64 // waits in quick succession, long ones counted more
	run     int64 // records handed out for the first time since the last wait
	paused  bool  // a wait is not over yet
	resumed int64 // when hand-outs went on after a wait
	looked  int64 // time of the last Calm
	fresh   int64 // records handed out for the first time since then
}

// Shape of the pace. Waits follow each other quickly if there is less than
// quickly, in nanoseconds, between them; so many of them are put up with, fewer
// if more than heavy records go out in between. Then twice as many are reserved
// ahead as go out between two waits, at least firstStep.
const (
	quickly   = 20_000_000
	patience  = 16
	heavy     = 64
	firstStep = 32
)

// reserved begins with what is logged.
func (o *overlay) reserved(w *Window) {
	o.logged, o.lowered, o.base = w.readTo, w.lowered, w.readTo
	o.waiting = nobody
}

// seen is the lowest sound readTo: what this leader or an earlier one may have
// handed out lies below.
func (o *overlay) seen() int64 { return max(o.again, o.handed) }

// blocked says that a hand-out waits for readTo. When next has moved by other
// means, it is to be tried again.
func (o *overlay) blocked() bool { return o.waiting == o.next }

// covered returns the offset below which records may be handed out: the applied
// readTo, but while a lowering is on its way no more than what that leaves.
func (w *Window) covered() int64 {
	if w.lowered < w.o.lowered {
		return min(w.readTo, w.o.base)
	}
	return w.readTo
}

// Pending says whether Take would return something.
func (w *Window) Pending() bool {
	o := w.o
	return o != nil && (!o.pending.Empty() || o.readTarget() > o.logged || o.lowering())
}

// Urgent says that hand-outs wait for what Take returns: propose it at once.
func (w *Window) Urgent() bool { return w.Blocked() && w.o.readTarget() > w.o.logged }

// Blocked says that records are withheld until a settlement that covers them by
// readTo is applied: an empty Acquire does not mean an empty window.
func (w *Window) Blocked() bool { return w.o != nil && w.o.blocked() }

// Ahead says that readTo is above what was handed out: after a crash records
// would be marked redelivered that nobody has seen.
func (w *Window) Ahead() bool {
	o := w.o
	return o != nil && o.policy.ReadAhead > 0 && o.logged > o.seen()
}

// Exact has readTo lowered to what was handed out, with the next settlement.
// Hand-outs that wait, wait no longer. It is for when nobody takes records: the
// next to do so has to wait for a reservation.
func (w *Window) Exact() {
	o := w.o
	if o == nil || o.policy.ReadAhead == 0 {
		return
	}
	o.pace = pace{}
	o.waiting, o.wanted, o.lower = nobody, 0, true
	if o.lowering() {
		w.markDirty()
	}
	w.wake()
}

// Calm is to be called from time to time while Ahead. If few records were handed
// out since the last time it stops reserving ahead and has readTo lowered, with the
// next settlement.
func (w *Window) Calm(now int64) {
	o := w.o
	if o == nil {
		return
	}
	looked, fresh := o.looked, o.fresh
	o.looked, o.fresh = now, 0
	if looked == 0 || fresh >= (now-looked)/quickly && fresh > 0 || o.blocked() {
		return
	}
	w.Exact()
}

// want says that hand-outs to n more records wait, or soon will.
func (w *Window) want(n int) {
	o := w.o
	n = min(n, o.policy.ReadAhead)
	if most := o.policy.MaxAcquired; most > 0 {
		n = min(n, most-o.acquired)
	}
	o.wanted = max(o.wanted, min(o.next+int64(n), o.end))
	if o.readTarget() > o.logged {
		w.markDirty()
	}
}

// queue is want for one more who waits beside the others.
func (w *Window) queue(n int) {
	w.want(n + int(max(0, w.o.wanted-w.o.next)))
}

// readTarget returns how far readTo should be logged: what is wanted now, asked for
// when half of that is used up, and under load more than that. Nothing is reserved
// before somebody takes.
func (o *overlay) readTarget() int64 {
	target := o.handed
	if o.policy.ReadAhead == 0 {
		return target
	}
	if o.blocked() {
		target = max(target, o.wanted, o.next+1)
	} else if o.wanted > o.logged && o.next+(o.wanted-o.next+1)/2 > o.logged {
		target = max(target, o.wanted)
	}
	if o.margin > 0 && o.next+(o.margin+1)/2 > max(o.logged, target) {
		target = max(target, o.next+o.margin)
	}
	return target
}

// lowering says whether the next settlement lowers readTo.
func (o *overlay) lowering() bool {
	return o.lower && !o.blocked() && o.logged > o.seen()
}

// reserve returns the readTo of a settlement that is being taken.
func (o *overlay) reserve() (readTo int64, lowered uint64) {
	if o.lowering() {
		o.lowered++
		o.base = o.seen()
		o.logged, o.wanted = o.base, 0
	}
	o.lower = false
	o.logged = max(o.logged, o.readTarget())
	return o.logged, o.lowered
}

// wait notes that the next hand-out waits for readTo.
func (o *overlay) wait(now int64) {
	if o.blocked() {
		return
	}
	o.waiting = o.next
	if o.paused {
		return
	}
	run := o.run
	o.paused, o.run = true, 0
	if now-o.resumed >= quickly {
		o.streak, o.margin = 0, 0
		return
	}
	if o.streak += 1 + run/heavy; o.streak > patience {
		o.margin = min(max(2*o.margin, 2*run, firstStep), int64(o.policy.ReadAhead))
	}
}

// resume notes that n records are handed out for the first time.
func (o *overlay) resume(n, now int64) {
	o.fresh += n
	o.run += n
	if o.paused {
		o.paused, o.resumed = false, now
	}
}
