package main

import (
	"net"
	"sync"
)

// queue is a net.Listener that is given its connections, of one front-end's
// listener or of another node's.
type queue struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// put hands over a connection; false if the queue is closed.
func (q *queue) put(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
		return false
	}
}

// Accept implements net.Listener.
func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener: that of the real listener.
func (q *queue) Addr() net.Addr { return q.addr }

// Close implements net.Listener. Idempotent.
func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}
