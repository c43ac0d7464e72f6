// Package broker is the one facade that protocol adapters call. It joins
// routing, the catalog and the placement groups; it knows no protocol.
//
// An adapter authenticates, opens a Conn, and does everything through it:
// exclusive queues, memberships and sessions end with the Conn that made them.
package broker

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
)

// Broker is one node. Safe for concurrent use.
type Broker struct{}

// Authenticate checks a name and password. remote matters for the rule that
// the default user comes from loopback only. It fails with CodeAccessRefused.
// user may carry the tenant as "tenant:user" where the protocol has no field
// for it (tenant == "").
func (b *Broker) Authenticate(tenant, user, password string, remote net.Addr) (kernel.Identity, error) {
	panic("unfinished")
}

// Anonymous admits a connection without credentials, if the settings allow
// that from remote; else CodeAccessRefused.
func (b *Broker) Anonymous(tenant string, remote net.Addr) (kernel.Identity, error) {
	panic("unfinished")
}

// HasTenant reports whether the tenant exists.
func (b *Broker) HasTenant(tenant string) bool { panic("unfinished") }

// Connect registers a connection. end is called (from a kernel goroutine, at
// most once, must not block) when the node wants it closed: shutting down or
// closed by an operator.
func (b *Broker) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (*Conn, error) {
	panic("unfinished")
}

// Conn is one client connection's view of the broker. Its methods are safe for
// concurrent use; those that take a ctx may wait for a commit.
type Conn struct{}

// ID returns the connection's number.
func (c *Conn) ID() kernel.ConnectionID { panic("unfinished") }

// Identity returns who the connection acts as.
func (c *Conn) Identity() kernel.Identity { panic("unfinished") }

// Close ends the connection: members leave (giving back what they hold),
// exclusive queues are deleted, a session is detached. Idempotent.
func (c *Conn) Close() { panic("unfinished") }

// Counters of one protocol (shared by its connections; atomics).
func (c *Conn) Counters() *Counters { panic("unfinished") }

// DeclareExchange makes an exchange or checks that the existing one is
// equivalent (CodePrecondition if not).
func (c *Conn) DeclareExchange(ctx context.Context, x kernel.Exchange) error { panic("unfinished") }

// Exchange returns an exchange, or CodeNotFound.
func (c *Conn) Exchange(name string) (kernel.Exchange, error) { panic("unfinished") }

// DeleteExchange deletes an exchange; a missing one is no error. With ifUnused
// it fails with CodePrecondition while bindings exist.
func (c *Conn) DeleteExchange(ctx context.Context, name string, ifUnused bool) error {
	panic("unfinished")
}

// QueueSpec is a queue declaration. Name "" asks for a server-made name. A name
// that is a share address declares that group as a queue.
type QueueSpec struct {
	Name       string
	Type       kernel.QueueType
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Retention  *kernel.Retention // nil = the default for its durability
	Arguments  []kernel.Argument // accepted arguments, compared for equivalence
}

// QueueInfo is the state of a queue's group.
type QueueInfo struct {
	Name    string
	Ready   int64 // records available to members
	Held    int64 // handed out, not settled
	Members int   // consumers, pull members not counted
}

// DeclareQueue makes a queue (topic plus its own group) or checks that the
// existing one is equivalent: CodePrecondition with Detail naming the
// difference, CodeLocked if it is exclusive to another connection.
func (c *Conn) DeclareQueue(ctx context.Context, q QueueSpec) (QueueInfo, error) {
	panic("unfinished")
}

// Queue returns the state of a queue or share address: CodeNotFound, CodeLocked.
func (c *Conn) Queue(name string) (QueueInfo, error) { panic("unfinished") }

// DeleteQueue deletes a queue and returns how many records were ready. A
// missing one counts 0 and is no error. ifUnused and ifEmpty fail with
// CodePrecondition.
func (c *Conn) DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (int64, error) {
	panic("unfinished")
}

// PurgeQueue archives all ready records for the queue's group and returns how
// many; they stay readable until retention.
func (c *Conn) PurgeQueue(ctx context.Context, name string) (int64, error) { panic("unfinished") }

// Bind adds a binding; an equal one is no error. Missing ends are CodeNotFound.
func (c *Conn) Bind(ctx context.Context, b kernel.Binding) error { panic("unfinished") }

// Unbind removes a binding; an absent one is no error.
func (c *Conn) Unbind(ctx context.Context, b kernel.Binding) error { panic("unfinished") }

// Join adds a member to a share group. c owns it. Deliveries begin with the
// first Credit.
func (c *Conn) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, to kernel.Consumer) (*Member, error) {
	panic("unfinished")
}

// Address resolves a queue name or share address to a group address.
func (c *Conn) Address(name string) (kernel.GroupAddress, error) { panic("unfinished") }

// Member is one consumer's place in a share group.
type Member struct{}

// Credit lets n more records be handed out. Never blocks.
func (m *Member) Credit(n int) { panic("unfinished") }

// Settle settles records first..last of a partition that this member holds; any
// it does not hold are ignored. Never blocks. Credit does not come back by
// itself: the edge grants it.
func (m *Member) Settle(o kernel.Outcome, partition int32, first, last int64) { panic("unfinished") }

// Acquire takes up to max records now and passes them to fn (perhaps none)
// with the number of records still ready. It waits for the group's goroutine,
// so it must not be called from one; fn runs there.
func (m *Member) Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error {
	panic("unfinished")
}

// Stop ends hand-outs: after it returns no Deliver call is running or will
// come. What the member holds stays held until settled or Leave.
func (m *Member) Stop() { panic("unfinished") }

// Leave ends the membership and gives back what it holds, in place. After it
// returns no Deliver call comes. Idempotent.
func (m *Member) Leave() { panic("unfinished") }
