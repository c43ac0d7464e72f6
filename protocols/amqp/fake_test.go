package amqp

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/storage/record"
)

// fakeNode is a broker small enough to be read: queues are slices, everything
// happens at once under one mutex. Tests use it to make the kernel fail, answer
// late or out of order, and to measure the front-end alone.
type fakeNode struct {
	mu        sync.Mutex
	counters  broker.Counters
	exchanges map[string]kernel.Exchange
	queues    map[string]*fakeQueue
	bindings  map[[2]string][]string // exchange and key to queues
	names     int

	refuse  error // of every publish
	later   bool  // what is refused is told by the completion, as across the network
	unsure  error // of every Settle
	hold    bool  // keep completions until the test runs them
	held    []func(error)
	settles int // Settle calls
	records int // that were settled
	end     func(error)

	alarms   atomic.Pointer[broker.Alarms]
	watchers []func() // of alarms
}

type fakeQueue struct {
	name    string
	spec    broker.QueueSpec
	node    *fakeNode
	batches [][]byte // of one record each
	ready   []int64  // offsets, lowest first
	failed  map[int64]int32
	members []*fakeMember
	turn    int
}

type fakeMember struct {
	q      *fakeQueue
	opt    kernel.MemberOptions
	to     kernel.Consumer
	credit int
	back   atomic.Int64 // credit taken back and not booked yet
	holds  map[int64]bool
	over   bool
	iter   record.Iter
	one    [1]kernel.Delivery
}

func newFakeNode() *fakeNode {
	return &fakeNode{
		exchanges: map[string]kernel.Exchange{
			"":          {Type: kernel.Direct, Durable: true},
			"amq.topic": {Name: "amq.topic", Type: kernel.Topics, Durable: true},
			"secret":    {Name: "secret", Type: kernel.Direct, Internal: true},
		},
		queues: map[string]*fakeQueue{}, bindings: map[[2]string][]string{},
	}
}

func (n *fakeNode) Authenticate(_ context.Context, tenant, user, password string, _ net.Addr) (kernel.Identity, error) {
	if password != "guest" {
		return kernel.Identity{}, kernel.Errorf(kernel.CodeAccessRefused, "user", user, "no")
	}
	return kernel.Identity{User: user, Tenant: tenant}, nil
}

func (n *fakeNode) Admit(tenant, user string, _ net.Addr) (kernel.Identity, error) {
	return kernel.Identity{User: user, Tenant: tenant}, nil
}

func (n *fakeNode) Anonymous(string, net.Addr) (kernel.Identity, error) {
	return kernel.Identity{}, kernel.Errorf(kernel.CodeAccessRefused, "user", "", "no")
}

func (n *fakeNode) Counters(kernel.Protocol) *broker.Counters { return &n.counters }

func (n *fakeNode) HasTenant(tenant string) (bool, error) { return tenant == "/", nil }

func (n *fakeNode) Connect(_ kernel.Identity, _ kernel.ConnectionInfo, end func(error)) (link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end = end
	return &fakeLink{n: n}, nil
}

type fakeLink struct {
	link    // nil: of what is not here
	n       *fakeNode
	members []*fakeMember
}

func (l *fakeLink) Close() {
	for _, m := range l.members {
		m.Leave()
	}
}

func (l *fakeLink) HasTag(string) bool { return false }

func (l *fakeLink) Alarms() *broker.Alarms {
	if a := l.n.alarms.Load(); a != nil {
		return a
	}
	return &broker.Alarms{}
}

func (l *fakeLink) WatchAlarms(fn func()) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.watchers = append(l.n.watchers, fn)
}

func (l *fakeLink) SameQueue(broker.QueueSpec) error { return nil }

func (l *fakeLink) DeclareExchange(_ context.Context, x kernel.Exchange) error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.n.exchanges[x.Name] = x
	return nil
}

func (l *fakeLink) Exchange(name string) (kernel.Exchange, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	x, ok := l.n.exchanges[name]
	if !ok {
		return x, kernel.Errorf(kernel.CodeNotFound, "exchange", name, "")
	}
	return x, nil
}

func (l *fakeLink) DeleteExchange(_ context.Context, name string, _ bool) error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	delete(l.n.exchanges, name)
	return nil
}

