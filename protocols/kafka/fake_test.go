package kafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// fakeNode is a kernel in memory, just enough for the handlers' tests.
type fakeNode struct {
	mu        sync.Mutex
	topics    map[string]*kernel.Topic
	logs      map[kernel.TopicID][]*fakeLog
	offsets   map[string][]broker.OffsetCommit
	producers int64
	counters  broker.Counters
	epoch     int32 // that batches are read with
	closed    bool  // no anonymous access
	refuse    error // of every batch
	lookup    error // of every topic that is looked for
	settings  broker.Settings
	nodes     []broker.Tenure // that coordinate groups; nil = the only one
	last      uint64          // see broker.Coordination
	unkept    bool            // an earlier version coordinates
	kept      map[string][]byte
	keeping   error         // of all that is about memberships
	hold      chan struct{} // if set, publishes complete when it is closed
	watching  chan struct{} // told of each watch
	nobody    atomic.Bool   // nobody will serve
	unknown   bool          // nobody knows what becomes of a batch
	serves    chan struct{} // if set, who waits for a host does so until it is closed
}

func newFake() *fakeNode {
	return &fakeNode{settings: *broker.DefaultSettings(), watching: make(chan struct{}, 100), topics: map[string]*kernel.Topic{}, logs: map[kernel.TopicID][]*fakeLog{}, offsets: map[string][]broker.OffsetCommit{}, kept: map[string][]byte{}}
}

func (n *fakeNode) Await(context.Context) error { return nil }

func (n *fakeNode) Authenticate(_ context.Context, _, user, password string, _ net.Addr) (kernel.Identity, error) {
	if user != "guest" || password != "guest" {
		return kernel.Identity{}, kernel.Errorf(kernel.CodeAccessRefused, "user", user, "wrong password")
	}
	return kernel.Identity{User: user, Tenant: "/"}, nil
}

func (n *fakeNode) Admit(_, user string, _ net.Addr) (kernel.Identity, error) {
	return kernel.Identity{User: user, Tenant: "/"}, nil
}

func (n *fakeNode) BeginScram(string, string, net.Addr) (edge.Scram, bool) { return nil, false }

func groupKeyOf(name string) group.Key { return group.Key{Tenant: "/", Group: name} }

func (n *fakeNode) Coordinators(context.Context, kernel.Protocol) (broker.Coordination, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes == nil {
		return broker.Coordination{Nodes: []broker.Tenure{{}}, Keeps: true}, nil
	}
	return broker.Coordination{Nodes: n.nodes, Last: n.last, Keeps: !n.unkept}, nil
}

func (n *fakeNode) Membership(_ context.Context, by broker.Office, tenant, group string) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.kept[tenant+" "+group], n.fenced(by, tenant, group)
}

func (n *fakeNode) KeepMembership(_ context.Context, by broker.Office, tenant, group string, value []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.fenced(by, tenant, group); err != nil {
		return err
	}
	if value == nil {
		delete(n.kept, tenant+" "+group)
	} else {
		n.kept[tenant+" "+group] = value
	}
	return nil
}

