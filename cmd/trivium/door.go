package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/kernel/forward"
	"github.com/trivium-mq/trivium/protocols/amqp"
)

// door is the node's edge and who tells it which host serves. It is for the protocols
// whose clients keep their connections when another node takes over.
type door struct {
	*edge.Edge
	old   atomic.Bool   // the node that serves takes no links: it is of an earlier version
	epoch atomic.Uint64 // of the leadership whose host it is told of, 0 = none
}

// far reports whether clients are to be carried to the node that serves, as bytes.
func (d *door) far() bool { return d.old.Load() }

// openDoor makes the edge, and the servers that stand on it.
func (n *node) openDoor() {
	c := n.config
	logger := n.log.With().Str("listener", "amqp").Logger()
	n.door = &door{Edge: edge.New(edge.Config{Counters: n.replicas.Counters, Logger: logger})}
	n.amqp = amqp.NewServer(amqp.Config{
		Edge: n.door.Edge, Logger: logger, Version: Version, HandshakeTimeout: c.Connections.HandshakeTimeout,
		Heartbeat: c.AMQP.Heartbeat.Round(time.Second), FrameMax: c.AMQP.FrameMax, ChannelMax: c.AMQP.ChannelMax,
		OutTotal: int(n.memory.AMQPOut), InTotal: int(n.memory.AMQPIn), BlockedBuffer: int(c.AMQP.BlockedBuffer),
	})
	n.links = forward.NewServer(n.serving, n.log)
	n.replicas.OnClients(forward.Greeter{Server: n.links, Back: n.door.here})
	n.lasting = map[string]*queue{"": newQueue(n.address("amqp"))}
	for _, f := range n.fronts {
		if f.Protocol == "amqp" {
			n.lasting[f.Name] = newQueue(f.l.Addr())
		}
	}
}

// serving is the broker of this node while it serves, else nil.
func (n *node) serving() *broker.Broker {
	if s := n.edge.get(); s != nil {
		return s.broker
	}
	return nil
}

// serveLasting has the servers take the connections of the node's listeners, and those
// that nodes of earlier versions carry here, until the node stops.
func (n *node) serveLasting() {
	for name, q := range n.lasting {
		n.wg.Go(func() {
			if err := n.amqp.Serve(q); err != nil {
				n.fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
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
			ctx, gone = context.WithCancel(n.ctx)
			switch {
			case at.service != nil:
				n.door.old.Store(false)
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

// reach makes another node the host as soon as it serves, unless ctx ends before. If it
// takes no links, clients that have one are asked to connect again: then their bytes are
// carried.
func (n *node) reach(ctx context.Context, leader string) {
	host := forward.NewHost(lasting{n.replicas, ctx}, leader)
	for ctx.Err() == nil {
		if n.takesBytes(leader) {
			n.door.old.Store(true)
			n.door.Evict(errOld)
			return
		}
		if _, err := host.HasTenant(kernel.DefaultTenant); err == nil {
			n.door.old.Store(false)
			n.door.Set(host)
			return
		}
		select {
		case <-time.After(reachPause):
		case <-ctx.Done():
		}
	}
}

var errOld = kernel.Errorf(kernel.CodeUnknown, "", "", "a node of an earlier version serves now")

// takesBytes reports whether a node is known to take no links.
func (n *node) takesBytes(raftID string) bool {
	return slices.ContainsFunc(n.replicas.Members(), func(m cluster.Member) bool { return m.Raft == raftID && m.Bytes })
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
