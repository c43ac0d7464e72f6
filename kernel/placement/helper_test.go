package placement

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// node is a data directory with what several openings of a group share.
type node struct {
	t      testing.TB
	fs     vfs.FS
	dir    string
	kv     *kv.Store
	wal    *wal.WAL
	limits Limits
	keep   int64 // Raft.KeepBytes
	now    func() time.Time
	bury   func(*Burial)
	onDisk func(low bool, free, floor int64)

	onDamage func(topic kernel.TopicID, partition int32, bad Damage)
}

func newNode(t testing.TB, fs vfs.FS, dir string) *node {
	t.Helper()
	store, err := kv.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return &node{t: t, fs: fs, dir: dir, kv: store}
}

func (n *node) open() *Group {
	n.t.Helper()
	g, err := n.tryOpen()
	if err != nil {
		n.t.Fatal(err)
	}
	ready(n.t, g)
	return g
}

func (n *node) tryOpen() (*Group, error) {
	n.t.Helper()
	var err error
	if err = n.fs.MkdirAll(n.dir); err != nil {
		n.t.Fatal(err)
	}
	n.wal, err = wal.Open(n.fs, filepath.Join(n.dir, "wal"), wal.Options{FileSize: 16 << 20})
	if err != nil {
		n.t.Fatal(err)
	}
	return Open(Config{
		ID: 1, FS: n.fs, Dir: filepath.Join(n.dir, "p1"), WAL: n.wal.Group(1), KV: n.kv,
		Raft:   Raft{NodeID: "n1", Bootstrap: []raftgroup.Server{{ID: "n1", Address: "n1"}}, KeepBytes: n.keep},
		Shards: 2, Logger: zerolog.Nop(), Limits: n.limits, Now: n.now, Bury: n.bury, OnDisk: n.onDisk, OnDamage: n.onDamage,
	})
}

func (n *node) close(g *Group) {
	n.t.Helper()
	g.Close()
	if err := n.wal.Close(); err != nil {
		n.t.Fatal(err)
	}
}

func ready(t testing.TB, g *Group) {
	t.Helper()
	if err := g.WaitReady(soon(t)); err != nil {
		t.Fatal(err)
	}
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func volatileGroup(t testing.TB, limits Limits) *Group {
	t.Helper()
	g, err := OpenVolatile(Config{Shards: 2, Logger: zerolog.Nop(), Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// queue makes a topic of parts partitions with its own group.
func queue(t testing.TB, g *Group, n byte, parts int, r kernel.Retention) ([]PartitionID, GroupID) {
	t.Helper()
	specs := make([]PartitionSpec, parts)
	for i := range specs {
		specs[i] = PartitionSpec{Index: int32(i), Retention: r}
	}
	ids, err := g.CreatePartitions(soon(t), topicN(n), specs, 1)
	if err != nil {
		t.Fatal(err)
	}
	return ids, group(t, g, GroupSpec{Address: kernel.QueueAddress("/", fmt.Sprint("q", n)), Topic: topicN(n), Owner: true, FromStart: true})
}

func group(t testing.TB, g *Group, spec GroupSpec) GroupID {
	t.Helper()
	id, err := g.CreateGroup(soon(t), spec, 1)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func topicN(n byte) kernel.TopicID { return kernel.TopicID{15: n} }

// record makes a record that carries a number.
func numbered(n uint64) *kernel.Record {
	return &kernel.Record{Value: binary.BigEndian.AppendUint64(nil, n), Timestamp: 1000 + int64(n)}
}

func numberOf(v *kernel.View) uint64 { return binary.BigEndian.Uint64(v.Value) }

// answers collects completions.
type answers struct {
	mu      sync.Mutex
	results map[uint64]kernel.Result
	twice   int
	flushed bool
	changed chan struct{}
}

func newAnswers() *answers {
	return &answers{results: make(map[uint64]kernel.Result), changed: make(chan struct{}, 1)}
}

func (a *answers) Completed(token uint64, res kernel.Result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.results[token]; ok {
		a.twice++
	}
	a.results[token] = res
	a.flushed = false
}

func (a *answers) Flush() {
	a.mu.Lock()
	a.flushed = true
	a.mu.Unlock()
	signal(a.changed)
}

// wait waits for n answers and returns them.
func (a *answers) wait(t testing.TB, n int) map[uint64]kernel.Result {
	t.Helper()
	ctx := soon(t)
	for {
		a.mu.Lock()
		done := len(a.results) >= n && a.flushed
		a.mu.Unlock()
		if done {
			break
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			t.Fatalf("%d of %d publishes were answered", len(a.results), n)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.twice > 0 {
		t.Fatalf("%d publishes were answered twice", a.twice)
	}
	return a.results
}

// got is a delivery as it is kept.
type got struct {
	number      uint64
	partition   int32
	offset      int64
	acquired    int32
	failed      int32
	redelivered bool
}

// sink is a consumer that keeps what it gets.
type sink struct {
	mu      sync.Mutex
	list    []got
	ended   error
	changed chan struct{}
	each    func(kernel.Delivery)
}

func newSink() *sink { return &sink{changed: make(chan struct{}, 1)} }

func (s *sink) Deliver(batch []kernel.Delivery) {
	s.mu.Lock()
	for _, d := range batch {
		s.list = append(s.list, got{numberOf(d.Record), d.Partition, d.Offset, d.Acquired, d.Failed, d.Redelivered})
		if s.each != nil {
			s.each(d)
		}
	}
	s.mu.Unlock()
	signal(s.changed)
}

func (s *sink) Ended(reason error) {
	s.mu.Lock()
	s.ended = reason
	s.mu.Unlock()
	signal(s.changed)
}

// wait waits for n deliveries in all and returns them.
func (s *sink) wait(t testing.TB, n int) []got {
	t.Helper()
	s.until(t, func() bool { return len(s.list) >= n })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

func (s *sink) waitEnded(t testing.TB) error {
	t.Helper()
	s.until(t, func() bool { return s.ended != nil })
	return s.ended
}

func (s *sink) until(t testing.TB, ok func() bool) {
	t.Helper()
	ctx := soon(t)
	for {
		s.mu.Lock()
		done := ok()
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			t.Fatalf("the consumer has got %d records, ended: %v", len(s.list), s.ended)
		}
	}
}

func publish(t testing.TB, g *Group, set *TargetSet, from, to uint64) map[uint64]kernel.Result {
	t.Helper()
	a := newAnswers()
	for n := from; n < to; n++ {
		if err := g.Append(set, numbered(n), a, n); err != nil {
			t.Fatal(err)
		}
	}
	return a.wait(t, int(to-from))
}

func join(t testing.TB, g *Group, id GroupID, opt kernel.MemberOptions, to kernel.Consumer) *Member {
	t.Helper()
	m, err := g.Join(id, opt, to)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
