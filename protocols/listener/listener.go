// Package listener binds the sockets of the front-ends: one accept loop that
// outlives temporary errors, one budget of connections, and goroutines that a
// shutdown awaits. It knows no protocol.
package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ErrAddressInUse is what Listen's error wraps when another process (or
// listener) holds the address.
var ErrAddressInUse = errors.New("address in use")

// Bounds of the pause after a temporary accept error, which is mostly the
// process running out of file descriptors: it doubles up to the maximum.
const (
	minPause = 5 * time.Millisecond
	maxPause = time.Second
)

// Options are the choices of a listener. The zero value is usable.
type Options struct {
	// Budget limits the connections open at one time; nil is no limit. Several
	// listeners may share one.
	Budget *Budget
	// KeepAlive is the idle time before TCP probes and the interval between
	// them; 0 is 30 s.
	KeepAlive time.Duration
	// OnError is told of each temporary accept error and each refused
	// connection (ErrBudget); nil tells nobody. It must not block.
	OnError func(err error)
}

// Listener is a net.Listener over TCP whose Accept returns only for a
// connection within the budget or when the listener is closed.
type Listener struct {
	tcp    *net.TCPListener
	opt    Options
	closed chan struct{}
	once   sync.Once
}

// Listen binds addr ("host:port", port 0 picks one). Its error names the
// address and wraps ErrAddressInUse where that is the reason.
func Listen(addr string, opt Options) (*Listener, error) {
	if opt.KeepAlive <= 0 {
		opt.KeepAlive = 30 * time.Second
	}
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: opt.KeepAlive, Interval: opt.KeepAlive, Count: 4,
	}}
	l, err := config.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: %w", addr, ErrAddressInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, plain(err))
	}
	return &Listener{tcp: l.(*net.TCPListener), opt: opt, closed: make(chan struct{})}, nil
}

// plain strips the net.OpError around a cause, which repeats the address.
func plain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err
	}
	return err
}

// Addr returns the bound address.
func (l *Listener) Addr() net.Addr { return l.tcp.Addr() }

// Close ends Accept, also one that is waiting out a temporary error. Open
// connections stay open. Idempotent.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = l.tcp.Close()
	})
	return err
}

// Accept returns the next connection, with TCP_NODELAY (Go's default) and
// keep-alive on. Connections over the budget are closed at once. The error is
// net.ErrClosed after Close, or a lasting failure of the socket.
func (l *Listener) Accept() (net.Conn, error) {
	pause := minPause
	for {
		c, err := l.tcp.AcceptTCP()
		if err != nil {
			if !temporary(err) {
				return nil, err
			}
			l.report(fmt.Errorf("accept on %s: %w", l.Addr(), plain(err)))
			select {
			case <-time.After(pause):
			case <-l.closed:
				return nil, net.ErrClosed
			}
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		if !l.opt.Budget.take() {
			l.report(fmt.Errorf("%s -> %s: %w", c.RemoteAddr(), l.Addr(), ErrBudget))
			_ = c.Close() // nothing was written: there is no data to lose
			continue
		}
		return &conn{TCPConn: c, budget: l.opt.Budget}, nil
	}
}

func (l *Listener) report(err error) {
	if l.opt.OnError != nil {
		l.opt.OnError(err)
	}
}

// temporary tells errors that pass from those of a broken socket (accept(2)).
func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
		syscall.ECONNABORTED, syscall.ECONNRESET, syscall.EINTR, syscall.EPERM, syscall.EPROTO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ErrBudget is reported when a connection is refused because too many are open.
var ErrBudget = errors.New("too many connections")

// Budget is a limit on connections open at one time. Safe for concurrent use;
// a nil Budget has no limit.
type Budget struct {
	limit int64
	open  atomic.Int64
}

// NewBudget returns a budget of n connections; n <= 0 is no limit.
func NewBudget(n int) *Budget { return &Budget{limit: int64(n)} }

// Open returns how many connections are open.
func (b *Budget) Open() int64 {
	if b == nil {
		return 0
	}
	return b.open.Load()
}

func (b *Budget) take() bool {
	if b == nil {
		return true
	}
	if n := b.open.Add(1); b.limit > 0 && n > b.limit {
		b.open.Add(-1)
		return false
	}
	return true
}

// conn gives its place in the budget back when it is closed. It embeds the
// concrete type, so that net.Buffers still reaches writev.
type conn struct {
	*net.TCPConn
	budget *Budget
	once   sync.Once
}

func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		if c.budget != nil {
			c.budget.open.Add(-1)
		}
	})
	return err
}
