package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
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

// Leadership is Leader, and what Broker.Epoch says there. It may be news before Leader
// says so and Changed tells.
func (n *Node) Leadership() (leader string, epoch uint64) {
	l := n.durable.Raft().Leadership()
	return l.LeaderID, l.Term
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
	n.settleLast(ctx)
	to := n.heirs()
	for _, g := range []*raftgroup.Group{n.durable.Raft(), n.catalog.Raft()} {
		if leads, _ := g.Leader(); !leads || voters(g) < 2 {
			continue
		}
		err := errNoHeir
		for len(to) > 0 && err != nil { // who does not take the first gets no other
			if err = g.TransferLeadershipTo(ctx, to[0]); err != nil {
				to = to[1:]
			}
		}
		if err != nil {
			err = g.TransferLeadership(ctx)
		}
		if err != nil {
			n.log.Warn().Err(err).Msg("no other node has taken the leadership over")
		}
	}
}

// OnYield sets what is called before the leadership is passed on to another node: it
// closes the facade, in good order until ctx ends. Before the first Serve.
func (n *Node) OnYield(fn func(ctx context.Context)) { n.yield = fn }

// yieldTime is how long clients may take to go when another node is to lead.
const yieldTime = 500 * time.Millisecond

// flushTime is how long the leadership waits for what clients have settled last. On a
// disk that is slow it comes again.
const flushTime = 200 * time.Millisecond

// settleLast has logged what the clients of a facade that is closed have settled: else
// it would come again at the node that leads next.
func (n *Node) settleLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	n.durable.Flush(ctx)
}

// handOverTo passes both leaderships on to one node.
func (n *Node) handOverTo(ctx context.Context, to string) error {
	if n.yield != nil {
		yield, cancel := context.WithTimeout(ctx, yieldTime)
		n.yield(yield)
		cancel()
	}
	n.settleLast(ctx)
	if err := n.durable.Raft().TransferLeadershipTo(ctx, to); err != nil {
		return err
	}
	if leads, _ := n.catalog.Raft().Leader(); leads {
		return n.catalog.Raft().TransferLeadershipTo(ctx, to)
	}
	return nil
}

var errNoHeir = errors.New("no other node is known to be up")

// heirs are the other nodes that can lead, as far as this one knows, those last that would
// have to catch up first.
func (n *Node) heirs() []string {
	var list, behind []string
	for _, m := range n.Members() {
		switch {
		case !m.Reachable || m.Self || m.Learner || m.Draining:
		case m.Behind:
			behind = append(behind, m.Raft)
		default:
			list = append(list, m.Raft)
		}
	}
	return append(list, behind...)
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
	if n.cluster == nil {
		return nil, errNoPeers()
	}
	return n.cluster.DialTunnel(ctx, leader, meta)
}

// AcceptTunnel returns the next connection that another node has opened to this one.
// It returns an error when the node closes.
func (n *Node) AcceptTunnel() (net.Conn, []byte, error) {
	if n.cluster == nil {
		<-n.ctx.Done()
		return nil, nil, errStopping()
	}
	return n.cluster.AcceptTunnel()
}

// Members are the nodes of the cluster, by id; nil if there is none.
func (n *Node) Members() []cluster.Member {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Members()
}

// NodeName is the name of the member with a Raft name, or that.
func (n *Node) NodeName(raftID string) string {
	for _, m := range n.Members() {
		if m.Raft == raftID {
			return m.Node
		}
	}
	return raftID
}

// Nodes are the nodes of the cluster and what they do, as this one sees it; nil if there
// is none.
func (n *Node) Nodes() []kernel.ClusterNode {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Status().Nodes
}

// clustered reports whether other nodes can reach this one.
func (n *Node) clustered() bool { return n.cfg.Cluster.Listen != "" && n.cfg.Cluster.Listen != "off" }

// meet opens the cluster listener, and has the node let in by the others, or tells
// them that it is back.
func (n *Node) meet(ctx context.Context, fsys vfs.FS, dir string) error {
	c := &n.cfg.Cluster
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCluster, err)
	}
	f, seeds := &n.file, c.Join
	if n.again != nil {
		seeds = append(slices.Clone(seeds), cluster.Addresses(fsys, dir, n.again.Former.Cluster)...)
	}
	n.cluster, err = cluster.Open(cluster.Config{
		Identity: cluster.Identity{Node: f.Node, Raft: f.raftID(), Cluster: f.Cluster, Incarnation: f.Incarnation},
		Listener: l, Advertise: c.Advertise, Seeds: seeds, Former: n.again.former(), TLS: c.TLS, FS: fsys, Dir: dir, Fronts: c.Fronts,
		Secret: f.Secret, Version: n.cfg.Version, Low: n.lowOnDisk, Slow: n.slowOnDisk, Clock: kernel.Millis, OnClock: n.follow, OnRefused: n.expelled, Logger: n.log,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCluster, err)
	}
	if f.Cluster != "" {
		return n.cluster.Announce(ctx)
	}
	w, err := n.cluster.Join(ctx)
	switch {
	case errors.Is(err, cluster.ErrFounds):
		f.found()
		n.cluster.Found(f.Cluster, f.Secret)
	case err != nil:
		return err
	default:
		f.Cluster, f.Secret = w.Cluster, w.Secret
	}
	if r := n.again; r != nil {
		n.log.Warn().Str("dir", r.Aside).Msg("the node is in the cluster again: what was damaged is set aside in the data directory, and may be removed when nobody wants to look at it")
		return r.settle(fsys, dir, *f)
	}
	return writeNodeFile(fsys, dir, *f)
}