func (n *fakeNode) Memberships(_ context.Context, by broker.Office, tenant string) (names []string, _ error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key := range n.kept {
		if name, ok := strings.CutPrefix(key, tenant+" "); ok && n.fenced(by, tenant, name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// fenced is as of the kernel. n.mu is held.
func (n *fakeNode) fenced(by broker.Office, tenant, group string) error {
	if n.keeping != nil {
		return n.keeping
	}
	if n.nodes != nil && broker.Coordinator(n.nodes, tenant, group) != by.Tenure {
		return kernel.Errorf(kernel.CodeFenced, "group", group, "another one")
	}
	return nil
}

func (n *fakeNode) Anonymous(string, net.Addr) (kernel.Identity, error) {
	if n.closed {
		return kernel.Identity{}, kernel.Errorf(kernel.CodeAccessRefused, "user", "", "anonymous access is off")
	}
	return kernel.Identity{Tenant: "/", Anonymous: true}, nil
}

func (n *fakeNode) Counters(kernel.Protocol) *broker.Counters { return &n.counters }

func (n *fakeNode) Connect(_ context.Context, id kernel.Identity, _ kernel.ConnectionInfo, _ func(error)) (client, error) {
	return &fakeClient{fakeNode: n, id: id}, nil
}

type fakeClient struct {
	*fakeNode
	id kernel.Identity
}

func (c *fakeClient) Identity() kernel.Identity  { return c.id }
func (c *fakeClient) Counters() *broker.Counters { return &c.counters }
func (c *fakeClient) Close()                     {}

func (c *fakeClient) Await(ctx context.Context) error {
	if c.serves == nil {
		return nil
	}
	if c.nobody.Load() {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "nobody serves")
	}
	select {
	case <-c.serves:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refuse = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *fakeClient) May(context.Context, kernel.Acts, string, string) (bool, error) {
	return true, nil
}
func (c *fakeClient) HasTag(string) bool { return true }

func (c *fakeClient) CreateTopic(_ context.Context, s broker.TopicSpec) (*kernel.Topic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.topics[s.Name]; ok {
		return nil, kernel.Errorf(kernel.CodeExists, "topic", s.Name, "it exists")
	}
	t := &kernel.Topic{Name: s.Name, Tenant: "/", Partitions: s.Partitions, Retention: s.Retention}
	_, _ = rand.Read(t.ID[:])
	c.topics[s.Name] = t
	for range s.Partitions {
		c.logs[t.ID] = append(c.logs[t.ID], &fakeLog{watching: c.watching, watches: map[chan<- struct{}]int64{}})
	}
	return t, nil
}

func (c *fakeClient) AutoCreateTopic(ctx context.Context, name string) (*kernel.Topic, error) {
	return c.CreateTopic(ctx, broker.TopicSpec{Name: name, Partitions: c.settings.AutoCreatePartitions})
}

func (c *fakeClient) DeleteTopic(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[name]
	if !ok {
		return kernel.Errorf(kernel.CodeNotFound, "topic", name, "no such topic")
	}
	delete(c.topics, name)
	delete(c.logs, t.ID)
	return nil
}

func (c *fakeClient) Topic(_ context.Context, name string, _ bool) (*kernel.Topic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lookup != nil {
		return nil, c.lookup
	}
	t, ok := c.topics[name]
	if !ok {
		return nil, kernel.Errorf(kernel.CodeNotFound, "topic", name, "no such topic")
	}
	return t, nil
}

func (c *fakeClient) TopicByID(ctx context.Context, id kernel.TopicID, _ bool) (*kernel.Topic, error) {
	if c.lookup != nil {
		return nil, c.lookup
	}
	list, _ := c.Topics(ctx)
	for _, t := range list {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, kernel.Errorf(kernel.CodeNotFound, "topic", id.String(), "no such topic")
}

func (c *fakeClient) Topics(context.Context) ([]*kernel.Topic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ts []*kernel.Topic
	for _, t := range c.topics {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b *kernel.Topic) int { return strings.Compare(a.Name, b.Name) })
	return ts, nil
}

func (c *fakeClient) log(id kernel.TopicID, index int32) (*fakeLog, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	logs := c.logs[id]
	if index < 0 || int(index) >= len(logs) {
		return nil, kernel.Errorf(kernel.CodeNotFound, "partition", id.String(), "no such partition")
	}
	return logs[index], nil
}

// ReadLogs is like the kernel's, which has tests of its own.
func (c *fakeClient) ReadLogs(ctx context.Context, r *broker.LogRead) error {
	timer := time.NewTimer(r.Wait)
	defer timer.Stop()
	ready := make(chan struct{}, 1)
	for {
		r.MaxBytes = r.Admit(r.MaxBytes)
		enough := false
		for i := range r.Parts {
			enough = c.readPart(&r.Parts[i], r) || enough
		}
		if enough || len(r.Data) >= r.MinBytes || r.Wait == 0 {
			return nil
		}
		var cancels []func()
		for i := range r.Parts {
			l, _ := c.log(r.Parts[i].Topic, r.Parts[i].Index)
			cancels = append(cancels, l.Watch(r.Parts[i].Offset, ready))
		}
		over := false
		select {
		case <-ready:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
		for _, cancel := range cancels {
			cancel()
		}
		if over {
			return nil
		}
	}
}

func (c *fakeClient) readPart(p *broker.LogPart, r *broker.LogRead) (enough bool) {
	l, err := c.log(p.Topic, p.Index)
	if err != nil {
		p.Start, p.End, p.Err = -1, -1, err
		return true
	}
	p.Start, p.End = l.Bounds()
	at := len(r.Data)
	room := min(p.MaxBytes-p.Bytes, r.MaxBytes-at)
	if p.Offset == p.End || room <= 0 && at > 0 {
		return p.Offset < p.End
	}
	r.Data, p.Err = l.Read(p.Offset, max(room, 1), r.Data)
	if next := l.Around(p.Offset); kernel.CodeOf(p.Err) == kernel.CodeCorrupt && next > p.Offset {
		p.Offset = next
		r.Data, p.Err = l.Read(p.Offset, max(room, 1), r.Data)
	}
	if p.Err != nil {
		p.Start, p.End = -1, -1
		return true
	}
	for run := r.Data[at:]; len(run) > 0; {
		batch, rest, _ := kernel.SplitBatch(run)
		batch.SetLeaderEpoch(c.epoch)
		p.Offset, p.Records, run = batch.LastOffset()+1, p.Records+batch.Count(), rest
	}
	p.Chunks, p.Bytes = append(p.Chunks, [2]int{at, len(r.Data)}), p.Bytes+len(r.Data)-at
	return p.Offset < p.End
}

func (c *fakeClient) LogOffsets(_ context.Context, list []broker.LogQuery) ([]broker.LogAnswer, error) {
	out := make([]broker.LogAnswer, len(list))
	for i := range list {
		q, a := &list[i], &out[i]
		l, err := c.log(q.Topic, q.Index)
		if err != nil {
			*a = broker.LogAnswer{Offset: -1, Timestamp: -1, Err: err}
			continue
		}
		start, end := l.Bounds()
		*a = broker.LogAnswer{Offset: start, Timestamp: -1}
		switch q.Point {
		case broker.LogEnd:
			a.Offset = end
		case broker.LogTime, broker.LogNewest:
			ts := q.Time
			if q.Point == broker.LogNewest {
				ts = l.newest()
			}
			if a.Offset, a.Timestamp, a.Err = l.TimeOffset(ts); a.Timestamp < 0 || a.Err != nil {
				a.Offset = -1
			}
		}
	}
	return out, nil
}

func (c *fakeClient) Publisher(done kernel.Completion) publisher { return &fakePublisher{c, done} }

func (c *fakeClient) CommitOffsets(_ context.Context, _ broker.Tenure, group string, commits []broker.OffsetCommit) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range commits {
		same := func(p broker.OffsetCommit) bool { return p.Topic == o.Topic && p.Partition == o.Partition }
		c.offsets[group] = append(slices.DeleteFunc(c.offsets[group], same), o)
	}
	return nil
}

func (c *fakeClient) Offsets(_ context.Context, group string) ([]broker.OffsetCommit, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.offsets[group]), nil
}

func (c *fakeClient) OffsetGroups(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for name := range c.offsets {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

func (c *fakeClient) DeleteOffsets(_ context.Context, group string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.offsets, group)
	return nil
}

func (c *fakeClient) NewProducerID(context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producers++
	return c.producers, nil
}

type fakePublisher struct {
	c    *fakeClient
	done kernel.Completion
}

func (p *fakePublisher) ToPartition(t *kernel.Topic, index int32, batch []byte, token uint64) error {
	l, err := p.c.log(t.ID, index)
	if err != nil {
		return err
	}
	p.c.mu.Lock()
	refuse := p.c.refuse
	p.c.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	batch = bytes.Clone(batch)
	if p.c.unknown {
		p.done.Completed(token, kernel.Result{Offset: -1, Err: kernel.Errorf(kernel.CodeUnknown, "", "", "lost")})
		p.done.Flush()
		return nil
	}
	finish := func() {
		p.done.Completed(token, kernel.Result{Offset: l.append(batch)})
		p.done.Flush()
	}
	if p.c.hold == nil {
		finish()
		return nil
	}
	go func() { <-p.c.hold; finish() }() // as many as a test makes; it lets them go
	return nil
}

func (p *fakePublisher) Close() {}