func (l *fakeLink) DeclareQueue(_ context.Context, q broker.QueueSpec) (broker.QueueInfo, error) {
	l.n.mu.Lock()
	if q.Name == "" {
		l.n.names++
		q.Name = fmt.Sprintf("amq.gen-%d", l.n.names)
	}
	if l.n.queues[q.Name] == nil {
		l.n.queues[q.Name] = &fakeQueue{name: q.Name, spec: q, node: l.n, failed: map[int64]int32{}}
	}
	l.n.mu.Unlock()
	return l.Queue(q.Name)
}

func (l *fakeLink) find(name string) (*fakeQueue, error) {
	q := l.n.queues[name]
	if q == nil {
		return nil, kernel.Errorf(kernel.CodeNotFound, "queue", name, "")
	}
	return q, nil
}

func (l *fakeLink) Queue(name string) (broker.QueueInfo, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	q, err := l.find(name)
	if err != nil {
		return broker.QueueInfo{}, err
	}
	return broker.QueueInfo{Name: name, Ready: int64(len(q.ready)), Members: len(q.members)}, nil
}

func (l *fakeLink) DeleteQueue(_ context.Context, name string, _, _ bool) (int64, error) {
	l.n.mu.Lock()
	q := l.n.queues[name]
	delete(l.n.queues, name)
	l.n.mu.Unlock()
	if q == nil {
		return 0, nil
	}
	for _, m := range q.members {
		m.to.Ended(kernel.Errorf(kernel.CodeDropped, "queue", name, ""))
	}
	return int64(len(q.ready)), nil
}

func (l *fakeLink) PurgeQueue(_ context.Context, name string) (int64, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	q, err := l.find(name)
	if err != nil {
		return 0, err
	}
	n := len(q.ready)
	q.ready = nil
	return int64(n), nil
}

func (l *fakeLink) Bind(_ context.Context, b kernel.Binding) error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if _, err := l.find(b.Queue); err != nil {
		return err
	}
	at := [2]string{b.Exchange, b.Key}
	l.n.bindings[at] = append(l.n.bindings[at], b.Queue)
	return nil
}

func (l *fakeLink) Unbind(_ context.Context, b kernel.Binding) error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	delete(l.n.bindings, [2]string{b.Exchange, b.Key})
	return nil
}

func (l *fakeLink) Address(name string) (kernel.GroupAddress, error) {
	return kernel.QueueAddress("/", name), nil
}

func (l *fakeLink) Join(_ context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, _ pool, to kernel.Consumer) (member, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	q, err := l.find(addr.Topic)
	if err != nil {
		return nil, err
	}
	m := &fakeMember{q: q, opt: opt, to: to, holds: map[int64]bool{}}
	if !opt.Pull {
		q.members = append(q.members, m)
	}
	l.members = append(l.members, m)
	return m, nil
}

func (l *fakeLink) Publisher(done kernel.Completion) publisher {
	return &fakePublisher{n: l.n, done: done}
}

type fakePublisher struct {
	publisher // nil: of what is not here
	n         *fakeNode
	done      kernel.Completion
}

func (p *fakePublisher) Close() {}

func (p *fakePublisher) Settle(context.Context) error {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	return p.n.unsure
}

func (p *fakePublisher) RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	return p.ToExchange(exchange, key, r, opt, token)
}

func (p *fakePublisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	n := p.n
	n.mu.Lock()
	defer n.mu.Unlock()
	matched, err := p.publish(exchange, key, r, opt, token)
	if d, ok := p.done.(edge.Decliner); ok && err != nil && n.later {
		d.Declined(token, err)
		d.Flush()
		return 1, nil
	}
	return matched, err
}

func (p *fakePublisher) publish(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	n := p.n
	if n.refuse != nil {
		return 0, n.refuse
	}
	x, ok := n.exchanges[exchange]
	if !ok {
		return 0, kernel.Errorf(kernel.CodeNotFound, "exchange", exchange, "")
	}
	if x.Internal {
		return 0, kernel.Errorf(kernel.CodeAccessRefused, "exchange", exchange, "cannot publish to internal exchange '%s' in vhost '/'", exchange)
	}
	matched := 0
	if exchange == "" {
		if q := n.queues[key]; q != nil {
			matched++
			q.append(r)
		}
	}
	for _, name := range n.bindings[[2]string{exchange, key}] {
		matched++
		n.queues[name].append(r)
	}
	if matched == 0 && opt.Mandatory {
		return 0, nil
	}
	switch {
	case p.done == nil:
	case n.hold:
		n.held = append(n.held, func(err error) { p.done.Completed(token, kernel.Result{Offset: -1, Err: err}) })
	default:
		p.done.Completed(token, kernel.Result{Offset: -1})
		p.done.Flush()
	}
	return matched, nil
}