// Refused returns why the other nodes do not want this one any more, nil if they do.
// Starting it again does not help.
func (n *Node) Refused() error {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Refused()
}

// expelled ends a node that the others do not want any more: what it holds is theirs
// no longer.
func (n *Node) expelled(r *cluster.Refusal) { n.fail(r) }

// follow keeps the clock of a node that does not serve with that of the one that does.
func (n *Node) follow(raftID string, ms int64) {
	if raftID == n.Leader() && raftID != n.ID() && n.facade.Load() == nil {
		kernel.Follow(ms)
	}
}

// attach tells the cluster what this node has replicas of.
func (n *Node) attach() {
	n.aligner.Go(n.comeAbreast)
	if n.cluster == nil {
		return
	}
	n.cluster.Attach(cluster.Replicas{Catalog: n.catalog, Groups: []cluster.Group{
		{ID: metasvc.CatalogGroup, Raft: n.catalog.Raft(), Barrier: n.catalogBarrier},
		{ID: durablePlacement, Raft: n.durable.Raft(), Whole: n.eligible, Segment: func(id uint64) (cluster.Segment, int64, error) {
			return n.durable.OpenSegment(id)
		}, Barrier: n.durable.Seal, HandOver: n.handOverTo},
	}})
	n.aligner.Go(n.align)
}

// eligible reports whether the leadership may be passed on to this node.
func (n *Node) eligible() bool { return n.durable.Whole() && n.durable.Raft().MayVote() }

// transport returns what makes the transport of a Raft group, nil without a
// cluster listener.
func (n *Node) transport(group uint32) func() (raft.Transport, error) {
	if n.cluster == nil {
		return nil
	}
	return func() (raft.Transport, error) { return n.cluster.Transport(group) }
}

// source is where the placement group gets segments that this node lacks.
func (n *Node) source() placement.Source {
	if n.cluster == nil {
		return nil
	}
	return n.cluster
}

func (n *Node) timing() raftgroup.Timing {
	return raftgroup.Timing{Heartbeat: n.cfg.Cluster.Heartbeat, Lease: n.cfg.Cluster.Heartbeat * 4 / 5}
}

const (
	// alignAfter is how long the two groups have been led by different nodes before
	// one of these gives up its part.
	alignAfter = 300 * time.Millisecond
	// alignAgain is the pause after a try.
	alignAgain = time.Second
	// alignTries of the catalog's leader fail before the placement group's leader
	// gives way instead.
	alignTries = 3
)

// align brings the leadership of both groups to one node, which then serves: that of
// the catalog goes to whoever leads the placement group.
func (n *Node) align() {
	tries := 0
	for n.ctx.Err() == nil {
		changed := n.Changed()
		mine, theirs, differ := n.apart()
		wait := (<-chan time.Time)(nil)
		if differ {
			wait = time.After(alignAfter)
		}
		select {
		case <-n.ctx.Done():
			return
		case <-changed:
			continue
		case <-wait:
		}
		if m, t, still := n.apart(); !still || m != mine || t != theirs {
			continue
		}
		tries++
		n.giveWay(mine, theirs, tries)
		select {
		case <-time.After(alignAgain):
		case <-changed:
			tries = 0
		case <-n.ctx.Done():
			return
		}
	}
}

// apart reports whether this node leads one of the groups, and another node the
// other.
func (n *Node) apart() (mine *raftgroup.Group, theirs string, differ bool) {
	catalog, placed := n.catalog.Raft(), n.durable.Raft()
	leadsCatalog, catalogLeader := catalog.Leader()
	leadsPlaced, placedLeader := placed.Leader()
	switch {
	case leadsCatalog && !leadsPlaced && placedLeader != "" && placedLeader != n.ID():
		return catalog, placedLeader, true
	case leadsPlaced && !leadsCatalog && catalogLeader != "" && catalogLeader != n.ID():
		return placed, catalogLeader, true
	}
	return nil, "", false
}

// giveWay hands a leadership over to who leads the other group.
func (n *Node) giveWay(mine *raftgroup.Group, theirs string, tries int) {
	if mine == n.durable.Raft() && tries <= alignTries {
		return // the catalog's leader does it
	}
	ctx, cancel := context.WithTimeout(n.ctx, handOverTime)
	defer cancel()
	if err := mine.TransferLeadershipTo(ctx, theirs); err != nil {
		n.log.Warn().Err(err).Str("to", theirs).Msg("a leadership could not be handed over")
	}
}
