package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/cluster"
)

// OnClients sets who serves clients of other nodes: for as long as the node is open,
// whether it leads or not. It does nothing without a cluster.
func (n *Node) OnClients(s cluster.ClientServer) {
	if n.cluster != nil {
		n.cluster.OnClients(s)
	}
}

// OpenClient opens a stream to a node, by its Raft name (Leader), for a client of this
// one. An error is CodeUnavailable: nothing has happened.
func (n *Node) OpenClient(ctx context.Context, raftID string) (cluster.Stream, error) {
	if n.cluster == nil {
		return nil, errNoPeers()
	}
	s, err := n.cluster.OpenClient(ctx, raftID)
	if err != nil {
		return nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "%v", err)
	}
	return s, nil
}

// CallLogin asks a node about a login. An error is CodeUnavailable, or ctx's.
func (n *Node) CallLogin(ctx context.Context, raftID string, req []byte) ([]byte, error) {
	if n.cluster == nil {
		return nil, errNoPeers()
	}
	b, err := n.cluster.CallLogin(ctx, raftID, req)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "%v", err)
	}
	return b, nil
}

func errNoPeers() error {
	return kernel.Errorf(kernel.CodeUnavailable, "", "", "the node has no peers")
}
