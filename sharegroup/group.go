package sharegroup

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// Group hands the records of leading windows out to the members of one share
// group. It is not safe for concurrent use; one goroutine steps it.
type Group struct {
	policy  Policy
	windows []*Window // by partition

	members   map[MemberID]*member
	lastID    MemberID
	consumers int  // members pushed to
	exclusive bool // one of them is exclusive
	turn      *member

	ready    []*Window // may have something available, first in line first
	dirties  []*Window // may have something to log or dead-letter
	deadline int64     // no lock ends before

	outs  []Handout
	stamp uint64 // number of the pump
}

// NewGroup returns a group without windows and members.
func NewGroup(p Policy) *Group {
	return &Group{policy: p, members: make(map[MemberID]*member), deadline: math.MaxInt64}
}

// Lead makes the window of a partition lead (see Window.Lead) and serves it.
func (g *Group) Lead(partition int32, w *Window, term uint64, end int64) {
	g.Unlead(partition)
	w.partition, w.host = partition, groupHost{g}
	i, _ := g.index(partition)
	g.windows = slices.Insert(g.windows, i, w)
	w.Lead(term, end, g.policy)
}

// Unlead makes the window of a partition lead no more and lets go of it.
func (g *Group) Unlead(partition int32) {
	i, ok := g.index(partition)
	if !ok {
		return
	}
	w := g.windows[i]
	w.Unlead()
	same := func(x *Window) bool { return x == w }
	g.windows = slices.Delete(g.windows, i, i+1)
	g.ready = slices.DeleteFunc(g.ready, same)
	g.dirties = slices.DeleteFunc(g.dirties, same)
	w.host, w.runnable, w.dirty = nil, false, false
}

func (g *Group) index(partition int32) (int, bool) {
	return slices.BinarySearchFunc(g.windows, partition, func(w *Window, p int32) int {
		return cmp.Compare(w.partition, p)
	})
}

// Window returns the window of a partition, nil if the group does not serve it.
// Every method of it may be called but Lead and Unlead; the group notices.
func (g *Group) Window(partition int32) *Window {
	if len(g.windows) == 1 && g.windows[0].partition == partition {
		return g.windows[0]
	}
	if i, ok := g.index(partition); ok {
		return g.windows[i]
	}
	return nil
}

// Windows yields the windows by partition.
func (g *Group) Windows() iter.Seq[*Window] { return slices.Values(g.windows) }

// SetPolicy replaces the policy of all windows.
func (g *Group) SetPolicy(p Policy) {
	g.policy = p
	for _, w := range g.windows {
		w.SetPolicy(p)
	}
}

// Settle is Window.Settle on the window of a partition.
func (g *Group) Settle(partition int32, a Ack, now int64) (Settled, error) {
	w := g.Window(partition)
	if w == nil {
		return Settled{}, ErrNotLeader
	}
	return w.Settle(a, now)
}

// Dirty yields the windows that have something to log (Pending, Take) or to
// dead-letter (TakeDead). One that still has after its turn stays listed.
func (g *Group) Dirty() iter.Seq[*Window] {
	return func(yield func(*Window) bool) {
		list := g.dirties
		g.dirties = nil
		for i, w := range list {
			w.dirty = false
			more := yield(w)
			if !w.dirty && (w.Pending() || w.o != nil && len(w.o.dead) > 0) {
				w.markDirty()
			}
			if !more {
				g.dirties = append(g.dirties, list[i+1:]...)
				return
			}
		}
		if len(g.dirties) == 0 {
			g.dirties = list[:0]
		}
	}
}

// IsDirty says whether Dirty would yield something.
func (g *Group) IsDirty() bool { return len(g.dirties) > 0 }

// Expire gives back, counted, what is locked no longer, and returns how many
// records that were.
func (g *Group) Expire(now int64) (n int) {
	if now < g.deadline {
		return 0
	}
	g.deadline = math.MaxInt64
	for _, w := range g.windows {
		n += w.Expire(now)
		if d, ok := w.NextDeadline(); ok {
			g.deadline = min(g.deadline, d)
		}
	}
	return n
}

// NextDeadline returns when Expire is to be called next. It may be early, when
// what was locked until then has been settled.
func (g *Group) NextDeadline() (deadline int64, ok bool) {
	return g.deadline, g.deadline != math.MaxInt64
}

// Exact is Window.Exact on all windows: before a planned end, when no member takes
// records any more.
func (g *Group) Exact() {
	for _, w := range g.windows {
		w.Exact()
	}
}

// Ready returns how many records are available now.
func (g *Group) Ready() (n int64) {
	for _, w := range g.windows {
		n += w.Ready()
	}
	return n
}

// InFlight returns how many records are held by members.
func (g *Group) InFlight() (n int) {
	for _, w := range g.windows {
		n += w.InFlight()
	}
	return n
}

// Held returns how many records a member holds.
func (g *Group) Held(id MemberID) (n int) {
	for _, w := range g.windows {
		n += w.Held(id)
	}
	return n
}

// Members returns how many members there are, and how many of them are
// consumers: neither stopped nor pulling.
func (g *Group) Members() (all, consumers int) { return len(g.members), g.consumers }

// groupHost is the Group as its windows see it.
type groupHost struct{ *Group }

func (g groupHost) available(w *Window) {
	w.runnable = true
	g.ready = append(g.ready, w)
}

func (g groupHost) dirty(w *Window) {
	w.dirty = true
	g.dirties = append(g.dirties, w)
}

func (g groupHost) locked(deadline int64) { g.deadline = min(g.deadline, deadline) }

func (g groupHost) refund(id MemberID, records int) {
	if m := g.members[id]; m != nil && !m.pull {
		m.credit += records
		g.place(m)
	}
}
