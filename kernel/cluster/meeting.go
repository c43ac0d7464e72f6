package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

const (
	// meetEvery is how often nodes exchange how they are.
	meetEvery = time.Second
	// meetTime bounds one exchange.
	meetTime = 2 * time.Second
	// freshTime is how long a node counts as reachable after an exchange.
	freshTime = 5 * time.Second
	// maxAcquaintances bounds the table of those met.
	maxAcquaintances = 4 * catalog.MaxNodes
)

// Info is how a node is.
type Info struct {
	Node, Raft, Incarnation, Address string
	Boot                             uint64
	Fronts                           []catalog.Front
	Version                          string
	Clock                            int64             // by which it counts, ms; 0 = it does not say
	Low                              bool              // on disk
	Slow                             bool              // its disk is
	Clients                          bool              // it takes streams of clients, see OpenClient; versions before 0.1 do not
	Protocols                        []kernel.Protocol // of those clients; of who takes some and does not say it is amqp
	Attached                         bool              // Groups are known
	Groups                           []GroupInfo
}

// GroupInfo is how a node's replica of a Raft group is.
type GroupInfo struct {
	Group   uint32
	Leader  string // Raft name of whom it takes for the leader; its own only if it serves
	Term    uint64
	Last    uint64 // index of the last entry of its log
	Commit  uint64
	Applied uint64
	Whole   bool
	Behind  []string // Raft names of members that lack much of the log, told by its leader
}

// acquaintance is what is known of another node from meeting it.
type acquaintance struct {
	id      Identity  // of the process met last
	info    *Info     // of that process; nil = it has not told
	at      time.Time // of info
	checked bool      // its logs are no older than what was seen of them
	refused *Refusal  // they are
}

// acquaintances are the nodes met, by Raft name.
type acquaintances struct {
	mu   sync.Mutex
	list map[string]*acquaintance
}

func newAcquaintances() *acquaintances { return &acquaintances{list: map[string]*acquaintance{}} }

// get returns a copy.
func (a *acquaintances) get(raftID string) acquaintance {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.list[raftID]; one != nil {
		return *one
	}
	return acquaintance{}
}

// meet notes that a process has shown up, and returns the one before if that is another.
func (a *acquaintances) meet(id Identity) (before Identity, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.list[id.Raft]
	switch {
	case one == nil && len(a.list) >= maxAcquaintances && !a.forget():
		return before, &Refusal{Code: transport.CodeOther, Reason: "too many nodes have been here"}
	case one == nil:
		a.list[id.Raft] = &acquaintance{id: id}
	case one.id.Boot != id.Boot:
		return one.id, nil
	}
	return Identity{}, nil
}

// forget makes room: who has not been heard of for longest goes. The caller holds mu.
func (a *acquaintances) forget() bool {
	oldest := ""
	for name, one := range a.list {
		if time.Since(one.at) > freshTime && (oldest == "" || one.at.Before(a.list[oldest].at)) {
			oldest = name
		}
	}
	delete(a.list, oldest)
	return oldest != ""
}

// replace puts a process in the place of the one before.
func (a *acquaintances) replace(before, id Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.list[id.Raft]; one != nil && one.id.Boot == before.Boot {
		*one = acquaintance{id: id}
	}
}

// told notes what a process has told.
func (a *acquaintances) told(info *Info, checked bool, refused *Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.list[info.Raft]; one != nil && one.id.Boot == info.Boot {
		one.info, one.at = info, time.Now()
		one.checked, one.refused = one.checked || checked, refused
	}
}

// missed notes that a node is not where it was.
func (a *acquaintances) missed(raftID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.list[raftID]; one != nil {
		one.at = time.Time{}
	}
}

// admit implements transport.MuxConfig.Admit.
func (n *Node) admit(ctx context.Context, c net.Conn, h transport.Hello) error {
	settled(c)
	if err := n.certified(c, h.From.Node); err != nil {
		return err
	}
	if err := named(h.From); err != nil {
		return err
	}
	self := n.Self()
	switch {
	case h.From.Raft == self.Raft && h.From.Boot == self.Boot:
		return &Refusal{Code: transport.CodeTarget, Reason: "this is the node itself"}
	case h.To != "" && h.To != self.Raft, h.To == "" && h.Kind != transport.KindRPC:
		return &Refusal{Code: transport.CodeTarget, Reason: fmt.Sprintf("this is node %s, not %q", self.Raft, h.To)}
	case h.From.Cluster == "" || self.Cluster == "":
		if h.Kind != transport.KindRPC {
			return &Refusal{Code: transport.CodeStarting, Reason: "the node belongs to no cluster yet"}
		}
		return nil // to join, or to see whether it can be reached
	case h.From.Cluster != self.Cluster:
		return strangers(self, h.From)
	case h.From.Raft == self.Raft:
		return twin(self, h.From)
	case (h.Kind == transport.KindTunnel || h.Kind == transport.KindClient) && !n.knows(h.From):
		return noMember(h.From) // the one that serves knows all
	}
	return n.welcome(ctx, h.From, h.Kind)
}

