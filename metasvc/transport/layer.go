package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// queue is a net.Listener that is given its connections.
type queue struct {
	addr  net.Addr
	ready chan net.Conn

	mu     sync.Mutex
	closed bool
	done   chan struct{}
}

func newQueue(addr net.Addr, backlog int) *queue {
	return &queue{addr: addr, ready: make(chan net.Conn, backlog), done: make(chan struct{})}
}

var errBacklog = errors.New("transport: nobody accepts this connection")

// put hands over a connection, without waiting.
func (q *queue) put(c net.Conn) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return net.ErrClosed
	}
	select {
	case q.ready <- c:
		return nil
	default:
		return errBacklog
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.ready:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (q *queue) Addr() net.Addr { return q.addr }

// Close implements net.Listener.
func (q *queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	close(q.done)
	for {
		select {
		case c := <-q.ready:
			_ = c.Close()
		default:
			return nil
		}
	}
}

// layer is the raft.StreamLayer of one group. It knows all its connections,
// also those that the library has in use: the library itself closes idle ones
// only.
type layer struct {
	*queue
	mux   *Mux
	id    uint32
	trans *raft.NetworkTransport // on top of this layer; it closes it

	mu     sync.Mutex
	conns  map[*conn]struct{}
	closed bool
}

var _ raft.StreamLayer = (*layer)(nil)

// conn leaves its layer when it is closed.
type conn struct {
	net.Conn
	layer *layer
}

func (c *conn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.conns, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}

func (l *layer) track(c net.Conn) (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	t := &conn{Conn: c, layer: l}
	l.conns[t] = struct{}{}
	return t, nil
}

// take gives the group a connection that a peer has made.
func (l *layer) take(c *Conn) error {
	tracked, err := l.track(c.Conn)
	if err != nil {
		return err
	}
	if err := l.put(tracked); err != nil {
		_ = tracked.Close()
		return err
	}
	return nil
}

// Dial implements raft.StreamLayer. The address is one of serial.
func (l *layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.mux.ctx, timeout)
	defer cancel()
	id, at := splitTarget(addr)
	if id != "" && id == l.mux.self().Raft {
		return l.dialSelf()
	}
	c, _, err := l.mux.Dial(ctx, at, Hello{Kind: KindGroup, Group: l.id, To: id})
	if err != nil {
		return nil, err
	}
	t, err := l.track(c)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return t, nil
}

// dialSelf connects the group with itself, as a node does that stands for election
// because nobody else could.
func (l *layer) dialSelf() (net.Conn, error) {
	here, there := net.Pipe()
	t, err := l.track(here)
	if err == nil {
		err = l.take(&Conn{Conn: there})
	}
	if err != nil {
		return nil, errors.Join(err, here.Close(), there.Close())
	}
	return t, nil
}

// Close implements net.Listener: it closes every connection of the group and
// makes way for a new transport.
func (l *layer) Close() error {
	l.mux.mu.Lock()
	if l.mux.groups[l.id] == l {
		delete(l.mux.groups, l.id)
	}
	l.mux.mu.Unlock()

	l.mu.Lock()
	l.closed = true
	open := make([]*conn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	return l.queue.Close()
}
