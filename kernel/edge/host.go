package edge

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Host is the broker that serves, in this process or across the network. Its methods
// are those of broker.Broker; CodeUnavailable says that it does not serve any more.
type Host interface {
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	HasTenant(tenant string) (bool, error)
	// Connect is broker.Broker.Connect. end with CodeUnavailable says that the host is
	// about to serve no more: whoever holds the link hands nothing more to it, has its
	// publishers settle, and closes it. A link that breaks says so with CodeUnknown:
	// what is under way has completed with CodeUnknown then, and there is nothing to
	// settle.
	Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (Link, error)
	Scrams
	Coordinating
}

// Link is a client connection at a host (broker.Conn).
type Link interface {
	// Close is broker.Conn.Close. When it returns no callback is running or will come,
	// but Completed, which may until every publish has its outcome.
	Close()
	Sessions
	Logs
	ID() kernel.ConnectionID
	HasTag(tag string) bool // of the user
	Alarms() *broker.Alarms
	WatchAlarms(fn func())
	// Gathered waits until the clients of all nodes are back with what they have in memory
	// only (broker.Broker.Gather), ctx ends, or the link is over.
	Gathered(ctx context.Context)

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
	// Join adds a member; opt.Pool is nil, and pool, which NewPool of the same link has
	// made, or nil, takes its place.
	Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, pool Pool, to kernel.Consumer) (Member, error)
	NewPool(limit int) Pool
	Publisher(done kernel.Completion) Publisher
}

// Counting is a Link that counts what the client gets and gives, as broker.Conn does where
// that is at the client's node.
type Counting interface {
	Link
	// CountIn says in what; it is called once, before anything passes.
	CountIn(*broker.Counters)
}

// Member is a place in a share group (broker.Member).
type Member interface {
	Type() kernel.QueueType
	// Volatile says that its records live in memory only: another host gives their
	// offsets anew.
	Volatile() bool
	Credit(n int)
	// Pool puts the member under a pool of its link; held is called once, while nothing
	// is handed out to it, and says how much it holds.
	Pool(pool Pool, held func() int)
	Settle(o kernel.Outcome, partition int32, first, last int64)
	Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error
	Stop()
	Leave()
}

// Pool bounds what several members of a link hold together (kernel.Pool).
type Pool interface {
	SetLimit(n int)
	Add(n int)
	Put(n int)
}

// Decliner is a kernel.Completion that is told apart what broker.Publisher refuses at
// once, where that comes later because the host is across the network. To others it is
// the outcome.
type Decliner interface {
	kernel.Completion
	// Declined comes in the place of Completed.
	Declined(token uint64, err error)
}

// Publisher publishes for one channel (broker.Publisher). Across the network a publish
// that is not mandatory reports one target, and may be declined later. After one that
// was for a mistake of the client nothing more that the publisher is given is done.
type Publisher interface {
	ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error)
	RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error)
	SessionPublisher
	LogPublisher
	Settle(ctx context.Context) error
	Close()
}
