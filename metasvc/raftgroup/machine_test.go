package raftgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// tally is a machine whose state is a hash over all commands in order.
type tally struct {
	mu       sync.Mutex
	cond     *sync.Cond
	index    uint64
	count    uint64
	sum      uint64
	restores int
	errs     []error
	seen     map[string]uint64  // command -> index
	during   func(index uint64) // called in Apply, if set
}

func newTally() *tally {
	m := &tally{seen: map[string]uint64{}}
	m.cond = sync.NewCond(&m.mu)
	return m
}

func (m *tally) Apply(entries []Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range entries {
		if e.Index <= m.index {
			m.errs = append(m.errs, fmt.Errorf("entry %d after %d", e.Index, m.index))
		}
		h := fnv.New64a()
		_ = binary.Write(h, binary.LittleEndian, []uint64{m.sum, e.Index, e.Term})
		_, _ = h.Write(e.Data)
		m.sum, m.index = h.Sum64(), e.Index
		m.count++
		m.seen[string(e.Data)] = e.Index
		if m.during != nil {
			m.during(e.Index)
		}
	}
	m.cond.Broadcast()
}

func (m *tally) encode() (index uint64, state []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range []uint64{m.index, m.count, m.sum} {
		state = binary.LittleEndian.AppendUint64(state, v)
	}
	return m.index, state
}

func (m *tally) Restore(meta checkpoint.Meta, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(b) != 24 || int64(len(b)) != meta.Size {
		return fmt.Errorf("state of %d bytes, size %d", len(b), meta.Size)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.index = binary.LittleEndian.Uint64(b)
	m.count = binary.LittleEndian.Uint64(b[8:])
	m.sum = binary.LittleEndian.Uint64(b[16:])
	m.restores++
	if m.index != meta.Index {
		return fmt.Errorf("state as of %d in checkpoint %d", m.index, meta.Index)
	}
	m.cond.Broadcast()
	return nil
}

// waitFor waits until the condition holds.
func (m *tally) waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	timer := time.AfterFunc(patience, m.cond.Broadcast)
	defer timer.Stop()
	start := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !cond() {
		if time.Since(start) >= patience {
			t.Fatalf("waiting for %s: index %d count %d", what, m.index, m.count)
		}
		m.cond.Wait()
	}
}

func (m *tally) state() (index, count, sum uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index, m.count, m.sum
}

// patience is for what must come; nothing waits for all of it unless a test fails.
const patience = time.Minute

// node is one member with its disk.
type node struct {
	id      string
	fs      vfs.FS
	wal     *wal.WAL
	store   *checkpoint.Store
	machine *tally
	group   *Group
	watch   chan Leadership
}

// nodeOptions are what tests vary.
type nodeOptions struct {
	servers   []Server
	transport func() (raft.Transport, error)
	keep      int64
	timing    Timing
	fileSize  int64
	disk      func(id string, fs vfs.FS) vfs.FS // nil = as it is
}

