package listener

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// ErrHandshake is reported when PROXY, TLS or WebSocket fails.
var ErrHandshake = errors.New("handshake")

// ErrNoise is reported besides ErrHandshake when the peer did not even try, as
// health checks and port scans do not.
var ErrNoise = errors.New("no handshake")

// stage is what connections go through between the socket and Accept: each on
// a goroutine of its own, bounded in time and number.
type stage struct {
	l      *Listener
	ready  chan net.Conn
	broken chan struct{} // closed when accepting has failed for good
	err    error         // of accepting, once broken is closed
	run    sync.WaitGroup

	mu    sync.Mutex
	ended bool
	conns map[*conn]struct{}
}

func newStage(l *Listener) *stage {
	s := &stage{l: l, ready: make(chan net.Conn), broken: make(chan struct{}), conns: map[*conn]struct{}{}}
	s.run.Go(s.accept)
	return s
}

// next is Accept.
func (s *stage) next() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.broken:
		return nil, s.err
	case <-s.l.closed:
		return nil, net.ErrClosed
	}
}

func (s *stage) accept() {
	for {
		c, err := s.l.accept()
		if err != nil {
			s.err = err
			close(s.broken)
			return
		}
		switch added, room := s.add(c); {
		case !added && !room:
			s.l.refuse(c, ErrHandshakes)
		case !added:
			_ = c.Close() // the listener is closed
		default:
			s.run.Go(func() { s.prepare(c) })
		}
	}
}

// add counts a connection in; room is false if there are too many.
func (s *stage) add(c *conn) (added, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false, true
	}
	if len(s.conns) >= s.l.opt.MaxHandshakes {
		return false, false
	}
	s.conns[c] = struct{}{}
	s.l.stats.Handshaking.Store(int64(len(s.conns)))
	return true, true
}

func (s *stage) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.l.stats.Handshaking.Store(int64(len(s.conns)))
}

// prepare brings one connection to Accept.
func (s *stage) prepare(c *conn) {
	nc, err := s.handshake(c)
	s.remove(c)
	if err != nil {
		if errors.Is(err, ErrAddressBudget) {
			s.l.refuse(c, ErrAddressBudget)
			return
		}
		s.l.stats.Failed.Add(1)
		_ = c.Close()
		if !errors.Is(err, net.ErrClosed) {
			s.l.report(fmt.Errorf("%s -> %s: %w", c.RemoteAddr(), s.l.Addr(), judge(err)))
		}
		return
	}
	select {
	case s.ready <- nc:
	case <-s.l.closed:
		_ = nc.Close()
	}
}

func (s *stage) handshake(c *conn) (nc net.Conn, err error) {
	opt := &s.l.opt
	if err := c.SetDeadline(time.Now().Add(opt.HandshakeTimeout)); err != nil {
		return nil, err
	}
	if opt.Proxy != nil {
		if err := opt.Proxy.read(c); err != nil {
			return nil, fmt.Errorf("PROXY: %w", err)
		}
	}
	if !c.count() {
		return nil, ErrAddressBudget
	}
	nc = c
	if opt.TLS != nil {
		if nc, err = opt.TLS.handshake(c); err != nil {
			return nil, fmt.Errorf("TLS: %w", err)
		}
	}
	if opt.WebSocket != nil {
		if nc, err = opt.WebSocket.upgrade(nc); err != nil {
			return nil, fmt.Errorf("WebSocket: %w", err)
		}
	}
	return nc, c.SetDeadline(time.Time{})
}

// end closes the connections that are not ready and waits for all goroutines.
// Idempotent; the listener is closed.
func (s *stage) end() {
	s.mu.Lock()
	s.ended = true
	for c := range s.conns {
		_ = c.Close() // its handshake fails
	}
	s.mu.Unlock()
	s.run.Wait()
}

// judge tells those who did not get far from those who may want to know why.
func judge(err error) error {
	_, plaintext := errors.AsType[tls.RecordHeaderError](err)
	if plaintext || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, errNotHTTP) {
		return fmt.Errorf("%w: %w: %w", ErrHandshake, ErrNoise, err)
	}
	return fmt.Errorf("%w: %w", ErrHandshake, err)
}
