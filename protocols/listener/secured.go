package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sealChunk is how many bytes are encrypted before they are written: a few
	// records in one system call.
	sealChunk = 48 << 10
	// partingTime is how long the last alert may take; it waits only for a
	// client that does not read.
	partingTime = 100 * time.Millisecond
)

// secured is a connection with TLS. Unlike tls.Conn's, a Write that runs into
// its deadline can be gone on with, as on a socket: what is encrypted stays and
// goes out first with the next Write, which may be of nothing.
type secured struct {
	*tls.Conn
	wire *sealed
	mu   sync.Mutex // of Write
}

func (s *secured) socket() *conn { return s.wire.conn }

// Write returns how many bytes of b need not be given again; with an error not
// all of these may have been sent.
func (s *secured) Write(b []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.wire.flush(); err != nil {
			return n, err
		}
		if n == len(b) {
			return n, nil
		}
		s.wire.cork(true)
		m, err := s.Conn.Write(b[n:min(len(b), n+sealChunk)])
		s.wire.cork(false)
		n += m
		if err != nil {
			return n, err
		}
	}
}

// Close says goodbye if that does not take long, and closes the socket.
func (s *secured) Close() error {
	s.wire.part()
	err := s.Conn.Close()
	_ = s.wire.conn.Close() // once more where tls.Conn was closed already: it gives the places back
	return err
}

// sealed is the socket below a tls.Conn. It keeps encrypted bytes that could not
// be written in time, since tls.Conn cannot repeat a Write.
type sealed struct {
	*conn
	pool *Handshakes
	held atomic.Bool // a place of the pool

	mu       sync.Mutex
	pending  *chunk
	corked   bool      // more is about to come
	flushing bool      // a goroutine is at it, and sends all that is pending
	flushed  sync.Cond // flushing has ended
	parting  bool
}

// chunk is a buffer for what is pending.
type chunk struct{ b []byte }

var chunks = sync.Pool{New: func() any { return &chunk{b: make([]byte, 0, sealChunk+2<<10)} }}

func newSealed(c *conn, pool *Handshakes) *sealed {
	s := &sealed{conn: c, pool: pool}
	s.flushed.L = &s.mu
	return s
}

// Write keeps p, and sends it unless more is about to come or another goroutine
// is sending: the reader, who may have to answer, does not wait for the writer.
func (s *sealed) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		s.pending = chunks.Get().(*chunk)
	}
	s.pending.b = append(s.pending.b, p...)
	if s.corked || s.flushing {
		return len(p), nil
	}
	if err := s.flushLocked(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, err
	}
	return len(p), nil
}

// flush sends what is pending.
func (s *sealed) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.flushing {
		s.flushed.Wait()
	}
	return s.flushLocked()
}

func (s *sealed) flushLocked() (err error) {
	s.flushing = true
	for s.pending != nil && err == nil {
		out := s.pending
		s.pending = nil
		s.mu.Unlock()
		var n int
		n, err = s.conn.TCPConn.Write(out.b)
		s.mu.Lock()
		if n < len(out.b) {
			out.b = append(out.b[:0], out.b[n:]...)
			if s.pending != nil {
				out.b = append(out.b, s.pending.b...)
			}
			s.pending = out
		} else if cap(out.b) <= 2*sealChunk {
			out.b = out.b[:0]
			chunks.Put(out)
		}
	}
	s.flushing = false
	s.flushed.Broadcast()
	return err
}

func (s *sealed) cork(on bool) {
	s.mu.Lock()
	s.corked = on
	s.mu.Unlock()
}

// part shortens the time for the last alert.
func (s *sealed) part() {
	s.mu.Lock()
	s.parting = true
	s.mu.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(partingTime)) // also of a Write under way
}

// SetWriteDeadline is the socket's, but for the long ones that tls.Conn sets
// for its last alert.
func (s *sealed) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	parting := s.parting
	s.mu.Unlock()
	if soon := time.Now().Add(partingTime); parting && t.After(soon) {
		t = soon
	}
	return s.conn.SetWriteDeadline(t)
}

// begin takes a place in the pool, until the handshake waits for the client.
func (s *sealed) begin(ctx context.Context) error {
	if s.pool == nil {
		return nil
	}
	select {
	case s.pool.places <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.held.Store(true)
	return nil
}

// finish gives the place back.
func (s *sealed) finish() {
	if s.held.CompareAndSwap(true, false) {
		<-s.pool.places
	}
}

// Read reads what the client sends: until it comes, nothing is computed.
func (s *sealed) Read(b []byte) (int, error) {
	s.finish()
	return s.conn.Read(b)
}
