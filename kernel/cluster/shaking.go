package cluster

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"
)

// shakes bounds how many TLS handshakes compute at a time: a crowd of connections must not
// keep the Raft groups from the processors. Those that wait for the other side do not count.
type shakes chan struct{}

func newShakes() shakes { return make(shakes, max(runtime.GOMAXPROCS(0)/2, 1)) }

// shaking is the socket below a TLS connection: it takes a place when it has read
// something in a handshake, and gives it back when it waits for more.
type shaking struct {
	net.Conn
	places shakes
	held   atomic.Bool
	done   atomic.Bool
}

// NetConn returns the socket.
func (s *shaking) NetConn() net.Conn { return s.Conn }

// Read implements net.Conn.
func (s *shaking) Read(b []byte) (int, error) {
	if s.done.Load() {
		return s.Conn.Read(b)
	}
	s.rest()
	n, err := s.Conn.Read(b)
	if err == nil && !s.done.Load() {
		s.compute()
	}
	return n, err
}

// compute waits for a place.
func (s *shaking) compute() {
	s.places <- struct{}{}
	s.held.Store(true)
	if s.done.Load() {
		s.rest()
	}
}

// rest gives the place back.
func (s *shaking) rest() {
	if s.held.CompareAndSwap(true, false) {
		<-s.places
	}
}

// Close implements net.Conn.
func (s *shaking) Close() error {
	err := s.Conn.Close()
	s.settle()
	return err
}

// settle says that the handshake is over.
func (s *shaking) settle() {
	s.done.Store(true)
	s.rest()
}

// settled says that the handshake of a connection is over.
func settled(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		if s, ok := t.NetConn().(*shaking); ok {
			s.settle()
		}
	}
}

// shakingListener accepts TLS connections.
type shakingListener struct {
	net.Listener
	config *tls.Config
	places shakes
}

// Accept implements net.Listener.
func (l shakingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tls.Server(&shaking{Conn: c, places: l.places}, l.config), nil
}
