package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// ghosts are hand-outs to a member from before the group was moved: how many of each
// record the member has not settled. It may have got the record again since, and
// what it says first is about the older hand-out.
type ghosts map[kernel.Place]uint32

// haunt makes ghosts of what members hold of a window that is about to be moved.
func (sh *share) haunt(w *window) {
	at := kernel.Place{Partition: w.part.index}
	var held []int64
	for id := range sh.members {
		if held = w.HeldBy(held[:0], id); len(held) == 0 {
			continue
		}
		if sh.ghosts == nil {
			sh.ghosts = make(map[sharegroup.MemberID]ghosts)
		}
		g := sh.ghosts[id]
		if g == nil {
			g = make(ghosts, len(held))
			sh.ghosts[id] = g
		}
		for _, at.Offset = range held {
			g[at]++
		}
	}
}

// lay takes one ghost of each record of an ack away, and calls rest with what is
// left of the range. It costs in the order of the range or of the ghosts, whichever
// are fewer.
func (g ghosts) lay(a *ack, rest func(*ack)) {
	var gone []int64
	at := kernel.Place{Partition: a.partition}
	if a.last-a.first < int64(len(g)) {
		for at.Offset = a.first; at.Offset <= a.last; at.Offset++ {
			if g[at] > 0 {
				gone = append(gone, at.Offset)
			}
		}
	} else {
		for p := range g {
			if p.Partition == a.partition && a.first <= p.Offset && p.Offset <= a.last {
				gone = append(gone, p.Offset)
			}
		}
		slices.Sort(gone)
	}
	part := *a
	for _, at.Offset = range gone {
		if g[at]--; g[at] == 0 {
			delete(g, at)
		}
		if part.last = at.Offset - 1; part.first <= part.last {
			rest(&part)
		}
		part.first = at.Offset + 1
	}
	if part.last = a.last; part.first <= part.last {
		rest(&part)
	}
}

// ghost says whether what a member says of a record is about a hand-out from before
// the group was moved, and takes that away.
func (sh *share) ghost(m *Member, partition int32, offset int64) bool {
	g := sh.ghosts[m.id]
	if len(g) == 0 {
		return false
	}
	old := true
	g.lay(&ack{first: offset, last: offset, partition: partition}, func(*ack) { old = false })
	return old
}