// verify implements transport.MuxConfig.Verify.
func (n *Node) verify(ctx context.Context, c net.Conn, h transport.Hello, who Identity, refused *Refusal) error {
	if err := n.certified(c, who.Node); err != nil || refused != nil {
		return err
	}
	if err := named(who); err != nil {
		return err
	}
	self := n.Self()
	switch {
	case who.Raft == self.Raft && who.Boot == self.Boot:
		return &Refusal{Code: transport.CodeTarget, Reason: "this is the node itself"}
	case who.Cluster != "" && self.Cluster != "" && who.Cluster != self.Cluster:
		return strangers(who, self)
	case h.To != "" && who.Raft != h.To:
		return &Refusal{Code: transport.CodeTarget, Reason: fmt.Sprintf("node %s answers in place of %s", who.Raft, h.To)}
	case who.Cluster == "" || self.Cluster == "" || who.Raft == self.Raft:
		return nil
	}
	return n.welcome(ctx, who, h.Kind)
}

// named returns an error if the Raft name is not one that a node of that id may have. A
// certificate is for a node id: without this one would do for every member.
func named(id Identity) error {
	if id.Node != "" && (id.Raft == id.Node || id.Raft == RaftName(id.Node, id.Incarnation)) {
		return nil
	}
	return &Refusal{Code: transport.CodeOther, Reason: fmt.Sprintf("%.64q is no name of node %.64q in Raft groups", id.Raft, id.Node)}
}

func strangers(here, there Identity) error {
	return &Refusal{Code: transport.CodeCluster, Reason: fmt.Sprintf("node %s belongs to cluster %s, and the data directory of node %s to %s",
		here.Node, here.Cluster, there.Node, there.Cluster)}
}

func twin(lives, other Identity) error {
	return &Refusal{Code: transport.CodeTwin, Reason: fmt.Sprintf("node %s with this data directory runs at %s already: a directory cannot be copied to make another node (that of %s)",
		lives.Node, lives.Address, other.Address)}
}

// welcome decides whether a member, or one that may be one, is wanted. For the messages
// of Raft groups its logs have to be known.
func (n *Node) welcome(ctx context.Context, id Identity, kind transport.Kind) error {
	if err := n.belongs(id); err != nil {
		return err
	}
	before, err := n.met.meet(id)
	if err != nil {
		return err
	}
	if before.Boot != 0 {
		if n.lives(ctx, before, id) {
			return twin(before, id)
		}
		n.met.replace(before, id)
		n.links.drop(id.Raft)
		n.clients.links.drop(id.Raft)
	}
	if kind != transport.KindGroup {
		return nil
	}
	a := n.met.get(id.Raft)
	if !a.checked && a.refused == nil {
		if err := n.exchange(ctx, id.Raft, id.Address); err != nil {
			return err
		}
		a = n.met.get(id.Raft)
	}
	switch {
	case a.refused != nil:
		return a.refused
	case !a.checked:
		return &Refusal{Code: transport.CodeStarting, Reason: "one of the two is not ready yet"}
	}
	return nil
}

// belongs returns an error if the catalog knows better who a node is. One that it does
// not know, or only as it was before it was removed and joined anew, may be a member: the
// catalog here may be behind, unless this node leads it. That a name was removed stays true.
func (n *Node) belongs(id Identity) error {
	r := n.replicas.Load()
	if r == nil {
		return nil
	}
	s := r.Catalog.State()
	if s.Removed(id.Raft) {
		return &Refusal{Code: transport.CodeRemoved, Reason: fmt.Sprintf("node %s was removed from the cluster: it can join again with an empty data directory", id.Node)}
	}
	if m, ok := s.Node(id.Node); ok && (m.Raft != id.Raft || m.Incarnation != id.Incarnation) {
		if leads, _ := r.group(metasvc.CatalogGroup).Raft.Leader(); leads || m.Raft == id.Raft {
			return another(m, id)
		}
	}
	var taken *Refusal
	s.Nodes(func(m *catalog.Node) {
		if m.Raft == id.Raft && m.ID != id.Node {
			taken = &Refusal{Code: transport.CodeOther, Reason: fmt.Sprintf("%.64q is the name of node %s in Raft groups", id.Raft, m.ID)}
		}
	})
	if taken != nil {
		return taken
	}
	return nil
}

