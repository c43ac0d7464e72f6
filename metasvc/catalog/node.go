package catalog

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
	"github.com/trivium-mq/trivium/metasvc/pmap"
)

// Those of this file.
const (
	opPutNode opKind = 50 + iota
	opDropNode
	opDrainNode
	opPutRemoved
	opLeaveNode
	opForgetNodes
)

const (
	// MaxNodes bounds the members of a cluster.
	MaxNodes = 64
	// maxRemoved bounds how many removed nodes are remembered: the oldest ones are
	// forgotten.
	maxRemoved = 1024
)

// Node is a member of the cluster.
type Node struct {
	ID          string // as the operator knows it
	Raft        string // its name in Raft groups; another data directory has another one
	Incarnation string // of its data directory
	Address     string // where other nodes reach it, host:port
	Fronts      []Front
	Version     string // of its program
	Draining    bool   // it is to lead nothing
	Leaving     bool   // it is to be in no Raft group, and removed then
}

// Front is an address that clients reach a node at.
type Front struct{ Name, Address string }

// RemovedNode is a node that has been removed: its Raft name never comes back.
type RemovedNode struct {
	ID, Raft string
	Number   uint64 // counts the removals
}

// PutNode makes a member or replaces what is known of it, but for Draining and Leaving,
// which only count for a new one. CodeExists if the id belongs to another data directory,
// CodeNotAllowed if that name has been removed, CodeLimit at MaxNodes.
type PutNode struct{ Node Node }

// LeaveNode says that a member is to be removed, for good: that it shall leave its Raft
// groups. CodeNotFound if there is none.
type LeaveNode struct{ ID string }

// DropNode removes a member, which should have left; a missing one is no error.
type DropNode struct{ ID string }

// DrainNode says whether a member is to lead nothing. CodeNotFound if there is none.
type DrainNode struct {
	ID       string
	Draining bool
}

// ForgetNodes forgets all members and all that were removed: the catalog is that of another cluster from
// then on, in which every name is free.
type ForgetNodes struct{}

// putRemoved restores the memory of a removed node from a snapshot.
type putRemoved struct{ node RemovedNode }

func (PutNode) kind() opKind    { return opPutNode }
func (DropNode) kind() opKind   { return opDropNode }
func (DrainNode) kind() opKind  { return opDrainNode }
func (LeaveNode) kind() opKind  { return opLeaveNode }
func (putRemoved) kind() opKind { return opPutRemoved }

func (ForgetNodes) kind() opKind { return opForgetNodes }

func (op PutNode) apply(s *State, _ *Result) error {
	n := op.Node
	n.Fronts = slices.Clone(n.Fronts)
	if s.Removed(n.Raft) {
		return kernel.Errorf(kernel.CodeNotAllowed, "node", n.ID, "it was removed from the cluster")
	}
	old, ok := s.nodes.Get(n.ID)
	switch {
	case ok && old.Raft != n.Raft:
		return kernel.Errorf(kernel.CodeExists, "node", n.ID, "it is a member with another data directory")
	case ok:
		n.Draining, n.Leaving = old.Draining, old.Leaving
	case s.nodes.Len() >= MaxNodes:
		return kernel.Errorf(kernel.CodeLimit, "node", n.ID, "the cluster has %d nodes, more are not possible", MaxNodes)
	}
	s.nodes = s.nodes.Put(n.ID, &n)
	return nil
}

func (op DropNode) apply(s *State, res *Result) error {
	n, ok := s.nodes.Get(op.ID)
	if !ok {
		return nil
	}
	s.nodes = s.nodes.Delete(op.ID)
	last := uint64(0)
	s.RemovedNodes(func(r *RemovedNode) { last = max(last, r.Number) })
	return putRemoved{RemovedNode{ID: n.ID, Raft: n.Raft, Number: last + 1}}.apply(s, res)
}

func (op DrainNode) apply(s *State, _ *Result) error {
	return s.changeNode(op.ID, func(n *Node) { n.Draining = op.Draining })
}

