package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/amqp"
)

// door is the node's edge and who tells it which host serves. It is for the protocols
// whose clients keep their connections when another node takes over.
type door struct {
	*edge.Edge
	old atomic.Bool // the node that serves takes no links: it is of an earlier version
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
	n.lasting = map[string]*queue{"": newQueue(n.address("amqp"))}
	for _, f := range n.fronts {
		if f.Protocol == "amqp" {
			n.lasting[f.Name] = newQueue(f.l.Addr())
		}
	}
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

// place is who serves: this node, or another one.
type place struct {
	service *service
	leader  string
}

func (n *node) place() place {
	if s := n.edge.get(); s != nil {
		return place{service: s}
	}
	if leader := n.replicas.Leader(); leader != n.replicas.ID() {
		return place{leader: leader}
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

// reach makes another node the host as soon as it serves, unless ctx ends before.
func (n *node) reach(ctx context.Context, leader string) {
	n.door.old.Store(true)
}
