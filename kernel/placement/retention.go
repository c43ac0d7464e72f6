package placement

import (
	"math"

	"github.com/trivium-mq/trivium/kernel"
)

// How eagerly a topic that keeps nothing beyond use is trimmed: at once when
// that many records are settled and few groups are to be asked, else at the
// next tick.
const (
	trimRecords = 512
	trimShares  = 8
)

// lanePart is what the shard keeps of a partition for its retention.
type lanePart struct {
	retention kernel.Retention
	asked     int64 // start that has been proposed
	listed    bool  // in the shard's list of partitions to look at
}

// floorMoved notes that more of a partition may be deleted.
func (s *shard) floorMoved(p *partition) {
	if s.term == 0 || p.cut.listed || p.cut.retention == (kernel.Retention{}) {
		return
	}
	p.cut.listed = true
	s.trims = append(s.trims, p)
}

func (s *shard) floorsMoved(t *topic) {
	for _, p := range t.lane.parts {
		s.floorMoved(p)
	}
}

// retain trims, within a step, the partitions that keep nothing settled.
func (s *shard) retain() {
	rest := s.trims[:0]
	for _, p := range s.trims {
		if !p.cut.retention.Delete || len(p.topic.lane.shares) > trimShares {
			rest = append(rest, p) // the tick looks at it
			continue
		}
		if start := s.deletable(p); start-p.cut.asked >= trimRecords {
			s.trim(p, start)
		} else if start > p.cut.asked {
			rest = append(rest, p)
			continue
		}
		p.cut.listed = false
	}
	clear(s.trims[len(rest):])
	s.trims = rest
}

// sweep trims whatever may be trimmed.
func (s *shard) sweep() {
	if s.term == 0 {
		return
	}
	for _, p := range s.trims {
		p.cut.listed = false
		s.trim(p, s.deletable(p))
	}
	clear(s.trims)
	s.trims = s.trims[:0]
	for _, t := range s.topics {
		for _, p := range t.lane.parts {
			if p.cut.retention.Age > 0 && p.log.Start() < p.log.End() {
				s.trim(p, s.deletable(p))
			}
		}
	}
}

// deletable returns the offset below which the retention of a partition lets
// records go.
func (s *shard) deletable(p *partition) int64 {
	r := p.cut.retention
	end := p.log.End()
	floor, owned := s.floors(p)
	start := int64(0)
	if r.Delete && floor < math.MaxInt64 {
		start = floor
	}
	if r.Age > 0 {
		old := p.age.older(s.clock.wall()-r.Age.Milliseconds(), end)
		start = max(start, min(old, owned))
	}
	return min(start, end)
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
	if start <= p.cut.asked || start <= p.log.Start() {
		return
	}
	p.cut.asked = start
	s.section = appendTrimSection(s.section, p.id, start)
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
