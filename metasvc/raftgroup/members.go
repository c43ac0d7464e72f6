package raftgroup

import (
	"context"

	"github.com/hashicorp/raft"
)

// Servers returns the members, as of the newest configuration in the log.
func (g *Group) Servers() []Server {
	servers := g.raft.Load().GetConfiguration().Configuration().Servers
	out := make([]Server, len(servers))
	for i, s := range servers {
		out[i] = Server{ID: string(s.ID), Address: string(s.Address), Learner: s.Suffrage != raft.Voter}
	}
	return out
}

// Alone tells whether this node is the only member, as of the newest configuration.
func (g *Group) Alone() bool {
	servers := g.raft.Load().GetConfiguration().Configuration().Servers
	return len(servers) == 1 && string(servers[0].ID) == g.cfg.NodeID
}

// Sole tells whether a configuration, as a checkpoint has it, has the node as its
// only member.
func Sole(configuration []byte, nodeID string) (sole bool) {
	defer func() {
		if recover() != nil { // DecodeConfiguration has no other way to complain
			sole = false
		}
	}()
	servers := raft.DecodeConfiguration(configuration).Servers
	return len(servers) == 1 && string(servers[0].ID) == nodeID
}

// AddServer adds a member, moves it to another address, or promotes a learner.
// A new voter should be added as a learner and promoted once it has caught up.
func (g *Group) AddServer(ctx context.Context, s Server) error {
	return g.call(ctx, func(r *raft.Raft) raft.Future {
		if s.Learner {
			return r.AddNonvoter(raft.ServerID(s.ID), raft.ServerAddress(s.Address), 0, 0)
		}
		return r.AddVoter(raft.ServerID(s.ID), raft.ServerAddress(s.Address), 0, 0)
	})
}

// DemoteServer makes a voter a learner.
func (g *Group) DemoteServer(ctx context.Context, id string) error {
	return g.call(ctx, func(r *raft.Raft) raft.Future { return r.DemoteVoter(raft.ServerID(id), 0, 0) })
}

// RemoveServer removes a member. Its log must be dropped before it may come
// back, under another id.
func (g *Group) RemoveServer(ctx context.Context, id string) error {
	return g.call(ctx, func(r *raft.Raft) raft.Future { return r.RemoveServer(raft.ServerID(id), 0, 0) })
}
