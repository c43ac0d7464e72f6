package cluster

import (
	"context"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
)

const methodBarrier = "/" + serviceName + "/Barrier"

type barrierRequest struct{ Group uint32 }

// barrierReply says where the log is; or why not, if Reason is not empty.
type barrierReply struct {
	Index  uint64
	Code   kernel.Code
	Reason string
}

// Barrier asks the leader of a group for an index of its log: whatever had been
// confirmed before the call is not behind it.
func (n *Node) Barrier(ctx context.Context, group uint32) (uint64, error) {
	g := n.replicas.Load().group(group)
	if g == nil {
		return 0, kernel.Errorf(kernel.CodeUnavailable, "", "", "the node is starting")
	}
	leads, leader, err := n.awaitLeader(ctx, g)
	if err != nil {
		return 0, err
	}
	if leads {
		return g.barrier(ctx)
	}
	address, err := n.resolve(leader)
	if err != nil {
		return 0, kernel.Errorf(kernel.CodeUnavailable, "node", leader, "%v", err)
	}
	var reply barrierReply
	if _, err := n.links.call(ctx, leader, address, methodBarrier, barrierRequest{group}, &reply); err != nil {
		return 0, kernel.Errorf(kernel.CodeUnavailable, "", "", "the leader has not answered: %v", err)
	}
	if reply.Reason != "" {
		return 0, &kernel.Error{Code: reply.Code, Detail: reply.Reason}
	}
	return reply.Index, nil
}

func (g *Group) barrier(ctx context.Context) (uint64, error) {
	if g.Barrier == nil {
		return 0, kernel.Errorf(kernel.CodeNotImplemented, "group", fmt.Sprint(g.ID), "it has no barrier")
	}
	return g.Barrier(ctx)
}

// answerBarrier answers another member.
func (n *Node) answerBarrier(ctx context.Context, _ Identity, req *barrierRequest) (*barrierReply, error) {
	index, err := uint64(0), error(kernel.Errorf(kernel.CodeUnavailable, "", "", "the leader has changed"))
	if g := n.replicas.Load().group(req.Group); g != nil {
		if leads, _ := g.Raft.Leader(); leads {
			index, err = g.barrier(ctx)
		}
	}
	if err != nil {
		return &barrierReply{Code: kernel.CodeOf(err), Reason: err.Error()}, nil
	}
	return &barrierReply{Index: index}, nil
}
