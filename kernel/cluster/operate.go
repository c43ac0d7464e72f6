package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// The operations, part of the protocol between nodes.
const (
	opRemove = "remove"
	opDrain  = "drain"
	opMove   = "move"
)

// maxTries bounds how often an operation is tried, operatePause apart: leaders change.
const (
	maxTries     = 5
	operatePause = 300 * time.Millisecond
)

// operateTime bounds an operation, with what it waits for.
const operateTime = 30 * time.Second

// leaderTime is how long an operation waits for an election.
const leaderTime = 5 * time.Second

// operateRequest is what an operator asks for.
type operateRequest struct {
	Op    string
	Node  string
	Group uint32
	Force bool // opRemove: also if nobody else who can be reached has all data
	Undo  bool // opDrain
	Again bool // it may have been done already
}

// operateReply says how it went; Reason is empty if it went well.
type operateReply struct {
	Code   kernel.Code
	Reason string
}

// Remove removes a member for good: its data directory cannot come back. It returns
// when the node is in no group any more. With force also if none of the nodes that are
// left and can be reached has all data. CodePrecondition: these are no majority of those
// that vote, which has to confirm the removal.
func (n *Node) Remove(ctx context.Context, node string, force bool) error {
	return n.operate(ctx, operateRequest{Op: opRemove, Node: node, Force: force})
}

// Drain says that a node is to lead nothing, or may again.
func (n *Node) Drain(ctx context.Context, node string, undo bool) error {
	return n.operate(ctx, operateRequest{Op: opDrain, Node: node, Undo: undo})
}

// Move hands the leadership of a group to a node. Those of the catalog and of the
// placement group move together.
func (n *Node) Move(ctx context.Context, group uint32, node string) error {
	return n.operate(ctx, operateRequest{Op: opMove, Node: node, Group: group})
}

// Rebalance brings the leaderships to where they belong: all groups to one node that is
// not to be drained. It returns which node leads then.
func (n *Node) Rebalance(ctx context.Context) (string, error) {
	s := n.Status()
	for _, one := range s.Nodes {
		if one.State == kernel.NodeServing && !one.Draining {
			return one.Name, nil
		}
	}
	for _, one := range s.Nodes {
		if one.State == kernel.NodeStandby && !one.Draining {
			return one.Name, n.Move(ctx, n.placed(), one.Name)
		}
	}
	return "", kernel.Errorf(kernel.CodeUnavailable, "", "", "no node that votes and is not to be drained can be reached")
}

// placed is the group that decides who serves.
func (n *Node) placed() uint32 {
	r := n.replicas.Load()
	if r == nil || len(r.Groups) == 0 {
		return metasvc.CatalogGroup
	}
	return r.Groups[len(r.Groups)-1].ID
}

// operate has an operation done where it has to be: by the leader of the group that it
// is about, whoever that becomes on the way. All operations may be repeated.
func (n *Node) operate(ctx context.Context, req operateRequest) error {
	ctx, cancel := context.WithTimeout(ctx, operateTime)
	defer cancel()
	r := n.replicas.Load()
	if r == nil {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the node is starting")
	}
	id := uint32(metasvc.CatalogGroup)
	if req.Op == opMove {
		if req.Group = n.moved(req.Group); r.group(req.Group) == nil {
			return kernel.Errorf(kernel.CodeNotFound, "group", fmt.Sprint(req.Group), "there is no such group")
		}
		id = req.Group
	}
	for try := 1; ; try++ {
		err := n.operateAt(ctx, r.group(id), req)
		_, vain := errors.AsType[leaderless](err)
		if vain && req.Again { // a leader had begun with it, and was lost
			return kernel.Errorf(kernel.CodeUnavailable, "", "", "%v; if the majority comes back, what was asked for may be done then", err)
		}
		if err == nil || vain || try == maxTries || ctx.Err() != nil {
			return err
		}
		switch kernel.CodeOf(err) {
		case kernel.CodeUnavailable, kernel.CodeUnknown:
		default:
			return err
		}
		req.Again = true
		select {
		case <-time.After(operatePause):
		case <-ctx.Done():
			return err
		}
	}
}

// operateAt has an operation done by the present leader of a group.
func (n *Node) operateAt(ctx context.Context, g *Group, req operateRequest) error {
	leads, leader, err := n.awaitLeader(ctx, g)
	if err != nil {
		return err
	}
	if leads {
		return n.execute(ctx, req)
	}
	address, err := n.resolve(leader)
	if err != nil {
		return kernel.Errorf(kernel.CodeUnavailable, "node", leader, "%v", err)
	}
	var reply operateReply
	if _, err := n.links.call(ctx, leader, address, methodOperate, req, &reply); err != nil {
		return kernel.Errorf(kernel.CodeUnknown, "", "", "the leader has not answered: %v", err)
	}
	if reply.Reason != "" {
		return &kernel.Error{Code: reply.Code, Detail: reply.Reason}
	}
	return nil
}

