package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

const (
	// statusPoll is how often it is looked whether leaderships have gone where they should.
	statusPoll = 100 * time.Millisecond
	// moveTime is how long that may take.
	moveTime = 2 * time.Minute
)

// otherTime is how long another node may serve than the one that was to, before that is how
// it is.
var otherTime = 10 * time.Second

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

// whoServes returns which node serves clients, "" = nobody does now. It asks for what only
// that node answers: who leads all groups has to load what they hold first, and may come to
// serve nobody.
func whoServes(c *client) (string, error) {
	var said struct{ Node string }
	err := c.get("overview", &said)
	if r, ok := errors.AsType[*refused](err); ok && r.status == http.StatusServiceUnavailable {
		return "", nil
	}
	return strings.TrimPrefix(said.Node, "trivium@"), err
}

// awaitDrained waits until a node leads nothing, by what the node that is asked knows, and
// another one serves.
func awaitDrained(c *client, node string) error {
	return awaitNode(c, node, "still leads after %v, or no other node has taken over", func(s *clusterInfo, n *nodeInfo) (bool, error) {
		if !n.Draining || len(n.Leads) > 0 || s.led(node) > 0 {
			return false, nil
		}
		serves, err := whoServes(c)
		return serves != "" && serves != node, err
	})
}

// awaitServing waits until a node leads all groups, by what the node that is asked knows,
// and serves. It fails when another one serves, and goes on to.
func awaitServing(c *client, node string) error {
	var since time.Time // that another one serves
	return awaitNode(c, node, "does not serve after %v", func(_ *clusterInfo, n *nodeInfo) (bool, error) {
		serves, err := whoServes(c)
		switch {
		case err != nil:
			return false, err
		case serves == node:
			return n.State == kernel.NodeServing, nil
		case serves == "":
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) > otherTime:
			return false, elsewhere{node, serves}
		}
		return false, nil
	})
}

// elsewhere is the error of who waits for a node to serve, when another one does.
type elsewhere struct{ node, serves string }

func (e elsewhere) Error() string {
	return fmt.Sprintf("node %s does not serve: node %s does", e.node, e.serves)
}

// awaitNode waits until a node is as is wanted; late says what it is for too long, with
// a verb for that time.
func awaitNode(c *client, node, late string, wanted func(*clusterInfo, *nodeInfo) (bool, error)) error {
	tick := time.NewTicker(statusPoll)
	defer tick.Stop()
	for end := time.After(moveTime); ; {
		var s clusterInfo
		if err := c.get("cluster", &s); err != nil {
			return err
		}
		for i := range s.Nodes {
			if s.Nodes[i].Name != node {
				continue
			}
			if there, err := wanted(&s, &s.Nodes[i]); there || err != nil {
				return err
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
