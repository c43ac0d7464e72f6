package cli

import (
	"fmt"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

const (
	// statusPoll is how often it is looked whether leaderships have gone where they should.
	statusPoll = 100 * time.Millisecond
	// moveTime is how long that may take.
	moveTime = 2 * time.Minute
)

// someoneElse returns an error if no other node could ever take over from one: all there
// are is drained, or there is none. One that cannot be reached now may come back.
func someoneElse(c *client, node string) error {
	var s clusterInfo
	if err := c.get("cluster", &s); err != nil {
		return err
	}
	for _, n := range s.Nodes {
		if n.Name != node && !n.Draining {
			return nil
		}
	}
	if len(s.Nodes) > 1 {
		return fmt.Errorf("nobody can take over from node %s: all others are drained", node)
	}
	return fmt.Errorf("nobody can take over from node %s: the cluster has no other node", node)
}

// awaitDrained waits until a node leads nothing, by what the node that is asked knows.
func awaitDrained(c *client, node string) error {
	return awaitNode(c, node, "still leads after %v: no other node has taken over", func(s *clusterInfo, n *nodeInfo) bool {
		return n.Draining && len(n.Leads) == 0 && s.led(node) == 0
	})
}

// awaitServing waits until a node leads all groups, by what the node that is asked knows.
func awaitServing(c *client, node string) error {
	return awaitNode(c, node, "does not serve after %v", func(_ *clusterInfo, n *nodeInfo) bool {
		return n.State == kernel.NodeServing
	})
}

// awaitNode waits until a node is as is wanted; late says what it is for too long, with
// a verb for that time.
func awaitNode(c *client, node, late string, wanted func(*clusterInfo, *nodeInfo) bool) error {
	tick := time.NewTicker(statusPoll)
	defer tick.Stop()
	for end := time.After(moveTime); ; {
		var s clusterInfo
		if err := c.get("cluster", &s); err != nil {
			return err
		}
		for i := range s.Nodes {
			if s.Nodes[i].Name == node && wanted(&s, &s.Nodes[i]) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-end:
			return fmt.Errorf("node %s "+late, node, moveTime)
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// led counts the groups that a node leads; those without a leader count, too.
func (s *clusterInfo) led(node string) (n int) {
	for _, g := range s.Groups {
		if g.Leader == node || g.Leader == "" {
			n++
		}
	}
	return n
}
