package sharegroup

import "math/bits"

// lock notes the deadline of a record just handed out or renewed.
func (w *Window) lock(offset, deadline int64) {
	o := w.o
	o.timed++
	o.sweepLocks()
	o.locks.push(mark{deadline, offset})
	if w.host != nil {
		w.host.locked(deadline)
	}
}

// sweepLocks drops the locks that are over once they are most of the list.
func (o *overlay) sweepLocks() {
	if stale(len(o.locks), o.timed) {
		o.locks.filter(o.locked)
	}
}

// locked says whether m is the lock of a held record.
func (o *overlay) locked(m mark) bool {
	p := o.dir.find(m.offset)
	if p == nil {
		return false
	}
	i := m.offset & pageMask
	return p.held&(1<<i) != 0 && p.slots[i].deadline == m.key
}

// renew restarts the locks of records that h holds with a timer.
func (w *Window) renew(p *page, mine uint32, h *holder, now int64) {
	if h.Lock <= 0 {
		return
	}
	deadline := now + h.Lock
	for todo := mine; todo != 0; todo &= todo - 1 {
		i := bits.TrailingZeros32(todo)
		s := &p.slots[i]
		if s.deadline == deadline {
			continue
		}
		if s.deadline != 0 {
			w.o.timed--
		}
		s.deadline = deadline
		w.lock(p.base+int64(i), deadline)
	}
}

// Expire gives back, counted as failed, every record whose lock is over at now,
// and returns how many.
func (w *Window) Expire(now int64) (n int) {
	o := w.o
	if o == nil {
		return 0
	}
	for len(o.locks) > 0 && o.locks[0].key <= now {
		m := o.locks[0]
		o.locks.pop()
		if !o.locked(m) {
			continue
		}
		n++
		p, i := o.dir.find(m.offset), int(m.offset&pageMask)
		o.unhold(p, 1<<i, o.lookup(p.slots[i].member))
		w.giveBack(p, i, true)
		o.drain(p)
	}
	if n > 0 {
		w.wake()
	}
	return n
}

// NextDeadline returns when the first lock ends.
func (w *Window) NextDeadline() (deadline int64, ok bool) {
	o := w.o
	if o == nil {
		return 0, false
	}
	for len(o.locks) > 0 {
		if m := o.locks[0]; o.locked(m) {
			return m.key, true
		}
		o.locks.pop()
	}
	return 0, false
}
