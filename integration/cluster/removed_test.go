package cluster

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestRemovedNodeStops: a node that is removed while it runs stops with the exit code of
// what cannot be mended by starting it again, and so does every later start.
func TestRemovedNodeStops(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	leader, err := c.Leader(healed)
	harness.Must(t, err)
	gone := c.Nodes[0]
	if gone == leader {
		gone = c.Nodes[1]
	}
	harness.Must(t, leader.Forget(gone))
	select {
	case <-gone.Ended():
	case <-time.After(healed):
		t.Fatal("the removed node still runs")
	}
	if code, err := gone.Stop(); code != 2 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}
