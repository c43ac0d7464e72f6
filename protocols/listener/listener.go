// Package listener binds the sockets of the front-ends: one accept loop that
// outlives temporary errors, budgets of connections, the PROXY protocol, TLS
// and WebSocket below a net.Conn, and goroutines that a shutdown awaits. It
// knows no protocol that runs above.
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

// Defaults of Options.
const (
	DefaultKeepAlive        = 30 * time.Second
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultMaxHandshakes    = 4096
)

// Options are the choices of a listener. The zero value is usable.
type Options struct {
	// Budgets limit the connections open at one time, each. Several listeners
	// may share one.
	Budgets []*Budget
	// Addresses limits the connections of one client that have not logged in
	// (Authenticated); nil is no limit.
	Addresses *Addresses
	// PerSecond is how many connections are accepted in a second, and at once
	// after a quiet one; 0 is no limit. The others wait.
	PerSecond int
	// KeepAlive is the idle time before TCP probes and the interval between
	// them; 0 is 30 s.
	KeepAlive time.Duration
	// Proxy reads the PROXY protocol; nil does not.
	Proxy *Proxy
	// TLS encrypts; nil does not.
	TLS *TLS
	// WebSocket carries the bytes in messages; nil does not.
	WebSocket *WebSocket
	// HandshakeTimeout is how long PROXY, TLS and WebSocket may take together;
	// 0 is 10 s. MaxHandshakes is how many connections may be there at a time;
	// 0 is 4,096.
	HandshakeTimeout time.Duration
	MaxHandshakes    int
	// OnError is told of each temporary accept error, each refused connection
	// (ErrBudget, ErrAddressBudget, ErrHandshakes) and each failed handshake
	// (ErrHandshake); nil tells nobody. It must not block; it may be called
	// from several goroutines.
	OnError func(err error)
}

func (o *Options) setDefaults() {
	if o.KeepAlive <= 0 {
		o.KeepAlive = DefaultKeepAlive
	}
	if o.HandshakeTimeout <= 0 {
		o.HandshakeTimeout = DefaultHandshakeTimeout
	}
	if o.MaxHandshakes <= 0 {
		o.MaxHandshakes = DefaultMaxHandshakes
	}
}

// Stats count what a listener has done. Safe for concurrent use.
type Stats struct {
	Accepted    atomic.Uint64 // within the budgets
	Refused     atomic.Uint64 // over a budget
	Failed      atomic.Uint64 // handshakes
	Open        atomic.Int64
	Handshaking atomic.Int64
}

// Listener is a net.Listener over TCP whose Accept returns only for a
// connection within the budgets whose handshakes are done, or when the listener
// is closed.
type Listener struct {
	tcp    *net.TCPListener
	opt    Options
	pace   *pace
	stats  Stats
	closed chan struct{}
	once   sync.Once
	stage  *stage // nil = nothing to do between accept and Accept
}

// Listen binds addr ("host:port", port 0 picks one). Its error names the
// address and wraps ErrAddressInUse where that is the reason. The listener must
// be closed.
func Listen(addr string, opt Options) (*Listener, error) {
	opt.setDefaults()
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: opt.KeepAlive, Interval: opt.KeepAlive, Count: 4,
	}}
	tcp, err := config.Listen(context.Background(), "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: %w", addr, ErrAddressInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, plain(err))
	}
	l := &Listener{tcp: tcp.(*net.TCPListener), opt: opt, pace: newPace(opt.PerSecond), closed: make(chan struct{})}
	if opt.Proxy != nil || opt.TLS != nil || opt.WebSocket != nil {
		l.stage = newStage(l)
	}
	return l, nil
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

// Stats returns the listener's counters.
func (l *Listener) Stats() *Stats { return &l.stats }

// Close ends Accept, also one that is waiting out a temporary error, and the
// connections whose handshakes are not done. Others stay open. Idempotent.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = l.tcp.Close()
	})
	if l.stage != nil {
		l.stage.end()
	}
	return err
}

// Accept returns the next connection, with TCP_NODELAY (Go's default) and
// keep-alive on. Connections over a budget are closed at once. The error is
// net.ErrClosed after Close, or a lasting failure of the socket.
func (l *Listener) Accept() (net.Conn, error) {
	if l.stage != nil {
		return l.stage.next()
	}
	for {
		c, err := l.accept()
		if err != nil {
			return nil, err
		}
		if !c.count() {
			l.refuse(c, ErrAddressBudget)
			continue
		}
		return c, nil
	}
}

// accept returns the next connection that has a place in the budgets.
func (l *Listener) accept() (*conn, error) {
	pause := minPause
	for {
		if !l.wait(l.pace.delay(time.Now())) {
			return nil, net.ErrClosed
		}
		tcp, err := l.tcp.AcceptTCP()
		if err != nil {
			if !temporary(err) {
				return nil, err
			}
			l.report(fmt.Errorf("accept on %s: %w", l.Addr(), plain(err)))
			if !l.wait(pause) {
				return nil, net.ErrClosed
			}
			pause = min(2*pause, maxPause)
			continue
		}
		pause = minPause
		if !takeAll(l.opt.Budgets) {
			l.stats.Refused.Add(1)
			_ = tcp.Close() // nothing was written: there is no data to lose
			l.report(fmt.Errorf("%s -> %s: %w", tcp.RemoteAddr(), l.Addr(), ErrBudget))
			continue
		}
		l.stats.Accepted.Add(1)
		l.stats.Open.Add(1)
		return &conn{TCPConn: tcp, opt: &l.opt, open: &l.stats.Open}, nil
	}
}

// refuse closes a connection for lack of a place.
func (l *Listener) refuse(c *conn, why error) {
	l.stats.Refused.Add(1)
	_ = c.Close()
	l.report(fmt.Errorf("%s -> %s: %w", c.RemoteAddr(), l.Addr(), why))
}

// wait reports false if the listener was closed meanwhile.
func (l *Listener) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
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
