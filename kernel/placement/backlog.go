package placement

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// Ends returns the end of each partition of a topic, nil if it is not there.
func (g *Group) Ends(id kernel.TopicID) map[PartitionID]int64 {
	ends := make(map[PartitionID]int64)
	for _, p := range g.partitions(id) {
		ends[p.id] = p.log.End()
	}
	return ends
}

// SizeOffsets returns, for the partitions of a topic that hold more than keep
// bytes, the offsets from which on they hold no more.
func (g *Group) SizeOffsets(id kernel.TopicID, keep int64) (map[PartitionID]int64, error) {
	var cuts map[PartitionID]int64
	for _, p := range g.partitions(id) {
		if p.log.Bytes() <= keep {
			continue
		}
		cut, err := p.log.SizeOffset(keep)
		if err != nil {
			return cuts, kernel.Errorf(kernel.CodeInternal, "topic", id.String(), "%v", err)
		}
		if cuts == nil {
			cuts = make(map[PartitionID]int64)
		}
		cuts[p.id] = cut
	}
	return cuts, nil
}

func (g *Group) partitions(id kernel.TopicID) []*partition {
	t := g.machine.topic(id)
	if t == nil {
		return nil
	}
	g.machine.table.mu.RLock()
	defer g.machine.table.mu.RUnlock()
	return append([]*partition(nil), t.parts...)
}

// PurgeBelow archives what a group has ready below the given offsets and returns
// how many records that were: CodeNotFound. Held records stay with their holders,
// and nothing of it is dead-lettered.
func (g *Group) PurgeBelow(ctx context.Context, id GroupID, below map[PartitionID]int64) (int64, error) {
	sh := g.machine.share(id)
	if sh == nil {
		return 0, noGroup(id)
	}
	var n int64
	err := error(errStopped)
	s := sh.topic.shard
	s.call(func() { n, err = s.purgeBelow(sh, below) })
	if err != nil || n == 0 {
		return 0, err
	}
	if _, err := g.do(ctx, barrierCommand()); err != nil { // behind the settlements
		return 0, err
	}
	return n, nil
}

func (s *shard) purgeBelow(sh *share, below map[PartitionID]int64) (n int64, err error) {
	if sh.gone {
		return 0, noGroup(sh.id)
	}
	if s.term == 0 {
		return 0, errNotLeading
	}
	behind := false
	for _, w := range sh.windows {
		behind = behind || w.Floor() < below[w.part.id]
	}
	if !behind {
		return 0, nil
	}
	s.activate(sh)
	sh.extend()
	for _, w := range sh.windows {
		n += w.Bury(below[w.part.id], sharegroup.MaxOffset, sharegroup.Expired)
	}
	s.touch(sh)
	s.collect()
	return n, nil
}
