package placement

import (
	"context"
	"math"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// grave is a dead record that is archived when its dead letter is safe.
type grave struct {
	offset    int64
	partition int32
	reason    sharegroup.Reason
	again     bool             // its dead letter was tried
	reached   []kernel.TopicID // and is there
	size      int64            // payload, if that counts in its group
}

// dig adds a dead record that waits for its dead letter.
func (sh *share) dig(g grave) {
	sh.weigh(&g)
	sh.graves = append(sh.graves, g)
}

// weigh counts the bytes of a dead record, if they count.
func (sh *share) weigh(g *grave) {
	g.size = 0
	if w := sh.window(g.partition); w != nil && sh.limits.AtLeastOnce && sh.limits.MaxBytes >= 0 {
		g.size = w.measured(max(g.offset+1, w.known)).size(g.offset, g.offset)
	}
	sh.graveBytes += g.size
}

// weighAll counts anew, by other limits.
func (sh *share) weighAll() {
	sh.graveBytes = 0
	for i := range sh.graves {
		sh.weigh(&sh.graves[i])
	}
	if sh.burial != nil {
		for i := range sh.burial.graves {
			sh.weigh(&sh.burial.graves[i])
		}
	}
}

// waitingDead is how many dead records wait for their dead letters.
func (sh *share) waitingDead() int64 {
	n := int64(len(sh.graves))
	if sh.burial != nil {
		n += int64(len(sh.burial.graves))
	}
	return n
}

// room is how many records may die now: what waits for its dead letter is
// bounded. Without any, none are handed out: they could be refused.
func (sh *share) room() int64 {
	if !sh.policy.DeadLetter {
		return math.MaxInt64
	}
	return max(0, maxGraves-sh.waitingDead())
}

// BuryAll waits until every record that has died in a group so far has its dead
// letter, before the group goes: what nothing takes any more is given up at
// once. It returns how many records still wait when ctx ends, and are lost with
// the group. A group that is not there, or that this node does not lead, has
// none.
func (g *Group) BuryAll(ctx context.Context, id GroupID) (left int64) {
	sh := g.machine.share(id)
	if sh == nil {
		return 0
	}
	s := sh.topic.shard
	over := make(chan struct{})
	if !s.call(func() { s.bring(sh, over) }) {
		return 0
	}
	if s.manual {
		for s.step() {
		}
	}
	select {
	case <-over:
		return 0
	case <-ctx.Done():
	}
	s.call(func() {
		left = sh.waitingDead()
		s.endOf(sh, over)
	})
	return left
}

// bring begins the last burials of a share. over is closed when they are done.
func (s *shard) bring(sh *share, over chan struct{}) {
	if sh.gone || sh.group == nil || s.finished {
		close(over)
		return
	}
	sh.enders = append(sh.enders, over)
	sh.resting = false // what waits for the next tick is tried now
	s.touch(sh)
}

// endOf forgets who waits for the last burials of a share.
func (s *shard) endOf(sh *share, over chan struct{}) {
	for i, c := range sh.enders {
		if c == over {
			sh.enders = append(sh.enders[:i:i], sh.enders[i+1:]...)
			return
		}
	}
}

// mourned tells those who wait for the last burials, if they are done.
func (sh *share) mourned() {
	if len(sh.enders) == 0 || sh.group != nil && sh.waitingDead() > 0 {
		return
	}
	for _, c := range sh.enders {
		close(c)
	}
	sh.enders = nil
}