func (op LeaveNode) apply(s *State, _ *Result) error {
	return s.changeNode(op.ID, func(n *Node) { n.Leaving = true })
}

func (s *State) changeNode(id string, change func(*Node)) error {
	old, ok := s.nodes.Get(id)
	if !ok {
		return kernel.Errorf(kernel.CodeNotFound, "node", id, "it is no member of the cluster")
	}
	n := *old
	change(&n)
	s.nodes = s.nodes.Put(id, &n)
	return nil
}

func (op putRemoved) apply(s *State, _ *Result) error {
	s.removed = s.removed.Put(op.node.Raft, &op.node)
	if s.removed.Len() > maxRemoved {
		oldest := &op.node
		s.RemovedNodes(func(r *RemovedNode) {
			if r.Number < oldest.Number {
				oldest = r
			}
		})
		s.removed = s.removed.Delete(oldest.Raft)
	}
	return nil
}

func (ForgetNodes) apply(s *State, _ *Result) error {
	s.nodes, s.removed = pmap.Map[*Node]{}, pmap.Map[*RemovedNode]{}
	return nil
}

// Node returns a member by its id.
func (s *State) Node(id string) (*Node, bool) { return s.nodes.Get(id) }

// Nodes calls fn for every member, by id.
func (s *State) Nodes(fn func(*Node)) { s.nodes.Each(fn) }

// Removed reports whether the node of that Raft name was removed.
func (s *State) Removed(raft string) bool { return s.removed.Has(raft) }

// RemovedNodes calls fn for the nodes that were removed, by Raft name.
func (s *State) RemovedNodes(fn func(*RemovedNode)) { s.removed.Each(fn) }

// nodeLen is how many ops putNodes makes.
func (s *State) nodeLen() int { return s.nodes.Len() + s.removed.Len() }

// putNodes makes the ops of a snapshot.
func (s *State) putNodes(put func(Op)) {
	s.Nodes(func(n *Node) { put(PutNode{*n}) })
	s.RemovedNodes(func(r *RemovedNode) { put(putRemoved{*r}) })
}

func (op PutNode) append(b []byte) []byte {
	n := &op.Node
	b = appendStrings(b, n.ID, n.Raft, n.Incarnation, n.Address, n.Version)
	b = codec.AppendFlags(b, n.Draining, n.Leaving)
	b = codec.AppendUint(b, uint64(len(n.Fronts)))
	for _, f := range n.Fronts {
		b = appendStrings(b, f.Name, f.Address)
	}
	return b
}

func (op LeaveNode) append(b []byte) []byte { return codec.AppendString(b, op.ID) }
func (op DropNode) append(b []byte) []byte  { return codec.AppendString(b, op.ID) }

func (op DrainNode) append(b []byte) []byte {
	return codec.AppendFlags(codec.AppendString(b, op.ID), op.Draining)
}

func (ForgetNodes) append(b []byte) []byte { return b }

func (op putRemoved) append(b []byte) []byte {
	return codec.AppendUint(appendStrings(b, op.node.ID, op.node.Raft), op.node.Number)
}

// readNode reads an op of this file, nil if the kind is none of them.
func readNode(kind opKind, r *codec.Reader) Op {
	switch kind {
	case opPutNode:
		n := Node{ID: r.String(), Raft: r.String(), Incarnation: r.String(), Address: r.String(), Version: r.String()}
		r.Flags(&n.Draining, &n.Leaving)
		for range r.Count() {
			if r.Err() != nil {
				break
			}
			n.Fronts = append(n.Fronts, Front{Name: r.String(), Address: r.String()})
		}
		return PutNode{n}
	case opDropNode:
		return DropNode{r.String()}
	case opLeaveNode:
		return LeaveNode{r.String()}
	case opDrainNode:
		op := DrainNode{ID: r.String()}
		r.Flags(&op.Draining)
		return op
	case opForgetNodes:
		return ForgetNodes{}
	case opPutRemoved:
		return putRemoved{RemovedNode{ID: r.String(), Raft: r.String(), Number: r.Uint()}}
	}
	return nil
}
