// Package broker is the one facade that protocol adapters call. It joins
// routing, the catalog and the placement groups; it knows no protocol.
//
// An adapter authenticates, opens a Conn, and does everything through it:
// exclusive queues, memberships and sessions end with the Conn that made them.
package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
)

// Broker is the facade of a node, for as long as it leads. Safe for concurrent use.
type Broker struct {
	node     *Node
	alone    bool // the node is the broker's to close
	lead     lead
	lost     chan struct{} // closed when that leadership has ended
	losing   sync.Once
	log      zerolog.Logger
	settings Settings
	limits   Limits
	tables   Tables
	started  time.Time
	now      func() time.Time
	onStop   func() // undoes what start did outside: metrics

	catalog  *metasvc.Catalog
	durable  *placement.Group
	volatile *placement.Group
	tenants  tenants
	access   *access
	alarms   *alarms
	damages  damages
	watcher  sync.WaitGroup // of watchAccess, watchAlarms
	retained *retained
	numbers  atomic.Int64  // of all sessions, in use
	patience time.Duration // with clients whose connections may have outlasted their host
	relinks  time.Duration // the same with those of a facade before; 0 = there are none
	backlogs backlogs
	expiry   expirer
	offices  offices
	dead     dead

	ctx    context.Context // ends with the leadership, or when Close begins to close the layers
	cancel context.CancelFunc
	timers timers

	producers struct {
		mu        sync.Mutex
		next, end int64
	}

	mu       sync.Mutex // guards what follows
	conns    map[kernel.ConnectionID]*Conn
	tokens   map[string]*Conn // of conns that have one
	lastConn kernel.ConnectionID
	failed   error
	closing  bool
	retired  bool          // it is about to close, or does
	leaving  int           // connections that have come to leave since, see Conn.leave
	parted   chan struct{} // closed when they may
	empty    chan struct{} // closed when closing and the last connection has gone
	closed   chan struct{} // closed when Close has finished
}

// The numbers of the placement groups. The volatile one is no Raft group.
const (
	durablePlacement  = 1
	volatilePlacement = 0
)

// newBroker makes the facade of a leadership; start opens it.
func newBroker(n *Node, l lead) *Broker {
	b := &Broker{
		node: n, lead: l, lost: make(chan struct{}), log: n.log, settings: n.settings, limits: n.limits,
		tables: n.cfg.Tables, started: n.now(), now: n.now, catalog: n.catalog, durable: n.durable, alarms: n.alarms,
		patience: relinkTime, conns: make(map[kernel.ConnectionID]*Conn), tokens: make(map[string]*Conn),
		parted: make(chan struct{}), empty: make(chan struct{}), closed: make(chan struct{}),
	}
	if b.tables == nil {
		b.tables = noTables{}
	}
	b.access = newAccess(b.settings.Logins, b.log)
	b.access.secret = n.file.Secret
	b.dead.loaded = make(chan struct{})
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.retained = newRetained(b, b.limits.RetainedMemory)
	return b
}

// start loads all there is. After an error, abandon follows.
func (b *Broker) start() (err error) {
	ctx, cancel := context.WithTimeout(b.ctx, startWait)
	defer cancel()
	if err := b.durable.WaitReady(ctx); err != nil {
		return fmt.Errorf("placement group %d: %w", durablePlacement, err)
	}
	b.volatile, err = placement.OpenVolatile(placement.Config{
		Logger: b.log, Now: b.node.cfg.Now, Limits: b.limits.Placement, Bury: b.bury, OnFailure: b.node.fail, Hold: b.alarms.hold,
	})
	if err != nil {
		return err
	}
	if err := b.volatile.WaitReady(ctx); err != nil {
		return err
	}
	if err := b.load(b.node.cfg.Admin); err != nil {
		return err
	}
	if err := b.register(b.node.cfg.Registerer); err != nil {
		return err
	}
	close(b.dead.loaded)
	b.watcher.Go(b.watchAccess)
	b.watcher.Go(func() { b.watchAlarms(newMemoryGauge(b.limits.MemoryBytes)) })
	return nil
}

// abandon undoes a start that has failed.
func (b *Broker) abandon() error {
	b.timers.stop()
	b.cancel()
	if b.volatile != nil {
		b.volatile.Close()
	}
	return nil
}

// lose says that the leadership is over: what waits for it ends.
func (b *Broker) lose() {
	b.losing.Do(func() {
		close(b.lost)
		b.cancel()
	})
}

// Lost returns a channel that is closed when the leadership has ended: nothing can
// be committed any more, and another node may serve.
func (b *Broker) Lost() <-chan struct{} { return b.lost }

// Epoch numbers the leadership: that of a later one, on any node, is higher.
func (b *Broker) Epoch() uint64 { return b.lead.placement }