func startNode(t testing.TB, id string, fs vfs.FS, o nodeOptions) *node {
	t.Helper()
	n, err := openNode(t, id, fs, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openNode(t testing.TB, id string, fs vfs.FS, o nodeOptions) (*node, error) {
	t.Helper()
	n := &node{id: id, fs: fs, machine: newTally(), watch: make(chan Leadership, 100)}
	var err error
	if n.wal, err = wal.Open(fs, id+"/wal", wal.Options{FileSize: o.fileSize, TailCacheBytes: 64 << 10}); err != nil {
		return nil, err
	}
	if n.store, err = checkpoint.Open(fs, id+"/checkpoints"); err != nil {
		return nil, err
	}
	meta, r, err := n.store.Latest()
	switch {
	case err == nil:
		if err := errors.Join(n.machine.Restore(meta, r), r.Close()); err != nil {
			return nil, err
		}
	case !errors.Is(err, checkpoint.ErrNone):
		return nil, err
	}
	if o.servers == nil {
		o.servers = []Server{{ID: id, Address: id}}
	}
	n.group, err = Open(Config{
		Group: n.wal.Group(7), NodeID: id, Checkpoints: n.store, Machine: n.machine, Restored: meta.Index,
		Bootstrap: o.servers, Transport: o.transport, KeepBytes: o.keep, KeepPeers: o.keep, Timing: o.timing,
		Logger: zerolog.New(zerolog.NewTestWriter(t)).With().Timestamp().Str("node", id).Logger().Level(testLevel),
		Watch:  func(l Leadership) { n.watch <- l },
	})
	if err != nil {
		return nil, errors.Join(err, n.wal.Close())
	}
	return n, nil
}

func (n *node) close(t testing.TB) {
	t.Helper()
	if err := n.group.Close(); err != nil {
		t.Error(err)
	}
	if err := n.wal.Close(); err != nil && n.wal.Err() == nil {
		t.Error(err)
	}
	n.machine.mu.Lock()
	defer n.machine.mu.Unlock()
	for _, err := range n.machine.errs {
		t.Error(err)
	}
}

// waitLeader waits until the node is told that it leads.
func (n *node) waitLeader(t testing.TB) Leadership {
	t.Helper()
	for {
		select {
		case l := <-n.watch:
			if l.Leader {
				return l
			}
		case <-time.After(patience):
			t.Fatalf("%s does not lead: %+v", n.id, n.group.Stats())
		}
	}
}

// propose proposes n commands, with a few outstanding, and waits until all are
// applied here.
func (n *node) propose(t testing.TB, prefix string, count, size int) {
	t.Helper()
	slots := make(chan struct{}, 4)
	failed := make(chan error, count)
	for i := range count {
		data := append([]byte(fmt.Sprintf("%s-%d-", prefix, i)), make([]byte, size)...)
		slots <- struct{}{}
		n.group.Propose(data, func(err error) { failed <- err })
		go func() {
			n.machine.waitFor(t, "apply", func() bool { return n.machine.seen[string(data)] != 0 || len(failed) > 0 })
			<-slots
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

// checkpoint writes one of the present state and cuts the log.
func (n *node) checkpoint(t testing.TB) checkpoint.Meta {
	t.Helper()
	index, state := n.machine.encode()
	meta, err := n.group.CheckpointMeta(index)
	if err != nil {
		t.Fatal(err)
	}
	err = n.store.Write(meta, func(w io.Writer) error { _, err := w.Write(state); return err })
	if err == nil {
		err = n.group.Cut(index)
	}
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

// cluster is three nodes on a network in memory.
type cluster struct {
	net   *transport.Memory
	nodes [3]*node
	opts  nodeOptions
}

var fastTiming = Timing{Heartbeat: 150 * time.Millisecond, Lease: 100 * time.Millisecond, Commit: 10 * time.Millisecond}

func newCluster(t testing.TB, o nodeOptions) *cluster {
	c := &cluster{net: transport.NewMemory(500 * time.Millisecond), opts: o}
	if c.opts.timing == (Timing{}) {
		c.opts.timing = fastTiming
	}
	for i := range c.nodes {
		id := fmt.Sprintf("n%d", i)
		c.opts.servers = append(c.opts.servers, Server{ID: id, Address: id})
	}
	for i := range c.nodes {
		disk := vfs.FS(vfs.NewMem())
		if o.disk != nil {
			disk = o.disk(c.opts.servers[i].ID, disk)
		}
		c.start(t, i, disk)
	}
	return c
}

func (c *cluster) start(t testing.TB, i int, fs vfs.FS) {
	t.Helper()
	o, id := c.opts, fmt.Sprintf("n%d", i)
	o.transport = func() (raft.Transport, error) { return c.net.Join(id), nil }
	c.nodes[i] = startNode(t, id, fs, o)
}

// leader waits for one of the given nodes to lead.
func (c *cluster) leader(t testing.TB, among ...int) int {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, i := range among {
			if ok, _ := c.nodes[i].group.Leader(); ok {
				return i
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no leader")
		}
	}
}

// waitEqual waits until the given nodes have the state of the first.
func (c *cluster) waitEqual(t testing.TB, among ...int) {
	t.Helper()
	index, _, sum := c.nodes[among[0]].machine.state()
	for _, i := range among[1:] {
		m := c.nodes[i].machine
		m.waitFor(t, fmt.Sprintf("n%d to reach %d", i, index), func() bool { return m.index >= index })
		if gotIndex, _, got := m.state(); gotIndex != index || got != sum {
			t.Errorf("n%d is at %d with %x, not at %d with %x", i, gotIndex, got, index, sum)
		}
	}
}

// testLevel shows the messages of the library when a test is debugged.
const testLevel = zerolog.Disabled
