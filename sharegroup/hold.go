package sharegroup

// Pass gives a record that a member holds to another one, without a time limit:
// for a holder that is to outlive the member it was handed out to. It returns false,
// having changed nothing, if the first does not hold it. It is no hand-out: the
// counts stay, and the other member may lie idle for ever.
func (w *Window) Pass(from, to MemberID, offset int64) bool {
	o := w.o
	if o == nil {
		return false
	}
	h := o.lookup(from)
	if h == nil || h.held == 0 {
		return false
	}
	p, i, ok := o.heldBy(h, offset)
	if !ok {
		return false
	}
	o.unhold(p, 1<<i, h)
	s := &p.slots[i]
	s.member, s.deadline = to, 0
	p.held |= 1 << i
	o.acquired++
	o.note(o.holderOf(Taker{Member: to, Pull: true}), offset)
	return true
}

// Hold hands out the record at offset itself to a member, without a time limit and whatever its credit, if
// nobody else holds it: one that it held before, under an earlier leader or before
// it left. What lies before it unread is as if it had been given back, which is
// what it has been, or nearly: a record that somebody held was handed out in its
// turn.
func (w *Window) Hold(id MemberID, offset int64) bool {
	o := w.o
	if o == nil || offset < w.floor || offset >= o.end || w.Settled(offset) {
		return false
	}
	if offset >= o.next {
		w.passOver(offset)
	}
	p := o.dir.find(offset)
	if p == nil {
		return false // on its way, or a hole
	}
	i := int(offset & pageMask)
	if p.back&(1<<i) == 0 {
		return false
	}
	p.back &^= 1 << i
	o.returned--
	if p.back == 0 && p.queued {
		p.queued = false
		o.backs.filter(func(m mark) bool { return m.key != p.base })
	}
	o.acquisition++
	s := &p.slots[i]
	*s = slot{id, bump(s.acquired), s.failed, o.acquisition, 0}
	p.held |= 1 << i
	h := o.lookup(id)
	if h == nil {
		h = o.holderOf(Taker{Member: id})
	}
	w.taken(h, offset, 0)
	return true
}

// passOver makes what is unread up to offset given back.
func (w *Window) passOver(offset int64) {
	o := w.o
	for o.next <= offset {
		to := min(offset+1, o.gap, o.end)
		for off := o.next; off < to; off++ {
			p := o.dir.tail(off)
			failed := w.failed[off]
			p.slots[off&pageMask] = slot{acquired: bump(failed), failed: failed}
			p.back |= 1 << (off & pageMask)
			o.returned++
			if !p.queued {
				p.queued = true
				o.backs.push(mark{key: p.base})
			}
		}
		o.next = to
		o.handed = max(o.handed, to)
		if to == o.gap {
			w.advance()
		}
	}
	if o.readTarget() > o.logged {
		w.markDirty()
	}
	w.wake()
}

// Pass is Window.Pass on the window of a partition.
func (g *Group) Pass(from, to MemberID, partition int32, offset int64) bool {
	w := g.Window(partition)
	return w != nil && g.members[to] != nil && w.Pass(from, to, offset)
}

// Hold is Window.Hold on the window of a partition.
func (g *Group) Hold(id MemberID, partition int32, offset int64) bool {
	w := g.Window(partition)
	return w != nil && g.members[id] != nil && w.Hold(id, offset)
}
