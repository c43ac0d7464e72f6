package edge

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

const (
	// DefaultPatience is how long a call waits for a host.
	DefaultPatience = 30 * time.Second
	// linking is how many connections are linked anew at a time: a new host has all
	// clients of a cluster at its door.
	linking = 32
	// retryFirst is the first pause before a host that does not serve yet is asked
	// again, retryMax the longest.
	retryFirst = 20 * time.Millisecond
	retryMax   = time.Second
)

// Config is what an Edge is made from.
type Config struct {
	// Counters are the node's (broker.Node.Counters); nil = nobody looks at them.
	Counters func(kernel.Protocol) *broker.Counters
	// Replica reads what is far behind the end of logs, in the place of a host at another
	// node (broker.Node); nil = nobody does.
	Replica Replica
	// Patience is how long a call waits for a host; 0 is DefaultPatience.
	Patience time.Duration
	Logger   zerolog.Logger
}

// Replica is what a node has of the logs by itself.
type Replica interface {
	ReadReplica(r *broker.LogRead) bool
}

// Edge is a node's door to the broker that serves. Safe for concurrent use.
type Edge struct {
	cfg     Config
	linking chan struct{} // places of those that are being linked
	muster  muster
	work    sync.WaitGroup

	mu      sync.Mutex
	host    *served       // nil = nobody serves
	changed chan struct{} // closed and replaced when host changes
	evicted chan struct{} // closed, and replaced but by Shut, when nobody is to wait for a host
	shut    bool
	conns   kernel.Ordered[Conn]
	closed  bool
}

// served is one time that a host serves.
type served struct{ Host }

// New makes an edge that has no host yet.
func New(cfg Config) *Edge {
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	if cfg.Counters == nil {
		cfg.Counters = func(kernel.Protocol) *broker.Counters { return &broker.Counters{} }
	}
	return &Edge{
		cfg: cfg, linking: make(chan struct{}, linking), muster: muster{back: make(chan struct{})},
		changed: make(chan struct{}), evicted: make(chan struct{}),
	}
}

// Of makes the edge of a broker that stays, such as a single node's.
func Of(b *broker.Broker) *Edge {
	e := New(Config{Counters: b.Counters})
	e.Set(Local(b))
	return e
}

// Set says who serves from now on, nil = nobody. Connections that are linked to another
// host leave that in good order, if it still does what is asked of it.
func (e *Edge) Set(h Host) {
	e.mu.Lock()
	e.host = nil
	if h != nil {
		e.host = &served{h}
	}
	close(e.changed)
	e.changed = make(chan struct{})
	now := e.host
	conns := e.conns.List()
	e.mu.Unlock()
	for _, c := range conns {
		if l := c.now.Load(); l != nil && l.host != now {
			l.end(errMoved)
		}
	}
}

// errMoved is why a link is left.
var errMoved = kernel.Errorf(kernel.CodeUnavailable, "", "", "another node serves")

// Evict has all connections closed by their front-ends. Clients that are about to log in
// and wait for a host are told that there is none.
func (e *Edge) Evict(reason error) { e.evict(reason, false) }

// EvictOf has the connections of a protocol closed by their front-end.
func (e *Edge) EvictOf(p kernel.Protocol, reason error) {
	e.mu.Lock()
	conns := e.conns.List()
	e.mu.Unlock()
	for _, c := range conns {
		if c.info.Protocol == p {
			c.end(reason)
		}
	}
}

// Shut is Evict for good: whoever asks for a host that is not there is told so at once.
func (e *Edge) Shut(reason error) { e.evict(reason, true) }

func (e *Edge) evict(reason error, forever bool) {
	e.mu.Lock()
	if !e.shut {
		close(e.evicted)
		if e.shut = forever; !forever {
			e.evicted = make(chan struct{})
		}
	}
	conns := e.conns.List()
	e.mu.Unlock()
	for _, c := range conns {
		c.end(reason)
	}
}

// Close says that nobody will serve any more, and waits for what runs. The connections
// are to be closed before.
func (e *Edge) Close() {
	e.Set(nil)
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.work.Wait()
}

// current returns the host, nil = nobody, and a channel that is closed when it changes.
func (e *Edge) current() (*served, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.host, e.changed
}

// spawn runs fn on a goroutine of the edge; false if it is closed.
func (e *Edge) spawn(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.work.Go(fn)
	return true
}

// retryPause is the pause after so many failures, not the same for all who wait.
func retryPause(failures int) time.Duration {
	d := min(retryFirst<<min(failures, 10), retryMax)
	return d/2 + rand.N(d/2)
}

// again reports whether an error says that the host does not serve, or that nobody
// knows whether it has.
func again(err error) bool {
	code := kernel.CodeOf(err)
	return err != nil && (code == kernel.CodeUnavailable || code == kernel.CodeUnknown)
}

// inTime makes an error that came as ctx ended one that passes: the host has refused
// nothing.
func inTime(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errNobody
	}
	return err
}

// ask asks the host that serves, and the next one if it does not any more. ctx, the edge's
// patience and Evict bound it.
func (e *Edge) ask(ctx context.Context, fn func(*served) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Patience)
	defer cancel()
	e.mu.Lock()
	evicted := e.evicted
	e.mu.Unlock()
	for failures := 0; ; failures++ {
		h, changed := e.current()
		err := errNobody
		if h != nil {
			if err = fn(h); !again(err) {
				return err
			}
		}
		if !e.pause(ctx, changed, evicted, failures) {
			return err
		}
	}
}

// errNobody says that there is no host.
var errNobody error = kernel.Errorf(kernel.CodeUnavailable, "", "", "no node serves now")

// pause waits until changed is closed, or for a while; false if ctx ends before, or evicted
// is closed.
func (e *Edge) pause(ctx context.Context, changed, evicted <-chan struct{}, failures int) bool {
	timer := time.NewTimer(retryPause(failures))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-evicted:
		return false
	case <-ctx.Done():
		return false
	}
	return true
}

// Authenticate is broker.Broker.Authenticate.
func (e *Edge) Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error) {
	return told(ctx, e, func(h *served) (kernel.Identity, error) { return h.Authenticate(ctx, tenant, user, password, remote) })
}

// Admit is broker.Broker.Admit.
func (e *Edge) Admit(tenant, user string, remote net.Addr) (kernel.Identity, error) {
	return told(context.Background(), e, func(h *served) (kernel.Identity, error) { return h.Admit(tenant, user, remote) })
}

// Anonymous is broker.Broker.Anonymous.
func (e *Edge) Anonymous(tenant string, remote net.Addr) (kernel.Identity, error) {
	return told(context.Background(), e, func(h *served) (kernel.Identity, error) { return h.Anonymous(tenant, remote) })
}

// HasTenant is broker.Broker.HasTenant.
func (e *Edge) HasTenant(tenant string) (bool, error) {
	return told(context.Background(), e, func(h *served) (bool, error) { return h.HasTenant(tenant) })
}

// Counters is broker.Node.Counters.
func (e *Edge) Counters(p kernel.Protocol) *broker.Counters { return e.cfg.Counters(p) }

// told is ask for what returns something.
func told[T any](ctx context.Context, e *Edge, fn func(*served) (T, error)) (out T, err error) {
	err = e.ask(ctx, func(h *served) (err error) {
		out, err = fn(h)
		return err
	})
	return out, err
}
