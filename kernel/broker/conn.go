package broker

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Conn is one client connection's view of the broker. Its methods are safe for
// concurrent use; those that take a ctx may wait for a commit. A change that
// has begun is finished even when ctx ends.
type Conn struct {
	b        *Broker
	id       kernel.ConnectionID
	identity kernel.Identity
	about    kernel.ConnectionInfo
	tenant   *tenant
	counters *Counters
	since    time.Time
	operator bool          // permissions are not looked at
	stop     chan struct{} // closed when Close begins
	pauses   pauses        // with slow live subscribers
	alarmed  atomic.Pointer[func()]

	endOnce sync.Once
	ended   func(reason error)

	leaves sync.Once      // see leave
	calls  sync.WaitGroup // changes under way; Add under mu while open
	done   chan struct{}  // closed when Close has finished
	mu     sync.Mutex
	closed bool
	goesOn bool             // Suspend was called
	owned  []kernel.TopicID // exclusive queues, and some that have gone
	sweep  int              // length of owned at which those are looked for
	member kernel.Ordered[Member]
	held   atomic.Pointer[held]
	attach kernel.Ordered[Session]
}

// Connect registers a connection. end is called (from a kernel goroutine, at
// most once, must not block) when the node wants it closed: shutting down or
// closed by an operator, or when its user loses his access. CodeNotFound (no
// such tenant), CodeAccessRefused (not his). A connection with the same token is
// closed before.
func (b *Broker) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (*Conn, error) {
	if err := b.MayEnter(id); err != nil {
		b.Counters(info.Protocol).Refused.Add(1)
		return nil, err
	}
	return b.connect(id, info, end, false)
}

// Operate is Connect for an operator, such as one who restores a backup: in the
// name of the identity, and without regard to its permissions. CodeNotFound.
func (b *Broker) Operate(id kernel.Identity, info kernel.ConnectionInfo) (*Conn, error) {
	return b.connect(id, info, nil, true)
}

func (b *Broker) connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error), operator bool) (*Conn, error) {
	t, ok := b.tenant(id.Tenant)
	if !ok {
		return nil, noTenant(id.Tenant)
	}
	c := &Conn{
		b: b, identity: id, about: info, tenant: t, counters: b.node.countersOf(&info), since: b.now(),
		stop: make(chan struct{}), done: make(chan struct{}), ended: end, operator: operator,
	}
	b.lockReplacing(info.Token)
	defer b.mu.Unlock()
	if b.retired {
		b.Counters(info.Protocol).Refused.Add(1)
		return nil, errStopping()
	}
	if t.isDropped() {
		return nil, noTenant(id.Tenant)
	}
	b.lastConn++
	c.id = b.lastConn
	b.conns[c.id] = c
	if info.Token != "" {
		b.tokens[info.Token] = c
	}
	if c.counted() {
		c.counters.Opened.Add(1)
	}
	return c, nil
}

// lockReplacing locks b.mu with no connection of that token, unless nobody connects any
// more.
func (b *Broker) lockReplacing(token string) {
	b.mu.Lock()
	for token != "" {
		old := b.tokens[token]
		if old == nil || b.retired {
			return
		}
		b.mu.Unlock()
		old.Suspend() // the client is there
		old.askToEnd(kernel.Errorf(kernel.CodeFenced, "", "", "the client's node has made the connection anew"))
		old.Close()
		b.mu.Lock()
	}
}

// counted reports whether opening and closing is counted here: of a client whose socket is
// at this node its edge does that, which may link it several times.
func (c *Conn) counted() bool { return c.about.Token == "" || c.about.Node != "" }

// ID returns the connection's number.
func (c *Conn) ID() kernel.ConnectionID { return c.id }

// Identity returns who the connection acts as.
func (c *Conn) Identity() kernel.Identity { return c.identity }

// Counters of one protocol (shared by its connections; atomics), if the client's socket is
// at this node. The kernel counts what passes through it; what an adapter refuses itself is
// its to count.
func (c *Conn) Counters() *Counters { return c.counters }

// askToEnd tells the adapter, once, that the node wants the connection closed.
func (c *Conn) askToEnd(reason error) {
	c.endOnce.Do(func() {
		if c.ended != nil {
			c.ended(reason)
		}
	})
}

// begin enters a call that changes something; end leaves it. Close waits for
// those that have begun.
func (c *Conn) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the connection is closed")
	}
	c.calls.Add(1)
	return nil
}

func (c *Conn) end() { c.calls.Done() }

// own notes an exclusive queue that dies with the connection. The list is swept
// whenever it has doubled: clients may make and delete such queues for ever.
func (c *Conn) own(id kernel.TopicID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned = append(c.owned, id)
	if len(c.owned) < max(c.sweep, minSweep) {
		return
	}
	table := c.tenant.table.Load()
	c.owned = slices.DeleteFunc(c.owned, func(id kernel.TopicID) bool {
		_, there := table.TopicByID(id)
		return !there
	})
	c.sweep = 2 * len(c.owned)
}

// minSweep is how many exclusive queues of a connection are not worth sweeping.
const minSweep = 64

// Close ends the connection: members leave (giving back what they hold),
// exclusive queues are deleted, a session is detached. While the broker closes, one with a
// token waits, for 300 ms at most, until all others of these close as well. Idempotent;
// every call returns when all is done.
func (c *Conn) Close() {
	c.leaves.Do(c.leave)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.closed = true
	goesOn := c.goesOn
	close(c.stop)
	c.mu.Unlock()
	c.calls.Wait()
	outlasts := goesOn || c.outlasts()

	for _, s := range c.sessions() {
		s.release(goesOn)
	}
	for _, m := range c.members() {
		m.leave(outlasts)
	}
	for _, id := range c.owned {
		c.tenant.dropOwned(id, outlasts)
	}
	c.b.mu.Lock()
	delete(c.b.conns, c.id)
	if token := c.about.Token; token != "" && c.b.tokens[token] == c {
		delete(c.b.tokens, token)
	}
	last := len(c.b.conns) == 0 && c.b.closing
	c.b.mu.Unlock()
	if c.counted() {
		c.counters.Closed.Add(1)
	}
	close(c.done)
	if last {
		c.b.drained()
	}
}

func (c *Conn) sessions() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.attach.List()
}

func (c *Conn) members() []*Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member.List()
}

// outlasts reports whether the client goes on at the next facade, as far as it can be told:
// this one is about to close.
func (c *Conn) outlasts() bool {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.b.retired && c.about.Token != ""
}

// dropOwned deletes an exclusive queue whose connection has ended. If its client outlasts
// that, and will bind the queue anew, exchanges that are to go with their last binding
// wait for it.
func (t *tenant) dropOwned(id kernel.TopicID, outlasts bool) {
	topic, ok := t.table.Load().TopicByID(id)
	if !ok {
		return
	}
	defer t.lockTopicFor(false, topic.Name)()
	if topic, ok = t.table.Load().TopicByID(id); !ok {
		return
	}
	t.leftover(topic.Name)
	ctx, cancel := t.b.changeContext()
	defer cancel()
	drop := t.dropTopic
	if outlasts {
		drop = t.dropTopicAlone
	}
	if err := drop(ctx, topic.Topic); err != nil {
		t.b.log.Error().Err(err).Str("queue", topic.Name).Msg("an exclusive queue could not be deleted")
	}
}

// leftover notes the name of a queue that goes by itself.
func (t *tenant) leftover(name string) {
	if kernel.Reserved(name) {
		return // a publish does not make these anyway
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone.add(name, t.b.now())
}
