package placement

import (
	"math"

	"github.com/trivium-mq/trivium/kernel"
)

// How eagerly a topic that keeps nothing beyond use is trimmed: at once when so
// many records are settled, or it holds so many bytes, and few groups are to be
// asked; else at the next tick.
const (
	trimRecords = 512
	trimBytes   = 1 << 20
	trimShares  = 8
)

// trimPatience is how many ticks it takes until a trim that has not come about is asked
// for again: its entry may have been refused.
const trimPatience = 10

// lanePart is what the shard keeps of a partition for its retention.
type lanePart struct {
	retention kernel.Retention
	asked     int64  // start that has been proposed
	askedAt   uint64 // tick of the shard at which it was
	listed    bool   // in the shard's list of partitions to look at
	expiring  int64  // partition.expiring as of the shard
}

// floorMoved notes that more of a partition may be deleted.
func (s *shard) floorMoved(p *partition) {
	c := &p.cut
	if s.term == 0 || c.retention == (kernel.Retention{}) {
		return
	}
	if c.retention.Delete && len(p.topic.lane.shares) <= trimShares {
		start := s.deletable(p)
		if start-c.asked >= trimRecords || p.log.Bytes() >= trimBytes {
			s.trim(p, start)
			return
		}
	}
	s.list(p)
}

// list has the next tick look at a partition.
func (s *shard) list(p *partition) {
	if !p.cut.listed {
		p.cut.listed = true
		s.trims = append(s.trims, p)
	}
}

func (s *shard) floorsMoved(t *topic) {
	for _, p := range t.lane.parts {
		s.floorMoved(p)
	}
}

// unlist forgets which partitions are to be looked at. It has to at the end of a
// leadership: a checkpoint may put other partitions in their place, under their ids.
func (s *shard) unlist() {
	for _, p := range s.trims {
		p.cut.listed = false
	}
	clear(s.trims)
	s.trims = s.trims[:0]
}

// sweep trims whatever may be trimmed.
func (s *shard) sweep() {
	if s.term == 0 {
		return
	}
	kept := s.trims[:0]
	for _, p := range s.trims {
		if len(p.topic.lane.parts) > 0 { // else it was dropped, with the groups that held it back
			s.trim(p, s.deletable(p))
		}
		if p.cut.listed = p.cut.asked > p.log.Start() && len(p.topic.lane.parts) > 0; p.cut.listed {
			kept = append(kept, p)
		}
	}
	clear(s.trims[len(kept):])
	s.trims = kept
	var settled int64
	count := s.budget.over.Load()
	for _, t := range s.topics {
		for _, p := range t.lane.parts {
			r := &p.cut.retention
			if p.log.Start() == p.log.End() {
				continue
			}
			if r.Age > 0 || r.Bytes > 0 || count {
				s.trim(p, s.deletable(p))
			}
			if count {
				settled += s.settledBytes(p)
			}
		}
	}
	s.settledSum.Store(settled)
}

// deletable returns the offset below which the retention of a partition lets
// records go.
func (s *shard) deletable(p *partition) int64 {
	r := p.cut.retention
	start, end := p.log.Start(), p.log.End()
	old := start
	if r.Age > 0 {
		old = p.age.older(s.clock.wall()-r.Age.Milliseconds(), end)
	}
	bounded := r.Bytes > 0 && p.log.Bytes() > r.Bytes || s.budget.cut.Load() != nil
	if !r.Delete && old <= start && !bounded {
		return start // the usual case of the tick
	}
	used, owned := s.floors(p)
	if bounded {
		old = max(old, s.keepWithin(p, owned))
	}
	if r.Delete && used < math.MaxInt64 {
		start = max(start, used)
	}
	return min(max(start, min(old, owned)), end)
}

// floors returns the lowest floor of the owner groups (of all groups if none
// is an owner), which is what a topic without retention may delete, and the
// lowest of the owner groups alone. Without groups they are MaxInt64.
func (s *shard) floors(p *partition) (used, owned int64) {
	used, owned = math.MaxInt64, math.MaxInt64
	for _, sh := range p.topic.lane.shares {
		w := sh.window(p.index)
		if w == nil {
			continue
		}
		used = min(used, w.Floor())
		if sh.owner {
			owned = min(owned, w.Floor())
		}
	}
	if owned < math.MaxInt64 {
		used = owned
	}
	return used, owned
}

// trim proposes that a partition starts at start.
func (s *shard) trim(p *partition, start int64) {
	c := &p.cut
	if start <= p.log.Start() || start <= c.asked && s.ticks-c.askedAt < trimPatience {
		return
	}
	c.asked, c.askedAt = start, s.ticks
	s.cuts = append(s.cuts, cut{p, start})
	s.list(p) // until it has come about
}

// trimmed follows a trim of the log: what is gone counts as settled.
func (s *shard) trimmed(p *partition, start int64) {
	for _, sh := range p.topic.lane.shares {
		if w := sh.window(p.index); w != nil && w.Floor() < start {
			w.TrimTo(start)
			s.touch(sh)
		}
	}
}
