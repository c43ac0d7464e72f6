package sharegroup

import (
	"errors"
	"math/bits"
)

// ErrStale says that the member does not hold what it wants to settle: settled
// before, lock over, another leader since, or never handed out to it. Nothing has
// changed. (Kafka: INVALID_RECORD_STATE; AMQP and MQTT: ignore.)
var ErrStale = errors.New("sharegroup: record not held by member")

// ErrNotLeader says that the window has no overlay.
var ErrNotLeader = errors.New("sharegroup: window does not lead")

// Outcome is what a holder wants for its records.
type Outcome uint8

// Accept, Refuse and Gap settle: done, dead (to be dead-lettered), and no such
// record (Kafka's acknowledge type 0, archived without a dead letter). Release and
// Fail give back in place, Fail counts as failed if the policy counts. Renew
// restarts the lock of a timed holder.
const (
	Accept Outcome = iota + 1
	Release
	Fail
	Refuse
	Gap
	Renew
)

// Ack is a holder's word on the records it holds in First..Last. Records in
// between that others hold are left alone, so a range may cover a whole prefetch.
type Ack struct {
	Member      MemberID
	First, Last int64
	Outcome     Outcome
	Term        uint64 // of the leader that handed out, 0 is not checked
	// Acquisition, if not 0, leaves alone what was handed out to the member
	// again after that hand-out.
	Acquisition uint64
	// Exact changes nothing unless all of First..Last is held.
	Exact bool
	// Reason says why Refuse refuses, 0 is Refused.
	Reason Reason
}

// Settled is the result of an Ack.
type Settled struct {
	Records int
	// Ticket is the Seq of the settlement that makes it durable; 0 if nothing is
	// to be waited for.
	Ticket uint64
}

// Settle applies an Ack to the overlay and gathers what is to be logged. It costs
// in the order of the records held in the range, not of the span.
func (w *Window) Settle(a Ack, now int64) (Settled, error) {
	o := w.o
	if o == nil {
		return Settled{}, ErrNotLeader
	}
	if a.Term != 0 && a.Term != o.term {
		return Settled{}, ErrStale
	}
	h := o.lookup(a.Member)
	if h == nil || h.held == 0 {
		return Settled{}, ErrStale
	}
	if a.Acquisition == 0 {
		a.Acquisition = o.acquisition
	}
	if a.Exact && !o.holdsAll(h, &a) {
		return Settled{}, ErrStale
	}
	o.wrote = false
	n := w.settleHeld(h, &a, now)
	if n == 0 {
		return Settled{}, ErrStale
	}
	if o.policy.MaxAcquired > 0 || a.Outcome == Release || a.Outcome == Fail {
		w.wake()
	}
	res := Settled{Records: n}
	if o.wrote {
		res.Ticket = o.pending.Seq
	}
	return res, nil
}

// settleHeld walks the pages of the range.
func (w *Window) settleHeld(h *holder, a *Ack, now int64) (n int) {
	o := w.o
	if p := o.dir.find(a.First); p != nil && a.Last < p.base+pageSize {
		return w.settlePage(p, h, a, now)
	}
	for off := a.First; off <= a.Last && h.held > 0; {
		p := o.dir.from(off)
		if p == nil || p.base > a.Last {
			break
		}
		off = p.base + pageSize
		n += w.settlePage(p, h, a, now)
	}
	return n
}

// mine returns which records of the page an Ack is about.
func (p *page) mine(h *holder, a *Ack) (mine uint32) {
	for todo := p.held & p.mask(a.First, a.Last); todo != 0; todo &= todo - 1 {
		i := bits.TrailingZeros32(todo)
		if s := &p.slots[i]; s.member == h.Member && s.acquisition <= a.Acquisition {
			mine |= 1 << i
		}
	}
	return mine
}

// holdsAll says whether h holds every record of the range.
func (o *overlay) holdsAll(h *holder, a *Ack) bool {
	if a.Last-a.First >= int64(h.held) {
		return false
	}
	for off := a.First; off <= a.Last; {
		p := o.dir.find(off)
		if p == nil || p.mine(h, a) != p.mask(a.First, a.Last) {
			return false
		}
		off = p.base + pageSize
	}
	return true
}

