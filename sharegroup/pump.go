package sharegroup

// Handout is what one member gets in one step.
type Handout struct {
	Member MemberID
	Auto   bool // accepted already, nothing to settle
	Runs   []Run
}

// quantum is how many records a window may hand out before the next one's turn.
// Within it consumers alternate record by record.
const quantum = 64

// Pump hands out up to budget records to members with credit, one record per turn,
// and takes them off the credit. The result is grouped by member, in the order of
// first turns; it and all in it is reused by the next Pump or Acquire. more says
// that the budget ended the step: pump again, after others have had their turn.
func (g *Group) Pump(now int64, budget int) (outs []Handout, more bool) {
	g.begin()
	for budget > 0 && g.turn != nil && len(g.ready) > 0 {
		w := g.ready[0]
		w.o.acquisition++
		left := min(budget, quantum)
		budget -= left
		for left > 0 && g.turn != nil && w.HasAvailable() {
			n := g.serve(w, left, now)
			if n == 0 {
				break
			}
			left -= n
		}
		budget += left
		g.demand(w)
		g.rotate(w)
	}
	return g.outs, g.turn != nil && len(g.ready) > 0
}

// demand tells a window how many records more the members whose turn comes could
// take from it, if that is more than it has reserved.
func (g *Group) demand(w *Window) {
	if g.policy.ReadAhead == 0 || g.turn == nil {
		return
	}
	most := int(min(w.o.unread(), int64(g.policy.ReadAhead)))
	if w.o.logged >= w.o.next+int64(most) {
		return
	}
	n := 0
	for m := g.turn; n < most; {
		n += min(m.credit, most-n)
		if m = m.next; m == g.turn {
			break
		}
	}
	w.want(n)
}

// serve gives the member whose turn it is one record, or what it may have if it
// is the only one, and moves on.
func (g *Group) serve(w *Window, most int, now int64) int {
	m := g.turn
	n := 1
	if m.next == m {
		n = min(most, m.credit)
	}
	if n = g.give(w, m, n, now); n == 0 {
		return 0
	}
	if m.credit -= n; m.credit == 0 {
		g.place(m)
	} else {
		g.turn = m.next
	}
	return n
}

// give acquires for a member into its hand-out and returns how many it got.
func (g *Group) give(w *Window, m *member, n int, now int64) int {
	if m.stamp != g.stamp {
		m.stamp, m.out = g.stamp, len(g.outs)
		g.extend()
		out := &g.outs[m.out]
		out.Member, out.Auto, out.Runs = m.Member, m.Auto, out.Runs[:0]
	}
	out := &g.outs[m.out]
	known := len(out.Runs)
	var size int
	if known > 0 {
		size = out.Runs[known-1].Len()
	}
	out.Runs = w.acquire(out.Runs, w.o.holderOf(m.Taker), n, now)
	got := -size
	for _, r := range out.Runs[max(0, known-1):] {
		got += r.Len()
	}
	if len(out.Runs) == 0 { // it was added just now, so it is the last one
		g.outs = g.outs[:m.out]
		m.stamp = 0
	}
	return got
}

// keepRuns bounds the memory a hand-out keeps for reuse.
const keepRuns = 1024

// begin starts a step with an empty result.
func (g *Group) begin() {
	for i := range g.outs {
		if cap(g.outs[i].Runs) > keepRuns {
			g.outs[i].Runs = nil
		}
	}
	g.outs = g.outs[:0]
	g.stamp++
}

// extend adds a hand-out, reusing the memory of an earlier one.
func (g *Group) extend() {
	if n := len(g.outs); n < cap(g.outs) {
		g.outs = g.outs[:n+1]
		return
	}
	g.outs = append(g.outs, Handout{})
}

// rotate puts the first window of the line at its end, or takes it out if it has
// nothing available now; then an event puts it back.
func (g *Group) rotate(w *Window) {
	n := len(g.ready) - 1
	copy(g.ready, g.ready[1:])
	if w.HasAvailable() {
		g.ready[n] = w
		return
	}
	g.ready[n] = nil
	g.ready = g.ready[:n]
	w.runnable = false
}

// Acquire hands out up to n records to a member at once, whatever its credit
// and whose turn it is, and takes nothing off its credit. The partitions follow
// each other. Where MaxAcquired bounds the group, a member gets at most its share
// of the room, so that a greedy one does not starve the others. The result is
// valid until the next Pump or Acquire.
func (g *Group) Acquire(id MemberID, n int, now int64) ([]Run, error) {
	g.begin()
	m := g.members[id]
	if m == nil {
		return nil, ErrNoMember
	}
	if m.stopped {
		return nil, nil
	}
	if len(g.ready) == 0 {
		g.await(n)
	}
	got := 0
	for tries := len(g.ready); tries > 0 && got < n; tries-- {
		w := g.ready[0]
		w.o.acquisition++
		got += g.give(w, m, g.share(w, n-got), now)
		g.rotate(w)
	}
	if len(g.outs) == 0 {
		return nil, nil
	}
	return g.outs[0].Runs, nil
}

// await tells windows whose hand-outs wait that n records more are wanted, so that
// those who wait together are served together.
func (g *Group) await(n int) {
	for _, w := range g.windows {
		if w.Blocked() {
			w.queue(n)
		}
	}
}

// AcquireFrom is Acquire on one partition.
func (g *Group) AcquireFrom(id MemberID, partition int32, n int, now int64) ([]Run, error) {
	g.begin()
	m, w := g.members[id], g.Window(partition)
	switch {
	case m == nil:
		return nil, ErrNoMember
	case w == nil:
		return nil, ErrNotLeader
	case m.stopped:
		return nil, nil
	case !w.HasAvailable():
		if w.Blocked() {
			w.queue(n)
		}
		return nil, nil
	}
	w.o.acquisition++
	if g.give(w, m, g.share(w, n), now) == 0 {
		return nil, nil
	}
	return g.outs[0].Runs, nil
}

// share bounds what one Acquire may take from a window.
func (g *Group) share(w *Window, n int) int {
	if limit := g.policy.MaxAcquired; limit > 0 {
		n = min(n, max(1, (limit-w.o.acquired)/len(g.members)))
	}
	return n
}