// leaderless is the error of an operation that has waited for an election in vain.
type leaderless struct{ error }

func (e leaderless) Unwrap() error { return e.error }

// leaderless tells how many of those who elect a group's leader can be reached.
func (n *Node) leaderless(g *Group) error {
	voters, up := 0, 0
	for _, s := range g.Raft.Servers() {
		if s.Learner {
			continue
		}
		voters++
		if s.ID == n.Self().Raft || n.fresh(s.ID) != nil {
			up++
		}
	}
	return leaderless{kernel.Errorf(kernel.CodeUnavailable, "", "", "the cluster has no leader at the moment: of the %d nodes that vote in group %d this one reaches %d, itself included; "+
		"nothing can be changed without a majority; if it is lost for good, trivium recover --alone goes on with one node", voters, g.ID, up)}
}

// awaitLeader returns who leads a group, when somebody does.
func (n *Node) awaitLeader(ctx context.Context, g *Group) (leads bool, leader string, err error) {
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	patience := time.After(leaderTime)
	for {
		leads, leader = g.Raft.Leader()
		if leads || leader != "" && leader != n.Self().Raft {
			return leads, leader, nil
		}
		select {
		case <-tick.C:
			continue
		case <-patience:
		case <-ctx.Done():
		}
		return false, "", n.leaderless(g)
	}
}

// moved is the group whose leadership moves in the place of one: the catalog's follows
// that of the placement group.
func (n *Node) moved(group uint32) uint32 {
	if group == metasvc.CatalogGroup {
		return n.placed()
	}
	return group
}

// answerOperate does an operation that another node was asked for.
func (n *Node) answerOperate(ctx context.Context, from Identity, req *operateRequest) (*operateReply, error) {
	err := error(kernel.Errorf(kernel.CodeUnavailable, "", "", "the leader has changed"))
	id := uint32(metasvc.CatalogGroup)
	if req.Op == opMove {
		id = req.Group
	}
	if g := n.replicas.Load().group(id); g != nil {
		if leads, _ := g.Raft.Leader(); leads && n.knows(from) {
			err = n.execute(ctx, *req)
		} else if leads {
			err = kernel.Errorf(kernel.CodeAccessRefused, "", "", "%v", noMember(from))
		}
	}
	if err == nil {
		return &operateReply{}, nil
	}
	return &operateReply{Code: kernel.CodeOf(err), Reason: err.Error()}, nil
}

// execute does an operation as the leader of the group that it is about.
func (n *Node) execute(ctx context.Context, req operateRequest) error {
	switch req.Op {
	case opRemove:
		return n.remove(ctx, req)
	case opDrain:
		_, err := n.replicas.Load().Catalog.Do(ctx, catalog.DrainNode{ID: req.Node, Draining: !req.Undo})
		n.stir()
		return err
	case opMove:
		return n.move(ctx, req)
	}
	return kernel.Errorf(kernel.CodeNotImplemented, "operation", req.Op, "this version does not know it")
}

func (n *Node) move(ctx context.Context, req operateRequest) error {
	r := n.replicas.Load()
	g := r.group(req.Group)
	m, ok := r.Catalog.State().Node(req.Node)
	switch {
	case !ok:
		return unknownNode(req.Node)
	case m.Raft == n.Self().Raft:
		return nil // it leads already
	case m.Leaving:
		return kernel.Errorf(kernel.CodePrecondition, "node", req.Node, "it is being removed")
	case m.Draining:
		return kernel.Errorf(kernel.CodePrecondition, "node", req.Node, "it is to be drained: undo that first")
	}
	for _, s := range g.Raft.Servers() {
		if s.ID == m.Raft && !s.Learner {
			i := n.fresh(m.Raft)
			if i == nil {
				return kernel.Errorf(kernel.CodeUnavailable, "node", req.Node, "it cannot be reached")
			}
			if !i.whole(g.ID) {
				return kernel.Errorf(kernel.CodePrecondition, "node", req.Node, "it still lacks segments, or has just been started")
			}
			if i.strain() > n.strain() { // it would hand it back
				return kernel.Errorf(kernel.CodePrecondition, "node", req.Node, "its disk is %v", i.strain())
			}
			if err := g.handOver(ctx, m.Raft); err != nil {
				return kernel.Errorf(kernel.CodeUnavailable, "node", req.Node, "it has not taken the leadership over: %v", err)
			}
			return nil
		}
	}
	return kernel.Errorf(kernel.CodePrecondition, "node", req.Node, "it has no vote in group %d", g.ID)
}

