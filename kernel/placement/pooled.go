package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// A member with a pool has its credit here and not at the group: before a
// share's turn as much is lent to the group as the pool has for it, and what the
// turn leaves over goes back at once. All of it is the shard's.

// pooling is the part of a member that its pool adds.
type pooling struct {
	units *kernel.Pool // nil = none
	may   int          // credit that is left
	lent  int          // of it, to the group, during a turn
	got   int          // handed over in the turn
	off   int          // taken, and called off because the credit was taken back
}

// Wake implements kernel.PoolMember.
func (m *Member) Wake() {
	m.mu.Lock()
	enlist := !m.queued
	m.queued = true
	m.mu.Unlock()
	if enlist {
		m.shard.enlist(m)
	}
}

// Pool puts a member that has none under a pool, which then also bounds what it
// holds already: held returns how much that is, and is called while nothing is
// handed out to it. It waits for the group's goroutine, as Acquire does.
func (m *Member) Pool(pool *kernel.Pool, held func() int) {
	m.shard.call(func() {
		sh := m.share
		if m.units != nil || sh.gone || sh.members[m.id] != m {
			return
		}
		m.may = sh.group.Credit(m.id)
		sh.group.Grant(m.id, -m.may) //nolint:errcheck // it is a member
		m.shard.pool(m, pool)
		pool.Add(held())
		m.shard.queue(sh)
	})
}

// pool enters a member's pool, if it has one.
func (s *shard) pool(m *Member, pool *kernel.Pool) {
	if pool != nil {
		m.units = pool
		m.share.pooled = append(m.share.pooled, m)
	}
}

// credited books credit given or taken back. What was called and is not served
// now lets the others go first.
func (s *shard) credited(m *Member, credit int) {
	sh := m.share
	if m.may += credit; m.may < 0 {
		m.owe(-m.may)
		m.may = 0
	}
	if s.queue(sh); !sh.queued {
		m.units.Forget(m)
	}
}

// lend gives the group what the pools have for its members: as much to each as
// to the others, in turn.
func (s *shard) lend(sh *share) {
	if len(sh.pooled) == 0 {
		return
	}
	first := sh.pooled[0]
	copy(sh.pooled, sh.pooled[1:])
	sh.pooled[len(sh.pooled)-1] = first
	ready := int(min(sh.group.Ready(), pumpBudget))
	each := (ready + len(sh.pooled) - 1) / len(sh.pooled)
	for _, m := range sh.pooled {
		m.got, m.off = 0, 0
		m.lent = m.units.Take(m, min(m.may, each))
		if m.lent > 0 {
			sh.group.Grant(m.id, m.lent) //nolint:errcheck // it is a member
		}
	}
}

// repay takes back what a turn has left over. Those it was too little for get
// another one.
func (s *shard) repay(sh *share) {
	for _, m := range sh.pooled {
		if left := sh.group.Credit(m.id); left > 0 {
			sh.group.Grant(m.id, -left) //nolint:errcheck // it is a member
		}
		m.may -= m.got + m.off
		more := m.lent > 0 && m.got == m.lent && m.may > 0 && sh.group.Ready() > 0
		if m.lent > m.got && sh.reserving() {
			m.units.Owe(m) // its records wait for the log only
		}
		m.units.Repay(m, m.lent-m.got, more)
		m.lent = 0
	}
}

// unpool takes a member that is over out of its pool's turn.
func (s *shard) unpool(m *Member) {
	if m.units == nil {
		return
	}
	sh := m.share
	sh.pooled = slices.DeleteFunc(sh.pooled, func(o *Member) bool { return o == m })
	m.units.Forget(m)
}
