package mqtt

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
	"github.com/trivium-mq/trivium/storage/record"
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

// publishWill publishes the will of a session, as the kernel does. mu is held.
func (n *fakeNode) publishWill(s *fakeSession) {
	if w := s.will; w != nil {
		n.published = append(n.published, published{topic: w.Topic, rec: w.Record})
	}
	s.will, s.left = nil, nil
}

type fakeSession struct {
	will     *kernel.Will // n.mu guards it
	left     *time.Timer
	numbers  map[uint16]bool // in use, for messages stored once
	pins     []sessionPin
	kept     []byte
	records  map[int64]kernel.Record // of all topics, for Read
	node     *fakeNode
	id       string
	expiry   time.Duration
	taken    func()
	detached chan struct{}

	mu    sync.Mutex
	subs  map[string]kernel.Subscription
	feeds map[string]*fakeMember
}

func (s *fakeSession) State() kernel.SessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := slices.Collect(maps.Values(s.subs))
	slices.SortFunc(subs, func(a, b kernel.Subscription) int {
		if a.Filter < b.Filter {
			return -1
		}
		return 1
	})
	return kernel.SessionState{ClientID: s.id, Expiry: s.expiry, Subscriptions: subs}
}

func (s *fakeSession) Epoch() uint64 { return 1 }

func (s *fakeSession) Suspend() {}

func (s *fakeSession) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []subscribed {
	out := make([]subscribed, len(specs))
	for i, spec := range specs {
		sub := spec.Subscription
		if out[i].Err = s.node.subErr; out[i].Err != nil {
			continue
		}
		s.mu.Lock()
		_, existed := s.subs[sub.Filter]
		s.subs[sub.Filter] = sub
		s.mu.Unlock()
		out[i].Existed = existed
		out[i].Member, out[i].Err = s.Attach(ctx, spec)
	}
	return out
}

func (s *fakeSession) Attach(_ context.Context, spec broker.SubscribeSpec) (member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := spec.Subscription
	m := &fakeMember{session: s, feed: spec.To.(*feed), changed: make(chan struct{}, 1)}
	s.feeds[sub.Filter] = m
	if sub.QoS == 0 && !kernel.IsShare(sub.Filter) || s.expiry == 0 && !kernel.IsShare(sub.Filter) {
		return nil, nil
	}
	return m, nil
}

func (s *fakeSession) Unsubscribe(_ context.Context, filter string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.subs[filter]
	delete(s.subs, filter)
	return ok, nil
}

func (s *fakeSession) Release(numbers []uint16, done func([]uint16, error)) {
	var unknown []uint16
	s.mu.Lock()
	for _, n := range numbers {
		if !s.numbers[n] {
			unknown = append(unknown, n)
		}
		delete(s.numbers, n)
	}
	s.mu.Unlock()
	done(unknown, nil)
}

func (s *fakeSession) Pins(context.Context) ([]sessionPin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pins), nil
}

func (s *fakeSession) Unpin(id kernel.PinID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins = slices.DeleteFunc(s.pins, func(p sessionPin) bool { return p.PinID == id })
}

func (s *fakeSession) PinNumber(id kernel.PinID, done kernel.Completion) error {
	s.mu.Lock()
	s.pins = append(s.pins, sessionPin{Pin: kernel.Pin{PinID: id, Taken: true}})
	s.mu.Unlock()
	done.Completed(uint64(id.Number), kernel.Result{})
	done.Flush()
	return nil
}

func (s *fakeSession) RetainedAgain(name string, version uint64) (kernel.Record, bool, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	for _, list := range s.node.retained {
		for _, r := range list {
			if r.Name == name && r.Version == version {
				return r.Record, true, nil
			}
		}
	}
	return kernel.Record{}, false, nil
}

func (s *fakeSession) Keep(b []byte) { s.kept = b }

func (s *fakeSession) Kept() ([]byte, error) { return s.kept, nil }

func (s *fakeSession) Detach(expiry time.Duration) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.expiry, s.taken = expiry, nil
	if w := s.will; w != nil && min(w.Delay, expiry) > 0 {
		s.left = time.AfterFunc(min(w.Delay, expiry), func() {
			s.node.mu.Lock()
			defer s.node.mu.Unlock()
			s.node.publishWill(s)
		})
	} else {
		s.node.publishWill(s)
	}
	if expiry == 0 && s.node.sessions[s.id] == s {
		delete(s.node.sessions, s.id)
	}
	close(s.detached)
}

