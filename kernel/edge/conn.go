package edge

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// settleTime is how long a link that is left may take to say what became of the
// publishes under way.
const settleTime = 5 * time.Second

// Conn is one client connection, whichever host serves it. Its methods mean what those
// of broker.Conn do; those that change or look up something wait while no host serves,
// and are done again if one stops to serve meanwhile, as all of them may be. Safe for
// concurrent use.
type Conn struct {
	e      *Edge
	id     kernel.Identity
	info   kernel.ConnectionInfo
	ended  func(reason error)
	once   sync.Once              // of ended
	now    atomic.Pointer[link]   // nil while there is none
	alarm  atomic.Pointer[func()] // see WatchAlarms
	number atomic.Uint64          // of the link's connection at its host
	stop   context.Context        // ends with end, or when Close begins
	cancel context.CancelFunc
	wait   time.Duration // with a call, for a host
	shared bool          // it counts from the loss of the host, see SetPatience

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced when now does
	lost       time.Time     // when now became nil
	closed     bool
	members    kernel.Ordered[member]
	links      uint64 // that were made
	publishers kernel.Ordered[publisher]
	memory     memory
	calls      calls
	session    *session       // nil = none
	work       sync.WaitGroup // linking it anew; Add under mu while open
}

// link is one of the links that a connection has one after the other.
type link struct {
	Link
	c    *Conn
	host *served
	over bool          // it is to be left; guarded by c.mu
	why  error         // the reason
	left chan struct{} // closed with over

	number uint64 // of the connection's links
}

// Connect is broker.Broker.Connect. It waits for a host. The end of a host is no reason
// for end to be called.
func (e *Edge) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (*Conn, error) {
	return e.ConnectWithin(context.Background(), id, info, end)
}

// ConnectWithin is Connect that waits until ctx ends at most.
func (e *Edge) ConnectWithin(ctx context.Context, id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (*Conn, error) {
	info.Token = rand.Text()
	c := &Conn{
		e: e, id: id, info: info, ended: end, changed: make(chan struct{}), wait: e.cfg.Patience,
	}
	c.stop, c.cancel = context.WithCancel(context.Background())
	var l *link
	err := e.ask(ctx, func(h *served) (err error) {
		l, err = c.connect(h)
		return err
	})
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.Counters().Opened.Add(1)
	e.mu.Lock()
	e.conns.Add(c)
	e.mu.Unlock()
	c.install(l)
	return c, nil
}

// connect makes a link.
func (c *Conn) connect(h *served) (*link, error) {
	c.mu.Lock()
	c.links++
	l := &link{c: c, host: h, number: c.links, left: make(chan struct{})}
	c.mu.Unlock()
	in, err := h.Connect(c.id, c.info, l.end)
	if err != nil {
		return nil, err
	}
	if far, ok := in.(Counting); ok {
		far.CountIn(c.Counters())
	}
	l.Link = in
	c.number.Store(uint64(in.ID())) // before anything comes through it, and after all of the one before
	return l, nil
}

// ID is broker.Conn.ID: of the present link, or the one that is being made.
func (c *Conn) ID() kernel.ConnectionID { return kernel.ConnectionID(c.number.Load()) }

// end is what a link's host calls, and whoever knows that another one serves.
func (l *link) end(reason error) {
	c := l.c
	c.mu.Lock()
	if l.over {
		c.mu.Unlock()
		return
	}
	if !again(reason) {
		c.mu.Unlock()
		c.end(reason)
		return
	}
	defer c.mu.Unlock()
	l.leaveLocked(reason)
	if c.now.Load() == l {
		c.relinkLocked(l)
	}
}

// leaveLocked notes, once, that a link is over. c.mu is held.
func (l *link) leaveLocked(reason error) {
	l.over, l.why = true, reason
	close(l.left)
}

// end tells the front-end, once, that the connection is to be closed. What waits for a
// host does so no longer: the front-end could not close the connection before.
func (c *Conn) end(reason error) {
	c.once.Do(func() {
		if c.ended != nil {
			c.ended(reason)
		}
		c.cancel()
	})
}

// install makes a link the one in use, unless the connection is closed; one that is over
// already is left at once.
func (c *Conn) install(l *link) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		l.Close()
		return
	}
	c.turnLocked(l)
	if fn := c.alarm.Load(); fn != nil {
		l.WatchAlarms(*fn)
	}
	h, _ := c.e.current()
	if h != l.host && !l.over { // Set has not seen it
		l.leaveLocked(errMoved)
	}
	if l.over {
		c.relinkLocked(l)
	}
	c.mu.Unlock()
	c.tell()
}