// NodeID returns the Raft name of the node that serves.
func (b *Broker) NodeID() string { return b.node.ID() }

// NodeName is Node.NodeName.
func (b *Broker) NodeName(raftID string) string { return b.node.NodeName(raftID) }

// ClusterID returns the id of the cluster, 22 characters of base64url: no two
// clusters have the same, and it stays over restarts.
func (b *Broker) ClusterID() string { return b.node.ClusterID() }

// Settings returns the operator's choices.
func (b *Broker) Settings() Settings { return b.settings }

// Ready returns nil when the node serves, else why not.
func (b *Broker) Ready() error {
	b.mu.Lock()
	failed, closing := b.failed, b.closing
	b.mu.Unlock()
	switch {
	case failed != nil:
		return failed
	case closing:
		return errStopping()
	}
	if err := b.catalog.Ready(); err != nil {
		return err
	}
	return b.durable.Ready()
}

func nodeFailed(err error) error {
	return kernel.Errorf(kernel.CodeInternal, "", "", "the node has failed: %v", err)
}

func errStopping() error {
	return kernel.Errorf(kernel.CodeUnavailable, "", "", "the node is stopping")
}

// fail notes that the node cannot go on, and asks all connections to end: what
// they were told stays true, nothing more will be.
func (b *Broker) fail(err error) {
	b.mu.Lock()
	first := b.failed == nil
	if first {
		b.failed = nodeFailed(err)
	}
	conns := b.connections()
	b.mu.Unlock()
	if !first {
		return
	}
	b.log.Error().Err(err).Msg("the node has failed and serves no more")
	for _, c := range conns {
		c.askToEnd(b.failed)
	}
}

// connections lists the connections by number. b.mu is held.
func (b *Broker) connections() []*Conn {
	list := make([]*Conn, 0, len(b.conns))
	for _, c := range b.conns {
		list = append(list, c)
	}
	slices.SortFunc(list, func(x, y *Conn) int { return int(x.id) - int(y.id) })
	return list
}

// Counters returns the counters of a protocol, for what an adapter counts without
// a Conn: logins that it refuses.
func (b *Broker) Counters(p kernel.Protocol) *Counters { return b.node.Counters(p) }

// Close drains the node: no new connections, the present ones are asked to end,
// and when they have, or ctx ends, what is left is closed by force. The replicas
// stay, unless Open has made them. Idempotent.
func (b *Broker) Close(ctx context.Context) error {
	b.Retire()
	b.mu.Lock()
	if b.closing {
		b.mu.Unlock()
		<-b.closed
		return nil
	}
	b.closing = true
	conns := b.connections()
	if len(conns) == 0 {
		close(b.empty)
	}
	b.mu.Unlock()
	defer close(b.closed)
	for _, c := range conns {
		c.askToEnd(errStopping())
	}
	select {
	case <-b.empty:
	case <-ctx.Done():
	}
	b.mu.Lock()
	conns = b.connections()
	b.mu.Unlock()
	if len(conns) > 0 {
		b.cancel() // nothing of theirs may wait any more
	}
	for _, c := range conns {
		if c.about.Token != "" { // the client's connection does not end with this
			c.Suspend()
		}
		c.Close()
	}
	b.timers.stop()
	b.cancel()
	b.offices.close()
	b.watcher.Wait()
	if b.onStop != nil {
		b.onStop()
	}
	b.volatile.Close()
	b.node.facade.CompareAndSwap(b, nil)
	if b.alone {
		return b.node.Close()
	}
	return nil
}

// drained is called by the last connection to go while the node closes.
func (b *Broker) drained() { close(b.empty) }

// after calls fn on a goroutine of the broker when d is over, unless stop is
// called, or Close, before.
func (b *Broker) after(d time.Duration, fn func()) (stop func()) { return b.timers.after(d, fn) }

// timers are the timers of a broker, stopped and awaited together.
type timers struct {
	mu      sync.Mutex
	stopped bool
	pending map[*time.Timer]struct{}
	running sync.WaitGroup
}

func (t *timers) after(d time.Duration, fn func()) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return func() {}
	}
	if t.pending == nil {
		t.pending = make(map[*time.Timer]struct{})
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		_, due := t.pending[timer]
		delete(t.pending, timer)
		if due {
			t.running.Add(1)
		}
		t.mu.Unlock()
		if due {
			defer t.running.Done()
			fn()
		}
	})
	t.pending[timer] = struct{}{}
	return func() {
		timer.Stop()
		t.mu.Lock()
		delete(t.pending, timer)
		t.mu.Unlock()
	}
}

// stop ends all timers and waits for what they have started.
func (t *timers) stop() {
	t.mu.Lock()
	t.stopped = true
	for timer := range t.pending {
		timer.Stop()
	}
	clear(t.pending)
	t.mu.Unlock()
	t.running.Wait()
}