func (i *Info) whole(group uint32) bool {
	for _, g := range i.Groups {
		if g.Group == group {
			return g.Whole
		}
	}
	return false
}

func unknownNode(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "node", name, "it is no member of the cluster")
}

func (n *Node) remove(ctx context.Context, req operateRequest) error {
	r := n.replicas.Load()
	m, ok := r.Catalog.State().Node(req.Node)
	if !ok {
		if raftID := n.removed(req.Node); req.Again && raftID != "" {
			return n.awaitGone(ctx, raftID)
		}
		return unknownNode(req.Node)
	}
	asked := time.Now()
	n.meetNow() // one that has failed just now counts no more, nor one that has not answered
	for i := range r.Groups {
		if err := n.expendable(&r.Groups[i], m, asked, req.Force); err != nil {
			return err
		}
	}
	if m.Raft == n.Self().Raft {
		return n.yield(ctx)
	}
	if _, err := r.Catalog.Do(ctx, catalog.LeaveNode{ID: req.Node}); err != nil {
		return err
	}
	n.stir()
	return n.awaitGone(ctx, m.Raft)
}

// meetNow exchanges with all other members how they are.
func (n *Node) meetNow() {
	var work sync.WaitGroup
	defer work.Wait()
	for _, p := range n.others() {
		if address, err := n.resolve(p.Raft); err == nil {
			work.Go(func() { n.meetOne(p, address) })
		}
	}
}

// removed returns the Raft name of the node of an id that was removed last, "" if none
// was.
func (n *Node) removed(id string) (raftID string) {
	last := uint64(0)
	n.replicas.Load().Catalog.State().RemovedNodes(func(r *catalog.RemovedNode) {
		if r.ID == id && r.Number > last {
			last, raftID = r.Number, r.Raft
		}
	})
	return raftID
}

// yield hands over all that this node leads, since it is to be removed: the next leader
// has to do that. It always returns an error, which says so.
func (n *Node) yield(ctx context.Context) error {
	r := n.replicas.Load()
	for i := len(r.Groups) - 1; i >= 0; i-- { // the catalog last: it follows the others
		g := &r.Groups[i]
		if leads, _ := g.Raft.Leader(); !leads {
			continue
		}
		if err := n.giveAway(ctx, g, nil); err != nil {
			return kernel.Errorf(kernel.CodeUnavailable, "node", n.Self().Node, "it leads: %v", err)
		}
	}
	return kernel.Errorf(kernel.CodeUnavailable, "node", n.Self().Node, "it has handed over to another node, which can remove it: try again")
}

// expendable returns an error if a group cannot do without a node. Of the others those
// count that have answered since they were asked: it is too late once the removal waits
// for the vote of a dead one.
func (n *Node) expendable(g *Group, m *catalog.Node, asked time.Time, force bool) error {
	votes, left, alive, whole := false, 0, 0, 0
	for _, s := range g.Raft.Servers() {
		switch {
		case s.Learner:
			continue
		case s.ID == m.Raft:
			votes = true
			continue
		}
		left++
		if s.ID == n.Self().Raft {
			alive++
			if g.whole() {
				whole++
			}
		} else if i := n.heard(s.ID, asked); i != nil {
			alive++
			if i.whole(g.ID) {
				whole++
			}
		}
	}
	switch {
	case !votes:
		return nil
	case left == 0:
		return kernel.Errorf(kernel.CodePrecondition, "node", m.ID, "it is the last one that votes in group %d", g.ID)
	case n.fresh(m.Raft) == nil && m.Raft != n.Self().Raft && alive*2 <= left+1: // it says so itself in a moment
		return n.leaderless(g)
	case alive*2 <= left: // whatever force says: the rest has to confirm the removal itself
		return kernel.Errorf(kernel.CodePrecondition, "node", m.ID, "of the %d nodes that would be left to vote in group %d only %d can be reached: that is no majority, "+
			"and without one the removal could not be confirmed either; remove those first that cannot be reached", left, g.ID, alive)
	case whole == 0 && !force:
		return kernel.Errorf(kernel.CodePrecondition, "node", m.ID, "no other node that can be reached has all of group %d", g.ID)
	}
	return nil
}

// awaitGone waits until a node is in no group any more, and removed.
func (n *Node) awaitGone(ctx context.Context, raftID string) error {
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	for n.inGroups(raftID) || !n.replicas.Load().Catalog.State().Removed(raftID) {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return kernel.Errorf(kernel.CodeUnavailable, "node", raftID, "it is still in a group: the leaders go on trying to remove it")
		}
	}
	return nil
}

func (n *Node) inGroups(raftID string) bool {
	r := n.replicas.Load()
	for i := range r.Groups {
		for _, s := range r.Groups[i].Raft.Servers() {
			if s.ID == raftID {
				return true
			}
		}
	}
	return false
}
