package sharegroup

import "math/bits"

// Run is a range of records handed out together that have the same history.
type Run struct {
	First, Last int64
	Acquisition uint64 // number of the hand-out, rising within a term
	Partition   int32
	Acquired    uint16 // hand-outs, this one included
	Failed      uint16 // counted returns
	Redelivered bool   // handed out before, or possibly so by an earlier leader
}

// Len returns the number of records in the run.
func (r Run) Len() int { return int(r.Last - r.First + 1) }

// Reason says why a record is dead.
type Reason uint8

// Refused is Outcome Refuse; OverLimit is the group's Limit. Expired and MaxLen
// are what the driver buries for: its time is over, the backlog too long.
const (
	Refused Reason = iota + 1
	OverLimit
	Expired
	MaxLen
)

// Dead is a record that is to be dead-lettered and archived.
type Dead struct {
	Offset   int64
	Acquired uint16
	Failed   uint16
	Reason   Reason
}

// Acquire hands out up to n records to a member, the lowest given-back ones
// first, then the next unread, and appends them to dst. now is in nanoseconds.
// It hands out less if nothing more is available, at MaxAcquired, or when
// ReadAhead is reached (then Urgent is true until the settlement is applied).
func (w *Window) Acquire(dst []Run, t Taker, n int, now int64) []Run {
	o := w.o
	if o == nil || n <= 0 {
		return dst
	}
	o.acquisition++
	return w.acquire(dst, o.holderOf(t), n, now)
}

// acquire is Acquire under the current acquisition number.
func (w *Window) acquire(dst []Run, h *holder, n int, now int64) []Run {
	o := w.o
	if o.policy.MaxAcquired > 0 && !h.Auto {
		n = min(n, o.policy.MaxAcquired-o.acquired)
	}
	var deadline int64
	if h.Lock > 0 && !h.Auto {
		deadline = now + h.Lock
	}
	asked := n
	for n > 0 && o.returned > 0 {
		var took bool
		if dst, took = w.takeBack(dst, h, deadline); took {
			n--
		}
	}
	for n > 0 && o.next < o.end {
		if h.Pull && n < asked && !w.ready() {
			break
		}
		first, last, ok := w.claim(n, now)
		if !ok {
			break
		}
		var took int
		dst, took = w.takeNext(dst, h, first, last, deadline)
		n -= took
	}
	return dst
}

// lowestBack returns the lowest given-back record, a nil page if there is none.
func (o *overlay) lowestBack() (*page, int) {
	for o.returned > 0 {
		if p := o.dir.find(o.backs[0].key); p != nil {
			if p.back != 0 {
				return p, bits.TrailingZeros32(p.back)
			}
			p.queued = false
		}
		o.backs.pop()
	}
	return nil, 0
}

// takeBack hands out the lowest given-back record, or buries it if it is over
// the limit.
func (w *Window) takeBack(dst []Run, h *holder, deadline int64) ([]Run, bool) {
	o := w.o
	p, i := o.lowestBack()
	s, offset := &p.slots[i], p.base+int64(i)
	acquired, failed := s.acquired, s.failed
	o.unback(p, i)
	if o.policy.over(acquired, failed) {
		o.drain(p)
		w.bury(Dead{offset, acquired, failed, OverLimit})
		return dst, false
	}
	acquired = bump(acquired)
	if h.Auto {
		o.drain(p)
		w.accept(offset, offset)
	} else {
		p.held |= 1 << i
		*s = slot{h.Member, acquired, failed, o.acquisition, deadline}
		w.taken(h, offset, deadline)
	}
	return pushRun(dst, Run{offset, offset, o.acquisition, w.partition, acquired, failed, true}), true
}

// ready says that the next unread record is covered by readTo.
func (w *Window) ready() bool { return w.o.policy.ReadAhead == 0 || w.covered() > w.o.next }

// claim moves next over up to n unread records and returns them. It returns
// false if readTo has to be logged first.
func (w *Window) claim(n int, now int64) (first, last int64, ok bool) {
	o := w.o
	to := min(o.next+int64(n), o.gap, o.end)
	if o.policy.ReadAhead > 0 {
		if !w.ready() {
			o.wait(now)
			w.want(n)
			return 0, 0, false
		}
		to = min(to, w.covered())
		o.resume(to-o.next, now)
	}
	first, last = o.next, to-1
	o.next = to
	o.handed = max(o.handed, to)
	if o.readTarget() > o.logged {
		w.markDirty()
	}
	if to == o.gap {
		w.advance()
	}
	return first, last, true
}

// takeNext hands out unread records. Those that have failed under an earlier
// leader have a history of their own.
func (w *Window) takeNext(dst []Run, h *holder, first, last, deadline int64) ([]Run, int) {
	if len(w.failed) == 0 {
		return w.takeFresh(dst, h, first, last, 0, deadline), int(last - first + 1)
	}
	took := 0
	for off := first; off <= last; off++ {
		failed := w.failed[off]
		if failed > 0 && w.o.policy.over(failed, failed) {
			w.bury(Dead{off, failed, failed, OverLimit})
			continue
		}
		dst = w.takeFresh(dst, h, off, off, failed, deadline)
		took++
	}
	return dst, took
}

// takeFresh hands out unread records of one history. Every counted return was
// preceded by a hand-out, so that is where the acquired count starts.
func (w *Window) takeFresh(dst []Run, h *holder, first, last int64, failed uint16, deadline int64) []Run {
	o := w.o
	acquired := bump(failed)
	if h.Auto {
		w.accept(first, last)
	} else {
		for off := first; off <= last; {
			p := o.dir.tail(off)
			to := min(last, p.base+pageMask)
			p.held |= p.mask(off, to)
			for ; off <= to; off++ {
				p.slots[off&pageMask] = slot{h.Member, acquired, failed, o.acquisition, deadline}
				w.taken(h, off, deadline)
			}
		}
	}
	run := Run{first, last, o.acquisition, w.partition, acquired, failed, false}
	if first < o.again {
		run.Last, run.Redelivered = min(last, o.again-1), true
		dst = pushRun(dst, run)
		run.First, run.Last, run.Redelivered = run.Last+1, last, false
	}
	if run.First <= last {
		dst = pushRun(dst, run)
	}
	return dst
}

// taken accounts for a record that h has begun to hold.
func (w *Window) taken(h *holder, offset, deadline int64) {
	w.o.acquired++
	w.o.note(h, offset)
	if deadline != 0 {
		w.lock(offset, deadline)
	}
}

// pushRun appends r to dst, joined with the last run if it continues that.
func pushRun(dst []Run, r Run) []Run {
	if n := len(dst); n > 0 {
		if t := &dst[n-1]; t.Last+1 == r.First && t.Acquisition == r.Acquisition && t.Partition == r.Partition &&
			t.Acquired == r.Acquired && t.Failed == r.Failed && t.Redelivered == r.Redelivered {
			t.Last = r.Last
			return dst
		}
	}
	return append(dst, r)
}
