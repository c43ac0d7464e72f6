package main

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/kernel/forward"
)

// door is the node's edge and who tells it which host serves. It is for the protocols
// whose clients keep their connections when another node takes over.
type door struct {
	*edge.Edge
	old   map[string]*atomic.Bool // by protocol: the node that serves takes no links of it, being of an earlier version
	last  atomic.Uint64           // epoch of the latest leadership that was heard of
	host  atomic.Pointer[string]  // Raft name of the latest host; nil = there was none
	epoch atomic.Uint64           // of the leadership whose host it is told of, 0 = none
}

// far reports whether clients of a protocol are to be carried to the node that serves, as
// bytes.
func (d *door) far(protocol string) bool { return d.old[protocol].Load() }

// tell notes which protocols the node that serves takes no links of: clients that have
// one are asked to connect again, and their bytes are carried then.
func (d *door) tell(takes func(kernel.Protocol) bool) (any bool) {
	for protocol, old := range d.old {
		p := kernel.Protocol(protocol)
		if now := !takes(p); old.Swap(now) != now && now {
			d.EvictOf(p, errOld)
		}
		any = any || !old.Load()
	}
	return any
}

// leadership numbers the latest leadership, as Kafka's clients are told.
func (d *door) leadership() int32 { return int32(d.last.Load()) }

func all(kernel.Protocol) bool { return true }

// openDoor makes the edge, and the servers that stand on it.
func (n *node) openDoor() error {
	logger := n.log.With().Str("listener", "edge").Logger()
	n.door = &door{Edge: edge.New(edge.Config{Counters: n.replicas.Counters, Replica: n.replicas, Logger: logger}), old: make(map[string]*atomic.Bool)}
	n.links = forward.NewServer(n.serving, n.log)
	n.replicas.OnClients(forward.Greeter{Server: n.links, Back: n.door.here})
	if err := n.openLasting(); err != nil {
		return err
	}
	for protocol := range n.lasting {
		n.door.old[protocol] = new(atomic.Bool)
	}
	return nil
}

// serving is the broker of this node while it serves, else nil.
func (n *node) serving() *broker.Broker {
	if s := n.edge.get(); s != nil {
		return s.broker
	}
	return nil
}

// place is who serves: this node, or another one, in which leadership.
type place struct {
	service *service
	leader  string
	epoch   uint64
}

func (n *node) place() place {
	if s := n.edge.get(); s != nil {
		return place{service: s, epoch: s.broker.Epoch()}
	}
	if leader, epoch := n.replicas.Leadership(); leader != n.replicas.ID() {
		return place{leader: leader, epoch: epoch}
	}
	return place{}
}

// servingID is the id of the node that serves, or did last, as the edge knows it; -1 = there
// was none yet.
func (n *node) servingID() int32 {
	host := n.door.host.Load()
	switch {
	case host == nil:
		return -1
	case *host == n.replicas.ID():
		return int32(n.config.Node.ID)
	}
	if id, err := strconv.ParseInt(n.replicas.NodeName(*host), 10, 32); err == nil {
		return int32(id)
	}
	return -1
}

// watchDoor tells the edge who serves, until the node stops.
func (n *node) watchDoor() {
	var at place
	var reaching sync.WaitGroup
	ctx, gone := context.WithCancel(n.ctx)
	for n.ctx.Err() == nil {
		here, there := n.edge.change(), n.replicas.Changed()
		if now := n.place(); now != at {
			gone() // what hangs at another node is cut off
			reaching.Wait()
			at = now
			n.door.Set(nil)
			n.door.epoch.Store(at.epoch)
			n.door.last.Store(max(n.door.last.Load(), at.epoch))
			ctx, gone = context.WithCancel(n.ctx)
			switch {
			case at.service != nil:
				n.door.tell(all)
				self := n.replicas.ID()
				n.door.host.Store(&self)
				n.door.Set(edge.Local(at.service.broker))
			case at.leader != "":
				reaching.Go(func() { n.reach(ctx, at.leader) })
			}
		}
		select {
		case <-here:
		case <-there:
		case <-n.ctx.Done():
		}
	}
	gone()
	reaching.Wait()
	n.door.Close()
}

// reachPause is the pause before a node that does not serve yet is asked again.
const reachPause = 20 * time.Millisecond

// takesPause is how often a node that serves is looked at: it may not have told yet whose
// links it takes.
const takesPause = time.Second

// reach makes another node the host as soon as it serves, until ctx ends.
func (n *node) reach(ctx context.Context, leader string) {
	host := forward.NewHost(lasting{n.replicas, ctx}, leader)
	set := false
	for ctx.Err() == nil {
		pause := reachPause
		if !n.door.tell(n.takes(leader)) {
			n.door.Evict(errOld) // who waits for a host
			return
		}
		if !set {
			if _, err := host.HasTenant(kernel.DefaultTenant); err == nil {
				set = true
				n.door.host.Store(&leader)
				n.door.Set(host)
			}
		}
		if set {
			pause = takesPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

var errOld = kernel.Errorf(kernel.CodeUnknown, "", "", "a node of an earlier version serves now")

// takes returns whose links a node takes, for all that is known.
func (n *node) takes(raftID string) func(kernel.Protocol) bool {
	members := n.replicas.Members()
	i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Raft == raftID })
	if i < 0 {
		return all
	}
	return members[i].Takes
}

// lasting has all that goes to a node end with ctx: it may hang, and nothing else would
// break what leads there.
type lasting struct {
	*broker.Node
	ctx context.Context
}

// OpenClient implements forward.Peers.
func (l lasting) OpenClient(ctx context.Context, raftID string) (forward.Stream, error) {
	s, err := l.Node.OpenClient(ctx, raftID)
	if err != nil {
		return nil, err
	}
	return &cut{s, context.AfterFunc(l.ctx, s.Close)}, nil
}

// CallLogin implements forward.Peers.
func (l lasting) CallLogin(ctx context.Context, raftID string, req []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	return l.Node.CallLogin(ctx, raftID, req)
}

// cut is a stream that is closed when its time is over.
type cut struct {
	forward.Stream
	forget func() bool
}

// Close implements forward.Stream.
func (c *cut) Close() {
	c.forget()
	c.Stream.Close()
}
