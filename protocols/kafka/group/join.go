package group

import (
	"slices"
	"time"
)

// join handles a request to join; reply is called once, now (through out) or
// when the next generation begins.
func (g *group) join(q *Join, now time.Time, reply func(Joined)) {
	refuse := func(err Error, id string) {
		g.out = append(g.out, func() { reply(Joined{Err: err, Generation: -1, Member: id}) })
	}
	if !g.compatible(q) {
		refuse(InconsistentProtocol, q.Member)
		return
	}
	if g.size+protocolsSize(q.Protocols) > g.limits.GroupBytes {
		refuse(Full, q.Member)
		return
	}
	if q.Member == "" {
		g.joinNew(q, now, reply, refuse)
		return
	}
	_, expected := g.pending[q.Member]
	if expected && q.Instance == "" {
		delete(g.pending, q.Member)
		g.admit(q, q.Member, now, reply, refuse)
		return
	}
	m, err := g.find(q.Member, q.Instance)
	if err != OK {
		refuse(err, q.Member)
		return
	}
	g.joinAgain(m, q, now, reply)
}

// joinNew handles a member that has no id yet.
func (g *group) joinNew(q *Join, now time.Time, reply func(Joined), refuse func(Error, string)) {
	if q.Instance != "" {
		if old := g.byInstance(q.Instance); old != nil {
			g.replace(old, q, now, reply)
			return
		}
		g.admit(q, q.NewID, now, reply, refuse)
		return
	}
	if !q.MustKnow {
		g.admit(q, q.NewID, now, reply, refuse)
		return
	}
	if len(g.members)+len(g.pending) >= g.limits.Members {
		refuse(Full, "")
		return
	}
	g.pending[q.NewID] = now.Add(q.Session)
	refuse(MemberIDRequired, q.NewID)
}

// compatible tells whether a member with these protocols fits the others.
func (g *group) compatible(q *Join) bool {
	if q.ProtocolType == "" || len(q.Protocols) == 0 {
		return false
	}
	if len(g.members) == 0 {
		return true
	}
	if q.ProtocolType != g.protocolType {
		return false
	}
	return slices.ContainsFunc(q.Protocols, func(p Protocol) bool {
		for _, m := range g.members {
			// A member's own present protocols do not count: they are replaced.
			own := q.Member != "" && m.id == q.Member || q.Instance != "" && m.instance == q.Instance
			if !own && !m.supports(p.Name) {
				return false
			}
		}
		return true
	})
}

// admit adds a member and lets it wait for the next generation.
func (g *group) admit(q *Join, id string, now time.Time, reply func(Joined), refuse func(Error, string)) {
	m := &member{
		id: id, instance: q.Instance, clientID: q.ClientID, clientHost: q.ClientHost, protocols: q.Protocols,
		session: q.Session, rebalance: q.Rebalance, seen: now, isNew: true,
	}
	if len(g.members) >= g.limits.Members {
		refuse(Full, "")
		return
	}
	m.joining = reply
	first := len(g.members) == 0
	g.members = append(g.members, m)
	g.size += m.size()
	if g.leader == "" {
		g.leader = id
	}
	if first {
		g.protocolType = q.ProtocolType
	}
	if g.state == Preparing && !g.initial.IsZero() {
		// Others may follow: wait again, but not beyond the rebalance timeout.
		g.initial = earliest(now.Add(g.limits.InitialDelay), g.joinBy)
	}
	g.rebalance(now)
}

// joinAgain handles a request of a present member.
func (g *group) joinAgain(m *member, q *Join, now time.Time, reply func(Joined)) {
	changed := !sameProtocols(m.protocols, q.Protocols)
	m.seen = now
	switch g.state {
	case Completing:
		if !changed { // it has missed the answer
			g.answerPresent(m, reply)
			return
		}
	case Stable:
		if !changed && m.id != g.leader {
			g.answerPresent(m, reply)
			return
		}
	case Preparing, Empty, Dead:
	}
	g.fail(m, UnknownMember) // an older request of the same member
	g.update(m, q)
	m.joining = reply
	g.rebalance(now)
}

// update takes over what a member says about itself.
func (g *group) update(m *member, q *Join) {
	g.size -= m.size()
	m.protocols, m.session, m.rebalance = q.Protocols, q.Session, q.Rebalance
	m.clientID, m.clientHost = q.ClientID, q.ClientHost
	g.size += m.size()
}

// replace gives a static member's place to a new incarnation of it (KIP-345),
// without a rebalance if nothing changes for the others.
func (g *group) replace(m *member, q *Join, now time.Time, reply func(Joined)) {
	g.fail(m, FencedInstance)
	wasLeader, oldLeader := g.leader == m.id, g.leader
	same := string(m.metadata(g.protocol)) == protocolMetadata(q.Protocols, g.protocol)
	g.size -= m.size()
	m.id = q.NewID
	g.size += m.size()
	g.update(m, q)
	m.seen, m.isNew = now, false
	if wasLeader {
		g.leader = m.id
	}
	if g.state != Stable || !same || g.choose() != g.protocol {
		m.joining = reply
		g.rebalance(now)
		return
	}
	answer := g.joined(m)
	if q.CanSkip {
		answer.SkipAssignment = wasLeader
	} else {
		// A client that cannot be told to skip must not think that it leads, or it
		// would assign: it is told of the leader that is no more.
		answer.Leader, answer.Members = oldLeader, nil
	}
	g.keep = append(g.keep, func(err Error, _ time.Time) {
		if err != OK {
			answer = Joined{Err: err, Generation: -1, Member: q.Member}
		}
		g.out = append(g.out, func() { reply(answer) })
	})
}

func protocolMetadata(ps []Protocol, name string) string {
	for i := range ps {
		if ps[i].Name == name {
			return string(ps[i].Metadata)
		}
	}
	return ""
}

// answerPresent tells a member of the present generation.
func (g *group) answerPresent(m *member, reply func(Joined)) {
	answer := g.joined(m)
	g.out = append(g.out, func() { reply(answer) })
}

// joined describes the present generation to m.
func (g *group) joined(m *member) Joined {
	j := Joined{Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader, Member: m.id}
	if m.id == g.leader {
		j.Members = make([]Member, len(g.members))
		for i, o := range g.members {
			j.Members[i] = Member{ID: o.id, Instance: o.instance, Metadata: o.metadata(g.protocol)}
		}
	}
	return j
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