func (s *fakeSession) SetWill(_ context.Context, w *kernel.Will) error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.will = w
	return s.node.willErr
}

func (s *fakeSession) DropWill() error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.will = nil
	return nil
}

func (s *fakeSession) Retained(_ context.Context, filter string) (cursor, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return &fakeCursor{list: slices.Clone(s.node.retained[filter])}, nil
}

// fakeCursor gives out a list a few at a time.
type fakeCursor struct{ list []kernel.Retained }

func (c *fakeCursor) Next(_, _ int, _ func(int) bool) (list []kernel.Retained, more bool, err error) {
	n := min(3, len(c.list))
	list, c.list = c.list[:n], c.list[n:]
	return list, len(c.list) > 0, nil
}

type fakeMember struct {
	session *fakeSession
	feed    *feed
	acts    []string // with pins

	mu      sync.Mutex
	credit  int
	settled []settlement
	changed chan struct{}
}

func (m *fakeMember) note() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *fakeMember) Credit(n int) {
	m.mu.Lock()
	m.credit += n
	m.mu.Unlock()
	m.note()
}

func (m *fakeMember) Settle(o kernel.Outcome, partition int32, first, last int64) {
	m.mu.Lock()
	m.settled = append(m.settled, settlement{refuse: o == kernel.Refuse, partition: partition, first: first, last: last})
	m.mu.Unlock()
	m.note()
}

func (m *fakeMember) act(what string, id kernel.PinID, offset int64) {
	m.mu.Lock()
	m.acts = append(m.acts, fmt.Sprintf("%s %d@%d", what, id.Number, offset))
	m.mu.Unlock()
	m.note()
}

func (m *fakeMember) Pin(id kernel.PinID, _ int32, offset int64)    { m.act("pin", id, offset) }
func (m *fakeMember) Take(id kernel.PinID, _ int32, offset int64)   { m.act("take", id, offset) }
func (m *fakeMember) Refuse(id kernel.PinID, _ int32, offset int64) { m.act("refuse", id, offset) }
func (m *fakeMember) Unpin(id kernel.PinID)                         { m.act("unpin", id, -1) }

// Hold takes what Read would find.
func (m *fakeMember) Hold(places []kernel.Place) []bool {
	held := make([]bool, len(places))
	for i, p := range places {
		_, held[i] = m.session.records[p.Offset]
	}
	return held
}

func (m *fakeMember) Read(p kernel.Place, fn func(*kernel.View)) (bool, error) {
	r, ok := m.session.records[p.Offset]
	if ok {
		var b record.Builder
		b.SetAttributes(record.AttrOwn)
		b.Append(&r)
		var it record.Iter
		if it.Reset(b.Finish(nil), nil) == nil && it.Next() {
			fn(it.View())
		}
	}
	return ok, nil
}

// deliver hands out records, as many as there is credit for, and returns how
// many.
func (m *fakeMember) deliver(t testing.TB, offset int64, redelivered bool, recs ...kernel.Record) int {
	t.Helper()
	m.mu.Lock()
	n := min(m.credit, len(recs))
	m.credit -= n
	m.mu.Unlock()
	var b record.Builder
	b.SetAttributes(record.AttrOwn)
	for i := range recs[:n] {
		b.Append(&recs[i])
	}
	if n == 0 {
		return 0
	}
	batch := b.Finish(nil)
	var it record.Iter
	if err := it.Reset(batch, nil); err != nil {
		t.Fatal(err)
	}
	var ds []kernel.Delivery
	bytes := 0
	for it.Next() {
		v := *it.View()
		bytes += v.Size
		ds = append(ds, kernel.Delivery{Record: &v, Offset: offset + int64(len(ds)), Acquired: 1, Redelivered: redelivered})
	}
	if bytes >= kernel.LargeDelivery && !m.feed.Admit(n, bytes) {
		m.mu.Lock()
		m.credit += n // that was taken back
		m.mu.Unlock()
		return 0
	}
	m.feed.Deliver(ds)
	return n
}