// settlePage settles what h holds of the range in one page. The page may be gone
// afterwards.
func (w *Window) settlePage(p *page, h *holder, a *Ack, now int64) (n int) {
	o := w.o
	mine := p.mine(h, a)
	if mine == 0 {
		return 0
	}
	if a.Outcome == Renew {
		w.renew(p, mine, h, now)
		return bits.OnesCount32(mine)
	}
	o.unhold(p, mine, h)
	switch a.Outcome {
	case Accept, Gap:
		for todo := mine; todo != 0; {
			i := bits.TrailingZeros32(todo)
			size := bits.TrailingZeros32(^(todo >> i))
			first := p.base + int64(i)
			if a.Outcome == Accept {
				w.accept(first, first+int64(size)-1)
			} else {
				w.archive(first, first+int64(size)-1)
			}
			todo &^= (1<<size - 1) << i
		}
	default:
		for todo := mine; todo != 0; todo &= todo - 1 {
			i := bits.TrailingZeros32(todo)
			if a.Outcome == Refuse {
				s := &p.slots[i]
				w.bury(Dead{p.base + int64(i), s.acquired, s.failed, max(a.Reason, Refused)})
			} else {
				w.giveBack(p, i, a.Outcome == Fail)
			}
		}
	}
	o.drain(p)
	return bits.OnesCount32(mine)
}

// unhold takes records from their holder; what becomes of them is up to the
// caller.
func (o *overlay) unhold(p *page, mine uint32, h *holder) {
	p.held &^= mine
	n := bits.OnesCount32(mine)
	o.acquired -= n
	h.held -= n
	if stale(len(h.log), h.held) {
		o.sweepLog(h)
	}
	if o.timed == 0 {
		return
	}
	for todo := mine; todo != 0; todo &= todo - 1 {
		if p.slots[bits.TrailingZeros32(todo)].deadline != 0 {
			o.timed--
		}
	}
	o.sweepLocks()
}

// drain gives the page back if no record has a slot in it.
func (o *overlay) drain(p *page) {
	if p.held|p.back == 0 {
		o.dir.free(p)
	}
}

// accept gathers first..last as accepted.
func (w *Window) accept(first, last int64) {
	o := w.o
	o.pending.Accepted = pushSpan(o.pending.Accepted, first, last)
	o.wrote = true
	w.markDirty()
}

// archive gathers first..last as archived.
func (w *Window) archive(first, last int64) {
	o := w.o
	o.pending.Archived = pushSpan(o.pending.Archived, first, last)
	o.wrote = true
	w.markDirty()
}

// bury lists a record as dead. With a dead-letter policy it waits for Archive.
func (w *Window) bury(d Dead) {
	w.o.dead = append(w.o.dead, d)
	if !w.o.policy.DeadLetter {
		w.archive(d.Offset, d.Offset)
	}
	w.markDirty()
}

// giveBack makes a record that was just taken from its holder available in its
// place, or buries it at the limit.
func (w *Window) giveBack(p *page, i int, counted bool) {
	o := w.o
	s, offset := &p.slots[i], p.base+int64(i)
	if counted && o.policy.counts() {
		s.failed = bump(s.failed)
		o.pushFailed(FailedCount{offset, s.failed})
		o.wrote = true
		w.markDirty()
	}
	if o.policy.over(s.acquired, s.failed) {
		w.bury(Dead{offset, s.acquired, s.failed, OverLimit})
		return
	}
	p.back |= 1 << i
	o.returned++
	if !p.queued {
		p.queued = true
		o.backs.push(mark{key: p.base})
	}
}

// pushFailed gathers a count. A record that is refused over and over must not
// make the list grow, so the list is compacted whenever it has doubled.
func (o *overlay) pushFailed(f FailedCount) {
	list := append(o.pending.Failed, f)
	if stale(len(list), o.failedKept) {
		list = normalizeFailed(list)
		o.failedKept = len(list)
	}
	o.pending.Failed = list
}

// ReleaseAll gives back everything a member holds and forgets the member: it has
// left or is lost. counted counts each record as failed. It returns how many.
func (w *Window) ReleaseAll(id MemberID, counted bool) (n int) {
	o := w.o
	if o == nil {
		return 0
	}
	h := o.lookup(id)
	if h == nil {
		return 0
	}
	if h.held > 0 {
		o.sweepLog(h)
		list := h.log
		h.log = nil
		for _, offset := range list {
			p, i, ok := o.heldBy(h, offset)
			if !ok {
				continue
			}
			n++
			o.unhold(p, 1<<i, h)
			w.giveBack(p, i, counted)
			o.drain(p)
		}
	}
	delete(o.holders, id)
	o.last = nil
	w.wake()
	return n
}
