package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// Former is the member that a node was, and in whose place it joins again with a data
// directory of its own: what that member held is damaged, and its vote is gone.
type Former struct {
	Raft        string `json:"raft"`
	Incarnation string `json:"incarnation"`
	Cluster     string `json:"cluster"`
}

// enterRequest is a joinRequest that may be of a node which was a member. Versions that
// do not know Former refuse it as any other node under the number of a member.
type enterRequest struct {
	joinRequest
	Former *Former `json:",omitempty"`
}

// replace removes the member that a node was, as an operator would: one change at a time,
// by the majority of those who have what was confirmed. It returns nil also if there is
// nothing to remove; whether the node may join is not decided here.
func (n *Node) replace(ctx context.Context, from Identity, f Former) error {
	if self := n.Self(); f.Cluster != self.Cluster {
		return strangers(self, Identity{Node: from.Node, Cluster: f.Cluster})
	}
	n.replacing.Lock() // two copies of a directory must not remove each other
	defer n.replacing.Unlock()
	m, ok := n.replicas.Load().Catalog.State().Node(from.Node)
	if !ok || m.Raft != f.Raft || m.Incarnation != f.Incarnation {
		return nil
	}
	if address, err := n.resolve(m.Raft); err == nil && address != from.Address && n.answers(ctx, m.Raft, address) {
		return twin(Identity{Node: m.ID, Address: address}, from)
	}
	if err := n.reach(ctx, from); err != nil {
		return unreachable(from, err)
	}
	n.log.Warn().Str("node", from.Node).Str("was", m.Raft).Str("is", from.Raft).
		Msg("a node has found damage in what it holds: it leaves the cluster, and joins it again as a new one")
	if err := n.remove(ctx, operateRequest{Op: opRemove, Node: from.Node}); err != nil {
		return &Refusal{Code: transport.CodeOther, Reason: fmt.Sprintf("node %s cannot leave yet, to join again without what is damaged: %v", from.Node, err)}
	}
	return nil
}

// answers reports whether the node of a Raft name runs at an address.
func (n *Node) answers(ctx context.Context, raftID, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	c, who, err := n.mux.Dial(ctx, address, transport.Hello{Kind: transport.KindRPC, To: raftID})
	if err == nil {
		_ = c.Close()
	}
	return who.Raft == raftID
}

// final is Final for this node. One that was a member waits also while another version
// leads, which does not know that it may come back: an operator may remove what it was.
func (n *Node) final(err error) bool {
	if n.cfg.Former != nil {
		r, ok := errors.AsType[*Refusal](err)
		if ok && (r.Code == transport.CodeIncarnation || r.Code == transport.CodeCluster) {
			return false
		}
	}
	return Final(err)
}

// Addresses returns where the other nodes of a cluster were last, as the data directory
// of a node that does not run knows it.
func Addresses(fsys vfs.FS, dir, cluster string) (list []string) {
	file, err := readBook(fsys, dir)
	if err != nil || file.Cluster != cluster {
		return nil
	}
	for _, p := range file.Peers {
		if p.Address != "" {
			list = append(list, p.Address)
		}
	}
	return list
}
