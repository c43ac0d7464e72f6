package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestLoadOnOneNode: the clients and the judge beside a node that is killed a few
// times: what holds for a cluster holds for one node.
func TestLoadOnOneNode(t *testing.T) {
	full(t)
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

// TestDisksOnOneNode: the nemeses of disks and clocks that one node survives by itself.
func TestDisksOnOneNode(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 1, Faults: true, Lose: true}, 4)
	for _, n := range ofDisks {
		if strings.Contains(n.name, "leader") || strings.Contains(n.name, "all") {
			a.strike(n)
		}
	}
	a.judge()
}

// TestClientsInANetwork: the clients reach a node through a network of its own,
// whose link to them is slow and lossy for a while.
func TestClientsInANetwork(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 1, Network: true}, 8)
	a.strike(nemesis{"slow and lossy link to clients", func(a *arena) {
		a.c.Net.Both(0, 1, harness.Link{Delay: 5 * time.Millisecond, Loss: 0.02})
		a.hold(3 * time.Second)
		a.c.Net.Heal()
	}})
	a.strike(nemesis{"clients are cut off", func(a *arena) {
		a.c.Net.Both(0, 1, harness.Link{Cut: true})
		a.hold(4 * time.Second)
		a.c.Net.Heal()
	}})
	a.judge()
}
