package raftgroup

import "sort"

// CommittedIn returns the highest index up to limit that this node knows to be committed
// and that has an entry of exactly that term; 0 if the log has none. Whoever had this
// node's log up to limit while that was its term, or has led it in that term and sent
// what it has of it, has had everything up to that index: logs that agree on an entry
// agree on all before it.
func (g *Group) CommittedIn(term, limit uint64) uint64 {
	first, _ := g.cfg.Group.FirstIndex() // never fails
	end := min(limit, g.CommitIndex())
	if first == 0 || end < first || term == 0 {
		return 0
	}
	switch t, err := g.cfg.Group.Term(end); { // nearly always the one that is asked for
	case err == nil && t == term:
		return end
	case err == nil && t < term:
		return 0
	}
	n := sort.Search(int(end-first)+1, func(i int) bool {
		t, err := g.cfg.Group.Term(first + uint64(i))
		return err == nil && t > term // what was cut off meanwhile is older than all that is left
	})
	if n == 0 {
		return 0
	}
	last := first + uint64(n) - 1
	if t, err := g.cfg.Group.Term(last); err != nil || t != term {
		return 0
	}
	return last
}

// LastIndex returns the highest index of the log, or of the checkpoint before it.
func (g *Group) LastIndex() uint64 {
	last, _ := g.cfg.Group.LastIndex() // never fails
	return max(last, g.AppliedIndex())
}
