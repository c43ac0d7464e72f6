package broker

import (
	"context"
	"net"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// handOverTime bounds the search for a node that takes a leadership over.
const handOverTime = 2 * time.Second

// Alone reports whether the node is the only member of its cluster, as far as it
// knows.
func (n *Node) Alone() bool {
	servers := n.durable.Raft().Servers()
	return !n.file.joined() && len(servers) <= 1
}

// Leader returns the node that leads the placement group as far as this one knows,
// "" if nobody does.
func (n *Node) Leader() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader
}

// Served returns nil when another node leads, and so serves or is about to; else why
// clients of this one cannot be served by others.
func (n *Node) Served() error {
	if err := n.Failed(); err != nil {
		return err
	}
	switch n.Leader() {
	case "":
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "no node leads")
	case n.ID():
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the node leads and does not serve yet")
	}
	return nil
}

// HandOver passes what the node leads on to another voter, if there is one that has
// caught up. The facade should be closed before: its clients would be cut off.
func (n *Node) HandOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	for _, g := range []*raftgroup.Group{n.durable.Raft(), n.catalog.Raft()} {
		if leads, _ := g.Leader(); !leads || voters(g) < 2 {
			continue
		}
		if err := g.TransferLeadership(ctx); err != nil {
			n.log.Warn().Err(err).Msg("no other node has taken the leadership over")
		}
	}
}

func voters(g *raftgroup.Group) (n int) {
	for _, s := range g.Servers() {
		if !s.Learner {
			n++
		}
	}
	return n
}

// DialTunnel opens a connection to the node that leads; meta tells it what for.
func (n *Node) DialTunnel(ctx context.Context, meta []byte) (net.Conn, error) {
	leader := n.Leader()
	if err := n.Served(); err != nil {
		return nil, err
	}
	return n.dialTunnel(ctx, leader, meta)
}

func (n *Node) dialTunnel(context.Context, string, []byte) (net.Conn, error) {
	return nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "the node has no peers")
}

// AcceptTunnel returns the next connection that another node has opened to this one.
// It returns an error when the node closes.
func (n *Node) AcceptTunnel() (net.Conn, []byte, error) {
	<-n.ctx.Done()
	return nil, nil, errStopping()
}
