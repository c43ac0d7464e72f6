package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/sharegroup"
)

// wheld is a hand-out that a member holds: of a record, after so many moves of its group.
type wheld struct {
	place
	epoch uint32
}

// move has a group begin again somewhere.
func (n *wlife) move() {
	t := &n.w.truth
	g := t.groups[n.w.rng.Intn(len(t.groups))]
	if g.dying || g.pins || !n.serves() {
		return // what is dead has a letter, and what is pinned a session
	}
	sh := n.g.machine.groups[g.id]
	to := make(map[int32]int64)
	for _, p := range sh.topic.parts {
		to[p.index] = n.w.rng.Int63n(p.log.End() + 1)
	}
	s := sh.topic.shard
	s.call(func() {
		if s.term != 0 {
			_, _, _ = s.rewind(sh, to) // that it leads on is another matter
		}
	})
}

// moved takes in that a group was moved, by an entry that counts: what lies below is
// settled, and nothing else is.
func (t *truth) moved(g *wgroup, part PartitionID, s *sharegroup.Settlement, index uint64) {
	if s.Epoch != g.epochs[part]+1 {
		return // another move was before it
	}
	t.w.seen.moves++
	g.epochs[part] = s.Epoch
	if s.SeekTo < t.starts[part] {
		t.w.failf("group %d, partition %d: it is moved to %d, and the partition starts at %d", g.id, part, s.SeekTo, t.starts[part])
	}
	for at := range g.settled {
		if at.part == part && at.offset >= s.SeekTo {
			delete(g.settled, at)
		}
	}
	for o := range s.SeekTo {
		if at := (place{part, o}); g.settled[at] == 0 {
			g.settled[at] = index
		}
	}
}

// oldest makes the i-th of what a member holds the oldest of its record: that is what the
// member is taken to speak of first.
func (s *wmember) oldest(i int) *wheld {
	at := &s.held[i]
	if j := slices.IndexFunc(s.held, func(x wheld) bool { return x.place == at.place }); j < i {
		s.held[j].epoch, at.epoch = at.epoch, s.held[j].epoch
	}
	return at
}

// release forgets that a member holds a record, if it is the one that does.
func (g *wgroup) release(c client, at *wheld) {
	if g.held[at.place] == c && g.heldIn[at.place] == at.epoch {
		delete(g.held, at.place)
	}
}
