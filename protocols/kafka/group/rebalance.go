package group

import (
	"math"
	"slices"
	"time"
)

// rebalance begins to gather the members for the next generation, or looks
// whether all are there.
func (g *group) rebalance(now time.Time) {
	if g.state != Preparing {
		for _, m := range g.members {
			if reply := m.syncing; reply != nil {
				g.out = append(g.out, func() { reply(Synced{Err: RebalanceInProgress}) })
				m.syncing = nil
				m.seen = now
			}
		}
		g.initial = time.Time{}
		if g.state == Empty {
			g.initial = now.Add(g.limits.InitialDelay)
		}
		g.state, g.syncBy = Preparing, time.Time{}
		g.joinBy = now.Add(g.patience())
	}
	g.tryGeneration(now)
}

// patience is how long the slowest member may take to join or to sync.
func (g *group) patience() time.Duration {
	longest := time.Second
	for _, m := range g.members {
		longest = max(longest, m.rebalance)
	}
	return longest
}

// tryGeneration begins the next generation when every member has joined.
func (g *group) tryGeneration(now time.Time) {
	if g.state != Preparing {
		return
	}
	if len(g.members) == 0 {
		if len(g.pending) == 0 || !now.Before(g.joinBy) {
			g.begin(now)
		}
		return
	}
	if !g.initial.IsZero() && now.Before(g.initial) || len(g.pending) > 0 && now.Before(g.joinBy) {
		return
	}
	for _, m := range g.members {
		if m.joining == nil {
			return
		}
	}
	g.begin(now)
}

// leaveBehind goes on without those who have not joined in time. Static members
// keep their place until their session is over.
func (g *group) leaveBehind(now time.Time) {
	for _, m := range slices.Clone(g.members) {
		if m.joining == nil && m.instance == "" {
			g.drop(m)
		}
	}
	if !slices.ContainsFunc(g.members, func(m *member) bool { return m.joining != nil }) {
		if len(g.members) > 0 { // only silent static members: wait for one of them
			g.joinBy = now.Add(g.patience())
			return
		}
	}
	g.begin(now)
}

// begin starts the next generation with those who are there.
func (g *group) begin(now time.Time) {
	g.advance()
	g.initial, g.syncBy, g.assigned = time.Time{}, time.Time{}, false
	if len(g.members) == 0 {
		g.state, g.protocol, g.protocolType, g.leader = Empty, "", "", ""
		return
	}
	g.state, g.protocol = Completing, g.choose()
	if leader := g.byID(g.leader); leader == nil || leader.joining == nil {
		for _, m := range g.members {
			if m.joining != nil {
				g.leader = m.id
				break
			}
		}
	}
	g.syncBy = now.Add(g.patience())
	for _, m := range g.members {
		g.size -= len(m.assignment)
		m.assignment, m.synced = nil, m.joining == nil // who did not join cannot sync
		if reply := m.joining; reply != nil {
			answer := g.joined(m)
			g.out = append(g.out, func() { reply(answer) })
			m.joining, m.isNew, m.seen = nil, false, now
		}
	}
}

// advance gives the next generation its number.
func (g *group) advance() {
	if g.generation >= math.MaxInt32-g.ahead {
		g.generation = 0
	}
	g.generation, g.ahead = g.generation+1+g.ahead, 0
}

// choose picks the protocol of the next generation: of those that all members
// support, the one that most of them want first; of equals, the first in the
// order of the oldest member.
func (g *group) choose() string {
	votes := map[string]int{}
	for _, m := range g.members {
		for i := range m.protocols {
			if g.common(m.protocols[i].Name) {
				votes[m.protocols[i].Name]++
				break
			}
		}
	}
	best, most := "", 0
	if len(g.members) > 0 {
		for _, p := range g.members[0].protocols {
			if votes[p.Name] > most {
				best, most = p.Name, votes[p.Name]
			}
		}
	}
	return best
}

func (g *group) common(protocol string) bool {
	for _, m := range g.members {
		if !m.supports(protocol) {
			return false
		}
	}
	return true
}

// sync handles a request for the member's assignment; reply is called once.
func (g *group) sync(q *Sync, now time.Time, reply func(Synced)) {
	m, err := g.find(q.Member, q.Instance)
	switch {
	case err != OK:
	case q.Generation != g.generation:
		err = IllegalGeneration
	case q.ProtocolType != nil && *q.ProtocolType != g.protocolType, q.Protocol != nil && *q.Protocol != g.protocol:
		err = InconsistentProtocol
	case g.state == Preparing:
		err = RebalanceInProgress
	}
	if err != OK {
		g.out = append(g.out, func() { reply(Synced{Err: err}) })
		return
	}
	m.seen, m.synced = now, true
	if g.state == Stable {
		g.answerSync(m, reply)
		g.checkSynced()
		return
	}
	g.fail(m, RebalanceInProgress) // an older request of the same member
	m.syncing = reply
	if m.id == g.leader && !g.assigned {
		g.assign(q.Assignments, now)
	}
}

// assign takes the leader's assignments, and has them kept before anybody is told: what a
// member has heard of, every coordinator to come knows.
func (g *group) assign(assignments map[string][]byte, now time.Time) {
	size := g.size
	for _, m := range g.members {
		size += len(assignments[m.id])
	}
	if size > g.limits.GroupBytes {
		for _, m := range g.members {
			g.fail(m, invalidRequest)
		}
		g.rebalance(now)
		return
	}
	g.assigned, g.size = true, size
	for _, m := range g.members {
		m.assignment = assignments[m.id]
	}
	generation := g.generation
	g.keep = append(g.keep, func(err Error, now time.Time) {
		// The next generation may have begun to gather meanwhile: then this one is over.
		if err == OK && g.state == Completing && g.generation == generation {
			g.stable(now)
		}
	})
}

// stable begins the work of a generation: all who wait for their assignment get it.
func (g *group) stable(now time.Time) {
	g.state = Stable
	for _, m := range g.members {
		if m.syncing != nil {
			g.answerSync(m, m.syncing)
			m.syncing, m.seen = nil, now
		}
	}
	g.checkSynced()
}

func (g *group) answerSync(m *member, reply func(Synced)) {
	answer := Synced{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
	g.out = append(g.out, func() { reply(answer) })
}

// checkSynced ends the wait for members to sync when all have.
func (g *group) checkSynced() {
	for _, m := range g.members {
		if !m.synced {
			return
		}
	}
	g.syncBy = time.Time{}
}

// syncLate removes the members that have joined but not synced in time; if the
// leader is among them, those who wait for it join again.
func (g *group) syncLate(now time.Time) {
	g.syncBy = time.Time{}
	late := false
	for _, m := range slices.Clone(g.members) {
		if !m.synced {
			g.drop(m)
			late = true
		}
	}
	if late {
		g.rebalance(now)
	}
}
