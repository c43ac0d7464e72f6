package amqp

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// backend is what the front-end needs of a node.
type backend interface {
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	HasTenant(tenant string) bool
	Counters(p kernel.Protocol) *broker.Counters
	Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (link, error)
}

// link is one connection's view of the broker (broker.Conn).
type link interface {
	Close()
	Counters() *broker.Counters
	HasTag(tag string) bool // of the user
	Alarms() *broker.Alarms
	WatchAlarms(fn func())

	DeclareExchange(ctx context.Context, x kernel.Exchange) error
	Exchange(name string) (kernel.Exchange, error)
	DeleteExchange(ctx context.Context, name string, ifUnused bool) error

	SameQueue(q broker.QueueSpec) error
	DeclareQueue(ctx context.Context, q broker.QueueSpec) (broker.QueueInfo, error)
	Queue(name string) (broker.QueueInfo, error)
	DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (int64, error)
	PurgeQueue(ctx context.Context, name string) (int64, error)
	Bind(ctx context.Context, b kernel.Binding) error
	Unbind(ctx context.Context, b kernel.Binding) error

	Address(name string) (kernel.GroupAddress, error)
	Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, to kernel.Consumer) (member, error)
	Publisher(done kernel.Completion) publisher
}

// member is a place in a share group (broker.Member).
type member interface {
	Type() kernel.QueueType
	Credit(n int)
	Pool(pool *kernel.Pool, held func() int)
	Settle(o kernel.Outcome, partition int32, first, last int64)
	Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error
	Stop()
	Leave()
}

// publisher publishes for one channel (broker.Publisher).
type publisher interface {
	ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error)
	RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error)
	Settle(ctx context.Context) error
	Close()
}

// node makes a broker a backend.
type node struct{ *broker.Broker }

func (n node) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (link, error) {
	c, err := n.Broker.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return nodeLink{c}, nil
}

type nodeLink struct{ *broker.Conn }

func (l nodeLink) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, to kernel.Consumer) (member, error) {
	m, err := l.Conn.Join(ctx, addr, opt, to)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (l nodeLink) Publisher(done kernel.Completion) publisher { return l.Conn.Publisher(done) }
