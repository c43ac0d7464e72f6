package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestLaggingFollower: a follower that was away for longer than the log reaches
// back gets a checkpoint, and then goes on from the log.
func TestLaggingFollower(t *testing.T) { synctest.Test(t, testLaggingFollower) }

func testLaggingFollower(t *testing.T) {
	c := newCluster(t, nodeOptions{keep: 1, fileSize: 32 << 10})
	lead := c.leader(t, 0, 1, 2)
	away, other := (lead+1)%3, (lead+2)%3
	c.nodes[lead].propose(t, "before", 50, 500)
	c.waitEqual(t, lead, away, other)

	for round := range 3 {
		disk := c.nodes[away].fs
		c.nodes[away].close(t)
		c.nodes[lead].propose(t, fmt.Sprint("away", round), 200, 500)
		c.waitEqual(t, lead, other)
		meta := c.nodes[lead].checkpoint(t)
		c.nodes[other].checkpoint(t)
		if first, _ := c.nodes[lead].wal.Group(7).FirstIndex(); first < meta.Index-1 {
			t.Fatalf("log begins at %d, checkpoint at %d", first, meta.Index)
		}
		c.start(t, away, disk)
		c.nodes[lead].propose(t, fmt.Sprint("after", round), 20, 500)
		c.waitEqual(t, lead, away, other)
		if got := c.nodes[away].store.List()[0].Index; got < meta.Index {
			t.Errorf("checkpoint of the follower is at %d, not %d", got, meta.Index)
		}
		// It counts for the majority again.
		c.net.Isolate(c.nodes[other].id)
		c.nodes[lead].propose(t, fmt.Sprint("majority", round), 20, 500)
		c.net.Rejoin(c.nodes[other].id)
		c.waitEqual(t, lead, away, other)
	}
	for _, n := range c.nodes {
		n.close(t)
	}
}

// TestStaleTail is the livelock of hashicorp/raft #697: a follower with a tail
// of its own that was never committed gets a checkpoint inside that tail.
func TestStaleTail(t *testing.T) { synctest.Test(t, testStaleTail) }

func testStaleTail(t *testing.T) {
	c := newCluster(t, nodeOptions{keep: 1, fileSize: 32 << 10})
	old := c.leader(t, 0, 1, 2)
	c.nodes[old].propose(t, "common", 20, 100)
	a, b := (old+1)%3, (old+2)%3
	c.waitEqual(t, old, a, b)

	// The leader is cut off and appends what nobody else gets.
	c.net.Isolate(c.nodes[old].id)
	failed := make(chan error, 200)
	for i := range 100 {
		c.nodes[old].group.Propose([]byte(fmt.Sprint("stale", i)), func(err error) { failed <- err })
	}
	lead := c.leader(t, a, b)
	for range 100 {
		if err := <-failed; !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotApplied) {
			t.Errorf("stale proposal: %v", err)
		}
	}
	c.nodes[lead].propose(t, "new", 30, 100)
	c.waitEqual(t, lead, a, b)
	c.nodes[a].checkpoint(t)
	c.nodes[b].checkpoint(t)
	if last, _ := c.nodes[old].wal.Group(7).LastIndex(); last <= c.nodes[lead].store.List()[0].Index {
		t.Fatalf("the tail ends at %d, before the checkpoint", last)
	}
	c.net.Rejoin(c.nodes[old].id)
	lead = c.leader(t, a, b)
	c.nodes[lead].propose(t, "end", 10, 100)
	c.waitEqual(t, lead, a, b, old)
	if c.nodes[old].machine.restores == 0 {
		t.Error("no checkpoint was installed: the test tests nothing")
	}
	for _, n := range c.nodes {
		n.close(t)
	}
}

func TestTransferAndMembers(t *testing.T) { synctest.Test(t, testTransferAndMembers) }

func testTransferAndMembers(t *testing.T) {
	c := newCluster(t, nodeOptions{})
	lead := c.leader(t, 0, 1, 2)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.nodes[lead].group.TransferLeadership(ctx); err != nil {
		t.Fatal(err)
	}
	next := c.leader(t, (lead+1)%3, (lead+2)%3)
	c.nodes[next].propose(t, "x", 5, 10)
	if err := c.nodes[lead].group.VerifyLeader(ctx); !errors.Is(err, ErrNotLeader) {
		t.Errorf("old leader verified: %v", err)
	}
	if err := c.nodes[next].group.DemoteServer(ctx, c.nodes[lead].id); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.nodes[next].group.Servers() {
		if s.Learner != (s.ID == c.nodes[lead].id) {
			t.Errorf("member %+v", s)
		}
	}
	c.nodes[next].propose(t, "y", 5, 10)
	meta := c.nodes[next].checkpoint(t)
	if meta.ConfigurationIndex <= 1 {
		t.Errorf("checkpoint has the configuration at %d", meta.ConfigurationIndex)
	}
	for _, n := range c.nodes {
		n.close(t)
	}
}

// TestCloseWithoutMajority: what is on its way gets an outcome.
func TestCloseWithoutMajority(t *testing.T) { synctest.Test(t, testCloseWithoutMajority) }

func testCloseWithoutMajority(t *testing.T) {
	c := newCluster(t, nodeOptions{})
	lead := c.leader(t, 0, 1, 2)
	c.net.Isolate(c.nodes[lead].id)
	failed := make(chan error, 10)
	for range 10 {
		c.nodes[lead].group.Propose([]byte("lonely"), func(err error) { failed <- err })
	}
	c.nodes[lead].close(t)
	for range 10 {
		if err := <-failed; !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotApplied) {
			t.Errorf("outcome %v", err)
		}
	}
	c.nodes[(lead+1)%3].close(t)
	c.nodes[(lead+2)%3].close(t)
}

// TestOverTCP is the lagging follower over real connections.
func TestOverTCP(t *testing.T) {
	var muxes [3]*transport.Mux
	var opts [3]nodeOptions
	var servers []Server
	for i := range muxes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		muxes[i] = transport.NewMux(transport.MuxConfig{Listener: l, Logger: zerolog.Nop()})
		servers = append(servers, Server{ID: fmt.Sprintf("n%d", i), Address: l.Addr().String()})
	}
	c := &cluster{}
	for i := range opts {
		opts[i] = nodeOptions{servers: servers, keep: 1, fileSize: 32 << 10,
			timing:    Timing{Heartbeat: 300 * time.Millisecond},
			transport: func() (raft.Transport, error) { return muxes[i].Group(7) }}
		c.nodes[i] = startNode(t, servers[i].ID, vfs.NewMem(), opts[i])
	}
	lead := c.leader(t, 0, 1, 2)
	away := (lead + 1) % 3
	disk := c.nodes[away].fs
	c.nodes[away].close(t)
	c.nodes[lead].propose(t, "away", 100, 2000)
	c.nodes[lead].checkpoint(t)
	c.nodes[away] = startNode(t, servers[away].ID, disk, opts[away])
	c.nodes[lead].propose(t, "after", 20, 2000)
	c.waitEqual(t, lead, away, (lead+2)%3)
	if c.nodes[away].machine.restores == 0 {
		t.Error("no checkpoint was installed")
	}
	for i, n := range c.nodes {
		n.close(t)
		if err := muxes[i].Close(); err != nil {
			t.Error(err)
		}
	}
}