// turnLocked changes the link in use. c.mu is held.
func (c *Conn) turnLocked(l *link) {
	if c.now.Store(l); l == nil {
		c.lost = time.Now()
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// tell has the front-end look at the alarms.
func (c *Conn) tell() {
	if fn := c.alarm.Load(); fn != nil {
		(*fn)()
	}
}

// relinkLocked begins to leave a link and make another one. c.mu is held.
func (c *Conn) relinkLocked(l *link) {
	if c.closed {
		return
	}
	c.turnLocked(nil)
	c.work.Add(1)
	arrive := c.e.muster.leave()
	if !c.e.spawn(func() { defer c.work.Done(); c.relink(l, arrive) }) {
		arrive()
		c.work.Done()
	}
}

// relink brings the connection from a link that is over to the next. arrive tells the
// edge's other connections that it is there.
func (c *Conn) relink(old *link, arrive func()) {
	defer arrive()
	c.tell()
	c.leave(old)
	for failures := 0; c.stop.Err() == nil; failures++ {
		h, changed := c.e.current()
		if h != nil {
			l, err := c.linkTo(h)
			switch {
			case err == nil:
				if arrive(); l != nil {
					c.e.muster.wait(c.stop, changed, l.left)
					c.install(l)
				}
				return
			case c.stop.Err() != nil: // it is closed, which is why
				return
			case !again(err):
				c.end(err)
				return
			}
		}
		c.e.pause(c.stop, changed, nil, failures)
	}
}

// leave ends a link: what was published through it has its outcome, if the host still
// says so.
func (c *Conn) leave(l *link) {
	if kernel.CodeOf(l.why) == kernel.CodeUnavailable {
		ctx, cancel := context.WithTimeout(c.stop, settleTime)
		for _, p := range list(c, &c.publishers) {
			if p.settleOn(ctx, l) != nil {
				break
			}
		}
		cancel()
	}
	c.suspend(l)
	l.Close()
	for _, m := range list(c, &c.members) {
		m.detach()
		if c.fenced(m) {
			c.forget(m)
			m.to.Ended(errExclusive)
		}
	}
}

// list returns one of a connection's sets.
func list[T any](c *Conn, set *kernel.Ordered[T]) []*T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return set.List()
}

// linkTo makes a link with all that the connection had; nil if that ends meanwhile.
func (c *Conn) linkTo(h *served) (*link, error) {
	select {
	case c.e.linking <- struct{}{}:
		defer func() { <-c.e.linking }()
	case <-c.stop.Done():
		return nil, nil
	}
	l, err := c.connect(h)
	if err != nil {
		return nil, err
	}
	if err = c.restore(l); err != nil {
		l.Close()
		for _, m := range list(c, &c.members) {
			m.detach()
		}
		return nil, err
	}
	return l, nil
}

// restore makes anew what a link had. Nobody joins meanwhile: calls wait.
func (c *Conn) restore(l *link) error {
	ctx, cancel := context.WithTimeout(c.stop, c.e.cfg.Patience)
	defer cancel()
	if err := c.redeclare(ctx, l); err != nil {
		return err
	}
	for _, m := range list(c, &c.members) {
		if err := m.attach(ctx, l); err != nil {
			return err
		}
	}
	return c.resume(ctx, l)
}

// Close is broker.Conn.Close.
func (c *Conn) Close() {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	if !again {
		c.Counters().Closed.Add(1)
	}
	c.cancel()
	c.work.Wait()
	c.e.mu.Lock()
	c.e.conns.Remove(c)
	c.e.mu.Unlock()
	if l := c.now.Load(); l != nil {
		l.Close()
	}
}

// SetPatience sets how long calls wait for a host, in the place of the edge's patience: all
// those that come after the loss of one together. Before the first call.
func (c *Conn) SetPatience(d time.Duration) { c.wait, c.shared = d, true }

// patience is how long a call that begins now waits for a host. c.mu is held.
func (c *Conn) patience() time.Duration {
	if c.shared {
		return c.wait - time.Since(c.lost)
	}
	return c.wait
}

// linked waits for a link. ctx, the end of the connection and its patience bound it.
func (c *Conn) linked(ctx context.Context) (*link, error) {
	if l := c.now.Load(); l != nil {
		return l, nil
	}
	c.mu.Lock()
	timer := time.NewTimer(c.patience())
	c.mu.Unlock()
	defer timer.Stop()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if l := c.now.Load(); l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, errNobody
		case <-ctx.Done():
			return nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "no node serves now: %v", ctx.Err())
		case <-c.stop.Done():
			return nil, errClosed
		}
	}
}

var errClosed error = kernel.Errorf(kernel.CodeUnavailable, "", "", "the connection is closed")

// do calls fn with the link, and with the next one if that stops to serve. What is missing at
// a host that gathers is looked for again when that ends: it may be in memory only, of a
// client that is not back.
func (c *Conn) do(ctx context.Context, fn func(*link) error) error {
	for {
		l, err := c.linked(ctx)
		if err != nil {
			return err
		}
		gathers := l.Alarms().Leader.On
		if err = fn(l); gathers && kernel.CodeOf(err) == kernel.CodeNotFound {
			l.Gathered(ctx)
			err = fn(l)
		}
		if !again(err) || !c.left(ctx, l) {
			return err
		}
	}
}

// passing is how long an error may come before the news that its host does not serve.
const passing = 300 * time.Millisecond

// left reports whether a link is in use no more, now or in a moment.
func (c *Conn) left(ctx context.Context, l *link) bool {
	timer := time.NewTimer(passing)
	defer timer.Stop()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if c.now.Load() != l {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		case <-c.stop.Done():
			return false
		}
	}
}

// Counters is broker.Node.Counters of the connection's protocol.
func (c *Conn) Counters() *broker.Counters { return c.e.Counters(c.info.Protocol) }

// unlinked is what a connection is short of that has no link.
var unlinked = &broker.Alarms{Leader: broker.Alarm{On: true, Reason: errNobody.Error()}}

// Linked reports whether there is a host. Who watches the alarms is told when that
// changes.
func (c *Conn) Linked() bool { return c.now.Load() != nil }

// Alarms is broker.Conn.Alarms. While there is no host, that is the alarm.
func (c *Conn) Alarms() *broker.Alarms {
	if l := c.now.Load(); l != nil {
		return l.Alarms()
	}
	return unlinked
}

// Gathered is broker.Conn.Gathered.
func (c *Conn) Gathered(ctx context.Context) {
	if l, err := c.linked(ctx); err == nil {
		l.Gathered(ctx)
	}
}

// WatchAlarms is broker.Conn.WatchAlarms.
func (c *Conn) WatchAlarms(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarm.Store(&fn)
	if l := c.now.Load(); l != nil {
		l.WatchAlarms(fn)
	}
}
