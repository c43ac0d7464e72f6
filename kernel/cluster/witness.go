package cluster

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

// witness remembers what other nodes have promised this one: a node whose disk was set
// back to an older state has forgotten it, and must not vote again with what it has
// left. What was promised some time ago is also written down, see promises.go.
type witness struct {
	node *Node
	mu   sync.Mutex
	of   map[witnessKey]promise
}

type witnessKey struct {
	group uint32
	raft  string
}

// promise is the highest of each that was seen.
type promise struct {
	term  uint64 // the peer has been in it, and has stored that
	in    uint64 // term in which it had the log of this node up to index
	index uint64
	led   uint64 // term in which it led this node: it had all of that term's log here
	floor uint64 // it has had the log up to here, and that was committed
}

func newWitness(n *Node) *witness { return &witness{node: n, of: map[witnessKey]promise{}} }

// Acknowledged implements transport.Witness.
func (w *witness) Acknowledged(group uint32, raftID string, term, index uint64, stored bool) {
	w.note(group, raftID, func(p *promise) {
		if stored {
			p.term = max(p.term, term)
		}
		if term > p.in || term == p.in && index > p.index {
			p.in, p.index = term, index
		}
	})
}

// Voted implements transport.Witness.
func (w *witness) Voted(group uint32, raftID string, term uint64) {
	w.note(group, raftID, func(p *promise) { p.term = max(p.term, term) })
}

// led notes that a node leads a group in a term.
func (w *witness) led(group uint32, raftID string, term uint64) {
	w.note(group, raftID, func(p *promise) { p.led = max(p.led, term) })
}

func (w *witness) note(group uint32, raftID string, fn func(*promise)) {
	k := witnessKey{group, raftID}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.of[k]
	fn(&p)
	w.of[k] = p
}

// committed is the index up to which a peer must have the log. What is committed is in it
// for ever; what was not may have been replaced.
func (p *promise) committed(g *raftgroup.Group) uint64 {
	return max(p.floor, g.CommittedIn(p.in, p.index), g.CommittedIn(p.led, math.MaxUint64))
}

// check compares the logs of a node with what was seen of them.
func (w *witness) check(raftID string, groups []GroupInfo) *Refusal {
	replicas := w.node.replicas.Load()
	for _, g := range groups {
		w.mu.Lock()
		p := w.of[witnessKey{g.Group, raftID}]
		w.mu.Unlock()
		mine := replicas.group(g.Group)
		if mine == nil || p == (promise{}) {
			continue
		}
		last := max(g.Last, g.Applied)
		want := p.committed(mine.Raft)
		if g.Term < p.term || last < want {
			return &Refusal{Code: transport.CodeRolledBack, Reason: fmt.Sprintf("the data directory of node %s is older than what node %s has seen of it "+
				"(group %d: term %d, log up to %d; it had term %d, %d): it was set back. Remove the node and let it join with an empty directory",
				raftID, w.node.Self().Node, g.Group, g.Term, last, max(p.term, p.led), want)}
		}
	}
	return nil
}

// nearEnough is how many entries a member may lack that counts as having the log: what is
// on its way under load, and what comes at once when it is missed.
const nearEnough = 1000

// near reports whether a member has the log of this node's term, up to nearly its end.
func (p *promise) near(term, last uint64) bool { return p.in == term && p.index+nearEnough >= last }

// behind lists the members of a group that lack much of the log of this node, which leads
// it.
func (w *witness) behind(group uint32, g *raftgroup.Group) (list []string) {
	term, last, self := g.Term(), g.LastIndex(), w.node.Self().Raft
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range g.Servers() {
		p := w.of[witnessKey{group, s.ID}]
		if s.ID != self && !p.near(term, last) {
			list = append(list, s.ID)
		}
	}
	return list
}

// behind reports whether a member lacks much of the log of a group, as the group's leader
// has told.
func (n *Node) behind(raftID string) bool {
	r := n.replicas.Load()
	for i := range r.Groups {
		g := &r.Groups[i]
		leads, leader := g.Raft.Leader()
		if leads {
			if slices.Contains(n.seen.behind(g.ID, g.Raft), raftID) {
				return true
			}
			continue
		}
		info := n.fresh(leader)
		if info == nil {
			continue
		}
		for _, told := range info.Groups {
			if told.Group == g.ID && slices.Contains(told.Behind, raftID) {
				return true
			}
		}
	}
	return false
}
