package cluster

import (
	"context"
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// Status is what this node knows of the cluster.
func (n *Node) Status() kernel.ClusterStatus {
	self := n.Self()
	out := kernel.ClusterStatus{Cluster: self.Cluster, Node: self.Node}
	if err := n.Refused(); err != nil {
		out.Refused = err.Error()
	}
	r := n.replicas.Load()
	if r == nil {
		return out
	}
	members := n.Members()
	names := map[string]string{}
	for _, m := range members {
		names[m.Raft] = m.Node
	}
	name := func(raftID string) string {
		if known, ok := names[raftID]; ok {
			return known
		}
		return raftID
	}
	votes := map[uint32]map[string]bool{}
	for i := range r.Groups {
		g := &r.Groups[i]
		votes[g.ID] = map[string]bool{}
		_, leader := g.Raft.Leader()
		one := kernel.ClusterGroup{Group: g.ID, Leader: name(leader), Term: g.Raft.Term(), Commit: g.Raft.CommitIndex()}
		for _, s := range g.Raft.Servers() {
			if votes[g.ID][s.ID] = !s.Learner; s.Learner {
				one.Learners = append(one.Learners, name(s.ID))
			} else {
				one.Voters = append(one.Voters, name(s.ID))
			}
		}
		slices.Sort(one.Voters)
		slices.Sort(one.Learners)
		out.Groups = append(out.Groups, one)
	}
	for _, m := range members {
		out.Nodes = append(out.Nodes, n.describe(m, votes))
	}
	return out
}

// describe says what a member does; votes are those of each group by Raft name.
func (n *Node) describe(m Member, votes map[uint32]map[string]bool) kernel.ClusterNode {
	out := kernel.ClusterNode{Name: m.Node, Address: m.Address, Draining: m.Draining, Version: m.Version, Fronts: m.Fronts}
	info := n.fresh(m.Raft)
	if m.Self {
		own := n.info()
		info = &own
	}
	out.Low, out.Slow = info != nil && info.Low, info != nil && info.Slow
	leads, voter, whole := 0, true, true
	told := map[uint32]GroupInfo{}
	if info != nil {
		for _, g := range info.Groups {
			told[g.Group] = g
		}
	}
	groups := n.replicas.Load().Groups
	for i := range groups {
		id := groups[i].ID
		g := told[id]
		rep := kernel.ClusterReplica{Group: id, Votes: votes[id][m.Raft], Whole: g.Whole, Applied: g.Applied, Leads: info != nil && g.Leader == m.Raft}
		if rep.Leads {
			leads++
		}
		voter, whole = voter && rep.Votes, whole && rep.Whole
		out.Replicas = append(out.Replicas, rep)
	}
	switch {
	case n.met.get(m.Raft).refused != nil:
		out.State = kernel.NodeRefused
	case info == nil:
		out.State = kernel.NodeUnreachable
	case leads > 0 && leads == len(groups):
		out.State = kernel.NodeServing
	case leads > 0:
		out.State = kernel.NodeLeading
	case !voter:
		out.State = kernel.NodeLearner
	case !whole, m.Behind:
		out.State = kernel.NodeCatchingUp
	default:
		out.State = kernel.NodeStandby
	}
	return out
}

// Whole returns the Raft names of the other replicas of a group that say that they are
// whole, asking them now. Implements placement.Census.
func (n *Node) Whole(ctx context.Context, group uint32) []string {
	var mu sync.Mutex
	var out []string
	var work sync.WaitGroup
	for _, p := range n.others() {
		address, err := n.resolve(p.Raft)
		if err != nil {
			continue
		}
		work.Go(func() {
			if n.exchange(ctx, p.Raft, address) != nil {
				return
			}
			if i := n.fresh(p.Raft); i != nil && i.whole(group) {
				mu.Lock()
				out = append(out, p.Raft)
				mu.Unlock()
			}
		})
	}
	work.Wait()
	return out
}
