package raftgroup

import (
	"errors"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestChaos cuts connections, transfers leadership, kills nodes with what a
// power loss leaves of their disks, checkpoints and cuts logs, while commands
// are proposed to whoever leads. In the end all machines are equal, and hold
// every command that was applied anywhere.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	rng := rand.New(rand.NewSource(time.Now().UnixNano()))
	c := newCluster(t, nodeOptions{keep: 4 << 10, fileSize: 32 << 10})
	confirmed := map[string]bool{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for round := range 120 {
		<-tick.C
		c.disturb(t, rng)
		for i, n := range c.nodes {
			if ok, _ := n.group.Leader(); !ok {
				continue
			}
			for k := range 1 + rng.Intn(8) {
				data := fmt.Sprintf("%d-%d-%d", round, i, k)
				n.group.Propose(append([]byte(data), make([]byte, rng.Intn(500))...), func(err error) {
					if !errors.Is(err, ErrNotApplied) && !errors.Is(err, ErrUnknown) {
						t.Errorf("outcome %v", err)
					}
				})
			}
		}
		for _, n := range c.nodes {
			n.machine.mu.Lock()
			for data := range n.machine.seen {
				confirmed[data] = true
			}
			n.machine.mu.Unlock()
		}
	}
	for _, n := range c.nodes {
		c.net.Rejoin(n.id)
	}
	lead := c.leader(t, 0, 1, 2)
	c.nodes[lead].propose(t, "last", 10, 10)
	c.waitEqual(t, c.leader(t, 0, 1, 2), 0, 1, 2)
	if _, count, _ := c.nodes[lead].machine.state(); count < uint64(len(confirmed)) {
		t.Errorf("%d commands, %d had been applied", count, len(confirmed))
	}
	for _, n := range c.nodes {
		n.close(t)
	}
}

// disturb does one random thing to one random node.
func (c *cluster) disturb(t *testing.T, rng *rand.Rand) {
	i := rng.Intn(3)
	n := c.nodes[i]
	switch rng.Intn(12) {
	case 0:
		c.net.Isolate(n.id)
	case 1:
		c.net.Cut(n.id, c.nodes[(i+1)%3].id)
	case 2, 3, 4, 5:
		for _, other := range c.nodes {
			c.net.Rejoin(other.id)
		}
	case 6:
		left := n.fs.(*vfs.MemFS).CrashClone(rng)
		n.close(t)
		c.start(t, i, left)
	case 7, 8, 9:
		if index, _, _ := n.machine.state(); index > 0 {
			n.checkpoint(t)
		}
	}
}
