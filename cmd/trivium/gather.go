package main

import (
	"context"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/forward"
)

const (
	// gatherTime is the longest that publishes wait, from when a node begins to serve, for
	// the connections that all nodes hold.
	gatherTime = 1500 * time.Millisecond
	// gatherPause is the pause before a node is asked again whether its connections are
	// back.
	gatherPause = 10 * time.Millisecond
	// gatherAnswer is how long a node may take to say so, or not: one that does not answer
	// hangs, and is not waited for.
	gatherAnswer = 500 * time.Millisecond
)

// here reports whether the connections that this node holds are back at the host that
// serves in an epoch.
func (d *door) here(epoch uint64) bool {
	// In this order: the epoch changes while the edge has no host.
	return d.epoch.Load() == epoch && d.Here() || d.Empty()
}

// gather has publishes wait for the connections of all nodes that can be reached. A node
// that is alone waits for nobody.
func (n *node) gather(b *broker.Broker) {
	var others []string
	for _, m := range n.replicas.Members() {
		if !m.Self && m.Reachable {
			others = append(others, m.Raft)
		}
	}
	if len(others) == 0 {
		return
	}
	begin := time.Now()
	b.Gather(gatherTime, func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() {
			until(ctx, func() bool { return n.door.here(b.Epoch()) })
		})
		for _, node := range others {
			all.Go(func() {
				until(ctx, func() bool {
					ctx, cancel := context.WithTimeout(ctx, gatherAnswer)
					defer cancel()
					here, err := forward.Here(ctx, n.replicas, node, b.Epoch())
					return here || err != nil
				})
			})
		}
		all.Wait()
		n.log.Debug().Dur("took", time.Since(begin)).Bool("whole", ctx.Err() == nil).Msg("the clients of all nodes are back")
	})
}

// until asks again and again, until the answer is yes or ctx ends.
func until(ctx context.Context, ask func() bool) {
	tick := time.NewTicker(gatherPause)
	defer tick.Stop()
	for !ask() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
