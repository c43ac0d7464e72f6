package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestLoadOnOneNode: the clients and the judge beside a node that is killed a few
// times: what holds for a cluster holds for one node.
func TestLoadOnOneNode(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 1})
	l := newLoad(t, c.Nodes, seed(t))
	l.prepare()
	l.start()
	for range 3 {
		l.moves(harness.Patience)
		pause(context.Background(), time.Second)
		c.Nodes[0].Kill()
		harness.Must(t, c.Nodes[0].Run())
	}
	l.moves(harness.Patience)
	l.settle(30 * time.Second)
	l.check()
}
