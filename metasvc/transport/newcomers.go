package transport

import (
	"container/list"
	"net"
	"sync"
)

// maxNewcomers bounds the connections that have not said yet what they are. Those of
// clients come in crowds.
const maxNewcomers = 1024

// newcomers are the connections that have not said yet what they are. Whoever reaches the
// port can open as many as he likes, so when there is no place the one goes that has
// proved nothing for longest: nodes do that within milliseconds.
type newcomers struct {
	mu     sync.Mutex
	max    int
	closed bool
	all    map[net.Conn]*list.Element // nil of those that have proved who they are
	silent list.List                  // of net.Conn: the others, in the order in which they came
}

func newNewcomers(limit int) *newcomers {
	return &newcomers{max: limit, all: map[net.Conn]*list.Element{}}
}

// add takes a connection in, maybe in place of another one, which it closes. False if there
// is no place, or no more.
func (n *newcomers) add(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	if len(n.all) >= n.max {
		oldest := n.silent.Front()
		if oldest == nil {
			return false
		}
		gone := n.silent.Remove(oldest).(net.Conn)
		delete(n.all, gone)
		_ = socketOf(gone).Close() // no farewell: that could take time
	}
	n.all[c] = n.silent.PushBack(c)
	return true
}

// proved notes that a connection has shown that it is no stranger's. It fails with
// net.ErrClosed if another one has its place already.
func (n *newcomers) proved(c net.Conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	e, ok := n.all[c]
	if !ok {
		return net.ErrClosed
	}
	if e != nil {
		n.silent.Remove(e)
		n.all[c] = nil
	}
	return nil
}

// remove takes a connection out.
func (n *newcomers) remove(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.all[c]; e != nil {
		n.silent.Remove(e)
	}
	delete(n.all, c)
}

// close closes all that are in, and lets no more in.
func (n *newcomers) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for c := range n.all {
		_ = c.Close()
	}
}

// socketOf is what a TLS connection is on.
func socketOf(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}
