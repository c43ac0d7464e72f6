package placement

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// cluster is three replicas of a group in one process, each with a disk in memory.
type cluster struct {
	t      testing.TB
	net    *transport.Memory
	peers  []raftgroup.Server
	limits Limits
	disks  []*vfs.Fault
	keys   []*kv.Store
	wals   []*wal.WAL
	nodes  []*Group // nil: it is down
	source source
}

func newCluster(t testing.TB, limits Limits) *cluster {
	c := &cluster{t: t, net: transport.NewMemory(500 * time.Millisecond), limits: limits}
	c.source.c = c
	for i := range 3 {
		id := fmt.Sprint("n", i)
		c.peers = append(c.peers, raftgroup.Server{ID: id, Address: id})
	}
	c.wals, c.nodes = make([]*wal.WAL, 3), make([]*Group, 3)
	for i := range 3 {
		keys, err := kv.OpenMemory()
		must(t, err)
		t.Cleanup(func() { keys.Close() })
		c.disks, c.keys = append(c.disks, vfs.NewFault(vfs.NewMem())), append(c.keys, keys)
		c.start(i)
	}
	return c
}

// start starts a replica on its disk. The numbers of shards and the clocks differ.
func (c *cluster) start(i int) {
	c.t.Helper()
	id, disk := c.peers[i].ID, c.disks[i]
	log, err := wal.Open(disk, "wal", wal.Options{FileSize: 4 << 20})
	must(c.t, err)
	g, err := Open(Config{
		ID: 1, FS: disk, Dir: filepath.Join("data", id), WAL: log.Group(1), KV: c.keys[i], Shards: 1 + i, Logger: zerolog.New(zerolog.NewTestWriter(c.t)).Level(testLevel), Limits: c.limits,
		Now: func() time.Time { return time.Now().Add(time.Duration(i) * time.Hour) },
		Raft: Raft{
			NodeID: id, Bootstrap: c.peers, KeepBytes: 1, KeepPeers: 1, Source: &node3{&c.source, i},
			Transport: func() (raft.Transport, error) { return c.net.Join(id), nil },
			Timing:    raftgroup.Timing{Heartbeat: time.Second},
		},
	})
	must(c.t, err)
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.wals[i], c.nodes[i] = log, g
}

// testLevel shows what groups log when a test is debugged.
const testLevel = zerolog.Disabled

// stop ends a replica.
func (c *cluster) stop(i int) {
	c.t.Helper()
	c.source.mu.Lock()
	g := c.nodes[i]
	c.nodes[i] = nil
	c.source.mu.Unlock()
	g.Close()
	must(c.t, c.wals[i].Close())
}

// leader waits for one of the given nodes to serve.
func (c *cluster) leader(among ...int) int {
	c.t.Helper()
	if len(among) == 0 {
		among = []int{0, 1, 2}
	}
	ctx, cancel := context.WithCancel(soon(c.t))
	defer cancel()
	found := make(chan int, len(among))
	for _, i := range among {
		g := c.nodes[i]
		go func() {
			if g.WaitReady(ctx) == nil {
				found <- i
			}
		}()
	}
	select {
	case i := <-found:
		return i
	case <-ctx.Done():
		c.t.Fatal("nobody leads")
		return 0
	}
}

// pass gives the leadership to a node, again if a busy machine has let it go elsewhere.
func (c *cluster) pass(to int) {
	c.t.Helper()
	waitFor(c.t, fmt.Sprintf("node %d to lead", to), func() bool {
		lead := c.leader()
		if lead != to {
			_ = c.nodes[lead].Raft().TransferLeadershipTo(soon(c.t), c.peers[to].ID)
		}
		return lead == to
	})
}

func (c *cluster) close() {
	for i, g := range c.nodes {
		if g != nil {
			c.stop(i)
		}
	}
}

// waitApplied waits until the nodes have applied what the first one has by now.
func (c *cluster) waitApplied(nodes ...int) {
	c.t.Helper()
	want := c.nodes[nodes[0]].Raft().AppliedIndex()
	for _, i := range nodes[1:] {
		waitFor(c.t, fmt.Sprintf("node %d to apply %d", i, want), func() bool { return c.nodes[i].Raft().AppliedIndex() >= want })
	}
}

// sameState compares the replicas, when nothing is under way any more: their tables,
// keyed state and windows, and the records of all partitions.
func (c *cluster) sameState(nodes ...int) {
	c.t.Helper()
	for _, i := range nodes {
		waitFor(c.t, fmt.Sprintf("node %d to be whole", i), c.nodes[i].Whole)
	}
	sums := func(i int) (list []Checksum) {
		g := c.nodes[i]
		state, err := g.StateChecksum(soon(c.t))
		must(c.t, err)
		list = append(list, state)
		topics := g.Topics()
		slices.SortFunc(topics, func(a, b TopicInfo) int { return slices.Compare(a.ID[:], b.ID[:]) })
		for _, topic := range topics {
			for _, p := range topic.Partitions {
				sum, err := g.Checksum(soon(c.t), p.ID)
				must(c.t, err)
				list = append(list, sum)
			}
		}
		return list
	}
	var want, got string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("replicas:\n%s\n%s", want, got)
		}
	}()
	waitFor(c.t, "equal replicas", func() bool { // the leader may log something of its own meanwhile
		c.waitApplied(nodes...)
		want = fmt.Sprintf("%+v", sums(nodes[0]))
		for _, i := range nodes[1:] {
			if got = fmt.Sprintf("%+v", sums(i)); got != want {
				return false
			}
		}
		return true
	})
}

// source is where the replicas pull segments from.
type source struct {
	c *cluster

	mu      sync.Mutex
	block   bool    // nothing comes
	nowhere bool    // nobody has it
	none    bool    // nobody says to be whole
	cut     int64   // each answer breaks off after so many bytes, 0 = none does
	from    []int64 // where answers began
}

func (s *source) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// node3 is the source of one of the replicas.
type node3 struct {
	*source
	self int
}

func (n *node3) Segment(_ context.Context, group uint32, id uint64, from int64) (io.ReadCloser, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.block {
		return nil, io.ErrNoProgress
	}
	for i := range n.c.nodes {
		if n.nowhere {
			break
		}
		g := n.c.nodes[(n.self+1+i)%3]
		if g == nil || (n.self+1+i)%3 == n.self || group != 1 {
			continue
		}
		f, size, err := g.OpenSegment(id)
		if err != nil {
			continue
		}
		n.from = append(n.from, from)
		length := size - from
		if n.cut > 0 {
			length = min(length, n.cut)
		}
		return &answer{io.NewSectionReader(f, from, length), f}, nil
	}
	return nil, fs.ErrNotExist
}

// Whole is Census.Whole.
func (n *node3) Whole(context.Context, uint32) (ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, g := range n.c.nodes {
		if g != nil && i != n.self && g.Whole() && !n.none {
			ids = append(ids, n.c.peers[i].ID)
		}
	}
	return ids
}

type answer struct {
	io.Reader
	io.Closer
}