// wait waits until cond holds.
func (m *fakeMember) wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		m.mu.Lock()
		ok := cond()
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-m.changed:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// rig is a server on a fake kernel.
type rig struct {
	t    testing.TB
	node *fakeNode
	srv  *Server
	wg   sync.WaitGroup
	ends []net.Conn
}

func newRig(t testing.TB, l Limits) *rig {
	n := &fakeNode{sessions: map[string]*fakeSession{}}
	r := &rig{t: t, node: n, srv: newServer(n, l, zerolog.Nop())}
	t.Cleanup(func() {
		for _, c := range r.ends {
			_ = c.Close()
		}
		r.wg.Wait()
	})
	return r
}

func (r *rig) session(id string) *fakeSession {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return r.node.sessions[id]
}

func (r *rig) member(id, filter string) *fakeMember {
	s := r.session(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds[filter]
}

// peer is the client's end of a connection, speaking bytes.
type peer struct {
	t       testing.TB
	c       net.Conn
	rd      *wire.Reader
	version byte
}

func (r *rig) dial() *peer {
	a, b := net.Pipe()
	r.wg.Go(func() {
		defer func() { _ = b.Close() }()
		r.srv.handle(b)
	})
	r.ends = append(r.ends, a)
	return &peer{t: r.t, c: a, rd: wire.NewReader(a, 16<<20)}
}

// connect dials and connects; it returns the CONNACK.
func (r *rig) connect(req wire.ConnectRequest) (*peer, *wire.ConnectAnswer) {
	r.t.Helper()
	p := r.dial()
	p.version = req.Version
	p.send(req.Append(nil))
	a, err := wire.ParseConnack(req.Version, p.want(wire.Connack))
	if err != nil {
		r.t.Fatal(err)
	}
	return p, a
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	_ = p.c.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatalf("write % x: %v", b, err)
	}
}

// next returns the next packet, or first 0 at the end of the connection.
func (p *peer) next() (first byte, body []byte) {
	p.t.Helper()
	for {
		first, body, ok, err := p.rd.Take()
		if err != nil {
			p.t.Fatal(err)
		}
		if ok {
			return first, slices.Clone(body)
		}
		if _, err := p.rd.Fill(); err != nil {
			return 0, nil
		}
	}
}

func (p *peer) want(pt byte) []byte {
	p.t.Helper()
	first, body := p.next()
	if first>>4 != pt {
		p.t.Fatalf("got packet %d (% x), want %d", first>>4, body, pt)
	}
	return body
}

// wantEnd wants the connection to end, in version 5 with DISCONNECT of a code.
func (p *peer) wantEnd(code wire.Code) {
	p.t.Helper()
	first, body := p.next()
	if p.version == wire.V5 && code != wire.Success {
		if first>>4 != wire.Disconnect {
			p.t.Fatalf("got packet %d (% x), want DISCONNECT", first>>4, body)
		}
		d, err := wire.ParseDisconnect(wire.V5, body)
		if err != nil || d.Code != code {
			p.t.Fatalf("got DISCONNECT 0x%02x (%s), %v, want 0x%02x", d.Code, d.Reason, err, code)
		}
		first, body = p.next()
	}
	if first != 0 {
		p.t.Fatalf("got packet %d (% x), want the end", first>>4, body)
	}
}

func (p *peer) subscribe(filters ...wire.Filter) []byte {
	p.t.Helper()
	p.send((&wire.SubscribeRequest{ID: 7, Filters: filters}).Append(nil, p.version))
	_, codes, err := wire.ParseSuback(wire.Suback, p.version, p.want(wire.Suback))
	if err != nil {
		p.t.Fatal(err)
	}
	return codes
}

func (p *peer) wantMessage() wire.Message {
	p.t.Helper()
	first, body := p.next()
	if first>>4 != wire.Publish {
		p.t.Fatalf("got packet %d (% x), want PUBLISH", first>>4, body)
	}
	var m wire.Message
	if err := m.Parse(p.version, first, body); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func publishPacket(version, qos byte, id uint16, topic, payload string, props ...byte) []byte {
	f := wire.Frame{Version: version, QoS: qos, ID: id, Topic: []byte(topic), Payload: []byte(payload), Properties: props}
	b, _, _ := f.Append(nil)
	return b
}
