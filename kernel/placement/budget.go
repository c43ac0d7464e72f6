package placement

import (
	"math"
	"sync/atomic"

	slog "github.com/trivium-mq/trivium/storage/log"
)

// budget bounds what is kept of settled records on the node, over all topics: when
// it is exceeded, what is in the oldest segments goes first, whatever the age and
// size that topics may keep. What an owner group has not settled stays, and may
// exceed it. The leader decides, once a second; the shards log what goes.
type budget struct {
	bytes int64                           // 0 = no bound
	over  atomic.Bool                     // the shards count what is settled
	cut   atomic.Pointer[map[uint64]bool] // segments whose settled records go
	deep  int                             // how many they are, the oldest; for tick
}

// A node keeps this much of its volume for settled records, unless it is told.
const (
	budgetShare = 5        // a fifth
	budgetMost  = 50 << 30 // bytes
)

// open takes the share of the volume of a group's directory if no number is given.
func (b *budget) open(cfg *Config, bytes int64) {
	if b.bytes = bytes; bytes > 0 {
		return
	}
	b.bytes = budgetMost
	if size, err := cfg.FS.Capacity(cfg.Dir); err == nil {
		b.bytes = min(budgetMost, size/budgetShare)
	}
}

// look decides what goes. settled is what the shards have counted last.
func (b *budget) look(segments []slog.SegmentStat, settled int64) {
	var live int64
	for _, st := range segments {
		live += st.LiveBytes
	}
	was := b.over.Swap(b.bytes > 0 && live > b.bytes)
	if !b.over.Load() || !was || settled <= b.bytes {
		b.deep = 0
		b.cut.Store(nil)
		return
	}
	// Unsettled records among the oldest stay: the next look goes deeper.
	cut := make(map[uint64]bool)
	var found int64
	n := 0
	for _, st := range segments {
		if n >= b.deep && found >= settled-b.bytes {
			break
		}
		if n++; n > b.deep {
			found += st.LiveBytes
		}
		cut[st.ID] = true
	}
	b.deep = n
	b.cut.Store(&cut)
}

// settledBytes is how much of a partition nobody holds back.
func (s *shard) settledBytes(p *partition) int64 {
	all := p.log.Bytes()
	if _, owned := s.floors(p); owned < math.MaxInt64 {
		all -= p.log.BytesFrom(owned)
	}
	return max(all, 0)
}

// keepWithin returns where a partition may begin at least to stay within its own
// bound of bytes and the node's.
func (s *shard) keepWithin(p *partition, owned int64) int64 {
	start := p.log.Start()
	if cut := s.budget.cut.Load(); cut != nil {
		start = max(start, p.log.EndIn(*cut))
	}
	keep := p.cut.retention.Bytes
	if keep <= 0 || p.log.Bytes() <= keep {
		return start
	}
	if owned < p.log.End() { // what is not settled does not count
		keep += p.log.BytesFrom(owned)
	}
	if at, err := p.log.SizeOffset(keep); err == nil { // else what cannot be read goes by age
		start = max(start, at)
	}
	return start
}