// knows reports whether a node is a member, or the members are not known here yet.
func (n *Node) knows(id Identity) bool {
	r := n.replicas.Load()
	if r == nil {
		return true
	}
	m, ok := r.Catalog.State().Node(id.Node)
	return ok && m.Raft == id.Raft
}

func noMember(id Identity) error {
	return &Refusal{Code: transport.CodeOther, Reason: fmt.Sprintf("node %.64q is no member of the cluster: it has to join first", id.Node)}
}

// another refuses a node whose id belongs to a member with another data directory.
func another(m *catalog.Node, id Identity) error {
	reason := fmt.Sprintf("node %s is a member with another data directory (last at %s), and may have confirmed what this one lacks: "+
		"if that directory is lost, remove the node first (trivium cluster remove %s); if it is in use, this node needs a number of its own (node.id)",
		id.Node, m.Address, id.Node)
	return &Refusal{Code: transport.CodeIncarnation, Reason: reason}
}

// lives reports whether a process that was met still runs, when another one says that
// it is the same node. Where that one listens now it does not.
func (n *Node) lives(ctx context.Context, before, now Identity) bool {
	if before.Address == now.Address {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	c, who, err := n.mux.Dial(ctx, before.Address, transport.Hello{Kind: transport.KindRPC, To: before.Raft})
	if err == nil {
		_ = c.Close()
	}
	return who.Raft == before.Raft && who.Boot == before.Boot
}

// resolve returns the address of a node by its Raft name.
func (n *Node) resolve(raftID string) (string, error) {
	if a := n.met.get(raftID); a.id.Address != "" {
		return a.id.Address, nil
	}
	if r := n.replicas.Load(); r != nil {
		address := ""
		r.Catalog.State().Nodes(func(m *catalog.Node) {
			if m.Raft == raftID {
				address = m.Address
			}
		})
		if address != "" {
			return address, nil
		}
	}
	if address, ok := n.book.address(raftID); ok {
		return address, nil
	}
	return "", fmt.Errorf("%w: %s", ErrUnknownNode, raftID)
}

// exchange tells a node how this one is, and learns how it is. An error may be a
// [*Refusal] of either.
func (n *Node) exchange(ctx context.Context, raftID, address string) error {
	ctx, cancel := context.WithTimeout(ctx, meetTime)
	defer cancel()
	var reply meetReply
	who, err := n.links.call(ctx, raftID, address, methodMeet, meetRequest{n.info()}, &reply)
	if err != nil {
		return err
	}
	if reply.Refused != nil {
		reply.Refused.From = who.Raft
		return reply.Refused
	}
	return n.told(who, reply.Info)
}

// told takes in what a node has told of itself.
func (n *Node) told(who Identity, info Info) error {
	if info.Raft != who.Raft || info.Boot != who.Boot {
		return errors.New("cluster: a node speaks for another one")
	}
	var refused *Refusal
	ready := info.Attached && n.replicas.Load() != nil
	// A directory is set back while no process runs on it. Of one that was looked at
	// what is told may be older than what it has promised since.
	if ready && !n.met.get(info.Raft).checked {
		refused = n.seen.check(info.Raft, info.Groups)
	}
	n.met.told(&info, ready && refused == nil, refused)
	if refused != nil {
		return refused
	}
	if info.Clock != 0 && n.cfg.OnClock != nil {
		n.cfg.OnClock(info.Raft, info.Clock)
	}
	return nil
}

// info is how this node is.
func (n *Node) info() Info {
	self := n.Self()
	info := Info{Node: self.Node, Raft: self.Raft, Incarnation: self.Incarnation, Address: self.Address, Boot: self.Boot,
		Fronts: fronts(n.cfg.Fronts), Version: n.cfg.Version}
	if n.cfg.Clock != nil {
		info.Clock = n.cfg.Clock()
	}
	info.Low, info.Slow, info.Clients, info.Protocols = n.low(), n.slow(), true, protocols
	r := n.replicas.Load()
	if r == nil {
		return info
	}
	info.Attached = true
	for i := range r.Groups {
		g := &r.Groups[i]
		leads, leader := g.Raft.Leader()
		if leader == self.Raft && !leads {
			leader = ""
		}
		one := GroupInfo{Group: g.ID, Leader: leader, Term: g.Raft.Term(), Last: g.Raft.LastIndex(),
			Commit: g.Raft.CommitIndex(), Applied: g.Raft.AppliedIndex(), Whole: g.whole()}
		if leads {
			one.Behind = n.seen.behind(g.ID, g.Raft)
		}
		info.Groups = append(info.Groups, one)
	}
	return info
}
