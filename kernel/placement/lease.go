package placement

import (
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/sharegroup"
)

// A leader that was stopped for a while, or cut off, does not know that another one
// may have been elected. So nothing is handed out but under a lease, which ends
// before that can be. Its settlements are refused by their term in any case.

// certain says whether this node is the only leader now. Between the answer and
// what is done upon it the process may be stopped: then others may hand out the same
// records, marked redelivered.
func (s *shard) certain() bool {
	if s.lease == nil || noLease {
		return true
	}
	until := s.lease()
	lapsed := until != raftgroup.Forever && s.clock.mono() >= until
	if lapsed && !s.lapsed {
		s.metrics.Lapses.Add(1)
	}
	s.lapsed = lapsed
	return !lapsed
}

// lease is raftgroup.Group.Lease of the group's log.
func (g *Group) lease() int64 {
	if rg := g.raft.Load(); rg != nil {
		return rg.Lease()
	}
	return 0
}

// withhold gives back what was to be handed out.
func (s *shard) withhold(sh *share, m *Member, runs []sharegroup.Run, now int64) {
	s.settleRuns(sh, m, runs, sharegroup.Release, now)
	if !m.pull {
		sh.group.Grant(m.id, records(runs)) //nolint:errcheck // it is a member
	}
}

// resume serves what has waited for the lease.
func (s *shard) resume() {
	held := s.held
	s.held = nil
	for _, a := range held {
		s.acquire(a)
	}
}

// leased is told that the lease holds again.
func (g *Group) leased() {
	for _, s := range g.shards {
		s.post([]event{{kind: evLease}})
	}
}
