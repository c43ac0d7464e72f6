package mqtt

import (
	"context"
	"net"
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// fakeNode is a kernel that a test plays: publishes are noted and completed by
// the test, deliveries are the test's.
type fakeNode struct {
	mu        sync.Mutex
	lastID    kernel.ConnectionID
	sessions  map[string]*fakeSession
	published []published
	// onPublish decides about a publish; nil: one match, completed at once.
	onPublish func(p published) (matched int, err error)
	counters  broker.Counters
	alarms    broker.Alarms
	last      *fakeClient
	subErr    error
	willErr   error
	retained  map[string][]kernel.Retained // by filter
}

type published struct {
	by    *fakeClient
	done  kernel.Completion
	topic string
	rec   kernel.Record
	token uint64
	kept  bool // by Retain
}

func (p published) header(name string) string {
	for _, h := range p.rec.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return "-"
}

func (n *fakeNode) Authenticate(_ context.Context, _, user, password string, _ net.Addr) (kernel.Identity, error) {
	if password != "secret" {
		return kernel.Identity{}, kernel.Errorf(kernel.CodeAccessRefused, "user", user, "refused")
	}
	return kernel.Identity{User: user, Tenant: kernel.DefaultTenant}, nil
}

func (n *fakeNode) Admit(_, user string, _ net.Addr) (kernel.Identity, error) {
	return kernel.Identity{User: user, Tenant: "/"}, nil
}

func (n *fakeNode) Await(context.Context) error { return nil }

func (n *fakeNode) BeginScram(string, string, net.Addr) (edge.Scram, bool) { return nil, false }

func (n *fakeNode) Anonymous(tenant string, _ net.Addr) (kernel.Identity, error) {
	return kernel.Identity{User: "guest", Tenant: tenant, Anonymous: true}, nil
}

func (n *fakeNode) Counters(kernel.Protocol) *broker.Counters { return &n.counters }

func (n *fakeNode) Connect(_ context.Context, id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastID++
	n.last = &fakeClient{node: n, id: n.lastID, info: info, end: end}
	return n.last, nil
}

func (n *fakeNode) messages() []published {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.published)
}

type fakeClient struct {
	node *fakeNode
	id   kernel.ConnectionID
	info kernel.ConnectionInfo
	end  func(error)

	alarmed func() // see WatchAlarms
}

func (c *fakeClient) ID() kernel.ConnectionID    { return c.id }
func (c *fakeClient) Counters() *broker.Counters { return &c.node.counters }
func (c *fakeClient) Close()                     {}
func (c *fakeClient) Linked() bool               { return true }

func (c *fakeClient) Alarms() *broker.Alarms {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	now := c.node.alarms
	return &now
}

func (c *fakeClient) WatchAlarms(fn func()) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.alarmed = fn
}

func (c *fakeClient) Publisher(done kernel.Completion) publisher {
	return &fakePublisher{client: c, done: done}
}

func (c *fakeClient) AttachSession(_ context.Context, a broker.Attaching, taken func()) (session, bool, error) {
	id, clean, expiry := a.ClientID, a.Clean, a.Expiry
	n := c.node
	n.mu.Lock()
	s := n.sessions[id]
	n.mu.Unlock()
	if s != nil && s.taken != nil {
		s.taken()
		<-s.detached
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s, present := n.sessions[id]
	if s != nil && s.left != nil {
		s.left.Stop()
		if s.left = nil; clean {
			n.publishWill(s)
		}
	}
	if clean || !present {
		s, present = &fakeSession{node: n, numbers: map[uint16]bool{}, id: id, subs: map[string]kernel.Subscription{}, feeds: map[string]*fakeMember{}}, false
		n.sessions[id] = s
	}
	s.expiry, s.taken, s.detached = expiry, taken, make(chan struct{})
	return s, present, nil
}

type fakePublisher struct {
	client *fakeClient
	done   kernel.Completion
}

func (p *fakePublisher) Close() {}

func (p *fakePublisher) ToTopic(name string, r *kernel.Record, token uint64) (int, error) {
	return p.publish(name, r, token, false)
}

func (p *fakePublisher) Retain(name string, r *kernel.Record, token uint64) (int, error) {
	return p.publish(name, r, token, true)
}

func (p *fakePublisher) RetainOnce(s session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.ToTopicOnce(s, number, name, r, token)
}

func (p *fakePublisher) Identified(_ kernel.DedupID, publish func() (int, error)) (int, error) {
	return publish()
}

func (p *fakePublisher) publish(name string, r *kernel.Record, token uint64, kept bool) (int, error) {
	c := kernel.Record{Key: slices.Clone(r.Key), Value: slices.Clone(r.Value), Timestamp: r.Timestamp}
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, kernel.Header{Key: string([]byte(h.Key)), Value: slices.Clone(h.Value)})
	}
	pub := published{by: p.client, done: p.done, topic: name, rec: c, token: token, kept: kept}
	n := p.client.node
	n.mu.Lock()
	n.published = append(n.published, pub)
	on := n.onPublish
	n.mu.Unlock()
	if on != nil {
		return on(pub)
	}
	if p.done != nil {
		p.done.Completed(token, kernel.Result{})
		p.done.Flush()
	}
	return 1, nil
}

func (p *fakePublisher) ToTopicOnce(s session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	fs := s.(*fakeSession)
	fs.mu.Lock()
	again := fs.numbers[number]
	fs.numbers[number] = true
	fs.mu.Unlock()
	if again {
		p.done.Completed(token, kernel.Result{})
		p.done.Flush()
		return 1, nil
	}
	n, err := p.ToTopic(name, r, token)
	if err != nil {
		fs.mu.Lock()
		delete(fs.numbers, number)
		fs.mu.Unlock()
	}
	return n, err
}
