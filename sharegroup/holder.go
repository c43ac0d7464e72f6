package sharegroup

import "slices"

// MemberID names a member of a group under one leader. 0 is nobody.
type MemberID uint32

// Taker is a member as a window sees it.
type Taker struct {
	Member MemberID
	// Lock is how long a hand-out may be held, in nanoseconds; 0 is until it is
	// settled or the member leaves.
	Lock int64
	// Auto accepts a record by handing it out (AMQP no_ack, MQTT QoS 0).
	Auto bool
	// Pull takes what there is and waits for readTo only if that is nothing.
	Pull bool
}

// holder is what a window keeps of a member that takes from it.
type holder struct {
	Taker
	held int
	// log lists what was handed out to the member, in that order. It is swept
	// when little of it is held any more, so settling need not search it and
	// ReleaseAll need not search the window.
	log []int64
}

// stale says that a list of n entries, of which useful ones count, is worth
// sweeping. Sweeping then costs a constant per entry that became useless.
func stale(n, useful int) bool { return n > 4*useful+slack }

// slack is how many useless entries are never worth sweeping.
const slack = 64

// note adds a hand-out to the member's log.
func (o *overlay) note(h *holder, offset int64) {
	h.log = append(h.log, offset)
	h.held++
}

// sweepLog leaves in the log what the member holds, sorted, each once.
func (o *overlay) sweepLog(h *holder) {
	if h.held == 0 {
		h.log = clip(h.log[:0])
		return
	}
	if !slices.IsSorted(h.log) {
		slices.Sort(h.log)
	}
	last := int64(-1)
	h.log = slices.DeleteFunc(h.log, func(offset int64) bool {
		if offset == last {
			return true
		}
		last = offset
		_, _, ok := o.heldBy(h, offset)
		return !ok
	})
	h.log = clip(h.log)
}

// keepCap is the capacity that a swept list keeps however short it is.
const keepCap = 1024

// clip gives back the memory of a list that has become much shorter.
func clip[T any](s []T) []T {
	if cap(s) > keepCap && cap(s) > 8*len(s) {
		return append(make([]T, 0, 2*len(s)), s...)
	}
	return s
}

// holderOf returns the entry of a member, made if it is missing.
func (o *overlay) holderOf(t Taker) *holder {
	if h := o.last; h != nil && h.Member == t.Member {
		h.Taker = t
		return h
	}
	h := o.holders[t.Member]
	if h == nil {
		h = &holder{}
		if o.holders == nil {
			o.holders = make(map[MemberID]*holder)
		}
		o.holders[t.Member] = h
	}
	h.Taker = t
	o.last = h
	return h
}

// lookup returns the entry of a member, or nil.
func (o *overlay) lookup(id MemberID) *holder {
	if o.last != nil && o.last.Member == id {
		return o.last
	}
	h := o.holders[id]
	if h != nil {
		o.last = h
	}
	return h
}

// heldBy returns page and slot of a record if h holds it.
func (o *overlay) heldBy(h *holder, offset int64) (p *page, i int, ok bool) {
	p = o.dir.find(offset)
	if p == nil {
		return nil, 0, false
	}
	i = int(offset & pageMask)
	return p, i, p.held&(1<<i) != 0 && p.slots[i].member == h.Member
}
