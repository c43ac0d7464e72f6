package kafka

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// whereabouts say which node leads which partition, for one client. Any node takes what
// concerns any partition: that clients are told of all of them shares out what a
// connection costs, and the reading of what lies behind (broker.Node.ReadReplica).
type whereabouts struct {
	ids     []int32 // of all nodes, each of which has a replica
	serving int32   // the node that serves, or this one if clients do not reach that; -1 = nobody
	spread  []broker.Tenure
	brokers []reachable
}

// whereabouts makes those of the client of c, who reaches these nodes.
func (c *conn) whereabouts() *whereabouts {
	brokers := c.brokers()
	w := &whereabouts{ids: ids(brokers), serving: c.srv.cfg.Leader(), brokers: brokers}
	if w.serving >= 0 && !slices.Contains(w.ids, w.serving) {
		w.serving = c.srv.cfg.NodeID
	}
	if c.srv.cfg.Spread && len(brokers) > 1 {
		nodes, err := c.srv.views.view(c.ctx, viewEvery)
		if err == nil {
			w.spread = nodes
		}
	}
	return w
}

// leaders returns what tells the node that leads each partition of a topic, -1 = nobody:
// its partitions go round.
func (w *whereabouts) leaders(t *kernel.Topic) func(index int32) int32 {
	if w.serving < 0 || len(w.spread) == 0 {
		return func(int32) int32 { return w.serving }
	}
	var nodes []int32
	for _, name := range broker.Ranked(w.spread, t.Tenant, t.ID.String()) {
		if r, known := at(w.brokers, name); known {
			nodes = append(nodes, r.id)
		}
	}
	if len(nodes) == 0 {
		nodes = []int32{w.serving}
	}
	return func(index int32) int32 { return nodes[int(index)%len(nodes)] }
}