func (q *fakeQueue) append(r *kernel.Record) {
	var b record.Builder
	b.Reset()
	b.SetAttributes(record.AttrOwn)
	b.Append(r)
	q.ready = append(q.ready, int64(len(q.batches)))
	q.batches = append(q.batches, b.Finish(nil))
	q.pump()
}

// pump hands out to members in turn. The node's mutex is held.
func (q *fakeQueue) pump() {
	for tried := 0; tried < len(q.members) && len(q.ready) > 0; {
		q.turn++
		m := q.members[q.turn%len(q.members)]
		if m.credit -= int(m.back.Swap(0)); m.credit <= 0 {
			tried++
			continue
		}
		tried = 0
		one := m.hand()
		if size := one[0].Record.Size; size >= kernel.LargeDelivery && !m.to.(kernel.Admitter).Admit(1, size) {
			delete(m.holds, one[0].Offset)
			q.ready = slices.Insert(q.ready, 0, one[0].Offset)
			continue
		}
		m.credit--
		m.to.Deliver(one)
	}
}

// hand takes the first ready record.
func (m *fakeMember) hand() []kernel.Delivery {
	q := m.q
	at := q.ready[0]
	q.ready = q.ready[1:]
	if err := m.iter.Reset(q.batches[at], nil); err != nil || !m.iter.Next() {
		panic(fmt.Sprint("no record in the batch: ", err))
	}
	if !m.opt.AutoSettle {
		m.holds[at] = true
	}
	m.one[0] = kernel.Delivery{Record: m.iter.View(), Offset: at, Acquired: q.failed[at] + 1, Failed: q.failed[at], Redelivered: q.failed[at] > 0}
	return m.one[:]
}

func (m *fakeMember) Type() kernel.QueueType { return kernel.Classic }

func (m *fakeMember) Volatile() bool { return false }

func (m *fakeMember) Pool(pool, func() int) {}

func (l *fakeLink) NewPool(limit int) pool { return kernel.NewPool(limit) }

func (m *fakeMember) Credit(n int) {
	if n < 0 { // perhaps within Deliver
		m.back.Add(int64(-n))
		return
	}
	m.q.node.mu.Lock()
	defer m.q.node.mu.Unlock()
	if !m.over {
		m.credit += n
		m.q.pump()
	}
}

func (m *fakeMember) Settle(o kernel.Outcome, _ int32, first, last int64) {
	m.q.node.mu.Lock()
	defer m.q.node.mu.Unlock()
	m.q.node.settles++
	for at := first; at <= last; at++ {
		if !m.holds[at] {
			continue
		}
		delete(m.holds, at)
		m.q.node.records++
		if o == kernel.Release {
			m.q.giveBack(at)
		}
	}
	m.q.pump()
}

func (q *fakeQueue) giveBack(at int64) {
	q.failed[at]++
	i, _ := slices.BinarySearch(q.ready, at)
	q.ready = slices.Insert(q.ready, i, at)
}

func (m *fakeMember) Acquire(max int, fn func([]kernel.Delivery, int64)) error {
	m.q.node.mu.Lock()
	defer m.q.node.mu.Unlock()
	if m.q.node.queues[m.q.name] != m.q {
		return kernel.Errorf(kernel.CodeDropped, "queue", m.q.name, "")
	}
	if len(m.q.ready) == 0 {
		fn(nil, 0)
		return nil
	}
	at := m.q.ready[0]
	one := m.hand()
	if size := one[0].Record.Size; size >= kernel.LargeDelivery && !m.to.(kernel.Admitter).Admit(1, size) {
		delete(m.holds, at)
		m.q.ready = slices.Insert(m.q.ready, 0, at)
		return nil
	}
	fn(one, int64(len(m.q.ready)))
	return nil
}

func (m *fakeMember) Stop() {
	m.q.node.mu.Lock()
	defer m.q.node.mu.Unlock()
	m.over = true
	m.q.members = slices.DeleteFunc(m.q.members, func(o *fakeMember) bool { return o == m })
	if m.q.spec.AutoDelete && len(m.q.members) == 0 && !m.opt.Pull {
		delete(m.q.node.queues, m.q.name)
	}
}

func (m *fakeMember) Leave() {
	m.Stop()
	m.q.node.mu.Lock()
	defer m.q.node.mu.Unlock()
	for at := range m.holds {
		m.q.giveBack(at)
	}
	clear(m.holds)
	m.q.pump()
}
