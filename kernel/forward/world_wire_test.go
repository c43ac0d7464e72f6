package forward

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// wire is a stream in memory between an edge and the node that serves, with faults: it
// breaks, at the one end before the other, within a message or while some are under
// way; it stalls; it is slow.
type wire struct {
	w    *world
	link *wlink // what runs on it
	over chan struct{}
	near wireEnd // the edge's
	far  wireEnd

	mu     sync.Mutex
	rnd    *rand.Rand
	left   int           // bytes until it breaks, <0 = it does not
	slow   time.Duration // the longest that a message takes
	stall  chan struct{} // closed when it goes on; nil = it does not stall
	broken bool
	clean  bool // over is closed
}

// wireEnd is one end. It implements Stream.
type wireEnd struct {
	wire    *wire
	in, out chan []byte
	gone    chan struct{}
	buf     []byte
}

func newWire(w *world, l *wlink, seed uint64) *wire {
	a, b := make(chan []byte, 4), make(chan []byte, 4)
	v := &wire{w: w, link: l, over: make(chan struct{}), rnd: rand.New(rand.NewPCG(seed, 7)), left: -1}
	v.near = wireEnd{wire: v, in: a, out: b, gone: make(chan struct{})}
	v.far = wireEnd{wire: v, in: b, out: a, gone: make(chan struct{})}
	if w.quiet.Load() {
		return v
	}
	switch v.rnd.IntN(8) {
	case 0:
		v.left = v.rnd.IntN(20_000)
	case 1, 2:
		v.slow = time.Duration(1+v.rnd.IntN(10)) * time.Millisecond
	}
	return v
}

// serve runs the end of the node that serves.
func (v *wire) serve(s *Server) {
	err := s.ServeClient("2", &v.far)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil && !v.broken {
		v.clean = true
		close(v.over)
		return
	}
	v.breakLocked(0)
}

// cut breaks the wire: the node that serves may learn it later than the edge.
func (v *wire) cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.breakLocked(time.Duration(v.rnd.IntN(3)*v.rnd.IntN(200)) * time.Millisecond)
}

// breakLocked breaks the wire. v.mu is held.
func (v *wire) breakLocked(later time.Duration) {
	if v.broken {
		return
	}
	v.broken = true
	v.w.trace("link %d of %s breaks (clean %v), at the other end after %v", v.link.n, v.link.name, v.clean, later)
	if !v.clean {
		v.w.truth.broken(v.link)
	}
	close(v.near.gone)
	if later == 0 {
		close(v.far.gone)
		return
	}
	v.w.work.Go(func() {
		v.w.sleep(later)
		close(v.far.gone)
	})
}

// pause holds up what is sent, both ways, for a while.
func (v *wire) pause(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stall != nil {
		return
	}
	over := make(chan struct{})
	v.stall = over
	v.w.trace("link %d of %s stalls for %v", v.link.n, v.link.name, d)
	v.w.work.Go(func() {
		v.w.sleep(d)
		v.mu.Lock()
		defer v.mu.Unlock()
		v.stall = nil
		close(over)
	})
}

// budget returns how much of a message is sent before the wire breaks.
func (v *wire) budget(n int) (sent int, breaks bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.left < 0 || v.w.quiet.Load() {
		return n, false
	}
	sent = min(n, v.left)
	v.left -= sent
	return sent, sent < n
}

// Send implements Stream.
func (e *wireEnd) Send(b []byte) error {
	n, breaks := e.wire.budget(len(b))
	b = slices.Clone(b[:n])
	e.trace("sends", b)
	select {
	case <-e.gone:
		return io.ErrClosedPipe
	default:
	}
	select {
	case e.out <- b:
	case <-e.gone:
		return io.ErrClosedPipe
	}
	if breaks {
		e.wire.cut()
		return io.ErrClosedPipe
	}
	return nil
}

// Recv implements Stream.
func (e *wireEnd) Recv() ([]byte, error) {
	select {
	case <-e.gone:
		return nil, io.ErrClosedPipe
	default:
	}
	var b []byte
	select {
	case b = <-e.in:
	case <-e.gone:
		return nil, io.ErrClosedPipe
	case <-e.wire.over:
		select {
		case b = <-e.in:
		default:
			return nil, io.EOF
		}
	}
	e.wire.travel(e.gone)
	e.trace("gets", b)
	e.buf = append(e.buf[:0], b...) // valid until the next Recv, and not longer
	return e.buf, nil
}

// trace notes what passes.
func (e *wireEnd) trace(what string, b []byte) {
	if v := e.wire; v.w.events.on {
		end := "the edge's"
		if e == &v.far {
			end = "the host's"
		}
		v.w.events.note(fmt.Sprintf("link %d of %s: %s end %s %d bytes", v.link.n, v.link.name, end, what, len(b)), b...)
	}
}

// travel is the time that a message takes.
func (v *wire) travel(gone <-chan struct{}) {
	v.mu.Lock()
	var d time.Duration
	if v.slow > 0 && !v.w.quiet.Load() {
		d = time.Duration(v.rnd.Int64N(int64(v.slow)))
	}
	stall := v.stall
	v.mu.Unlock()
	if d > 0 {
		v.w.sleep(d)
	}
	if stall != nil {
		select {
		case <-stall:
		case <-gone:
		}
	}
}

// Close implements Stream. Before the end of what serves it is a break.
func (e *wireEnd) Close() {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	e.wire.breakLocked(0)
}

// wpeers is Peers in memory: each link has a stream of its own.
type wpeers struct {
	w    *world
	link *wlink // nil: only for logins
}

func (p wpeers) OpenClient(context.Context, string) (Stream, error) {
	v := newWire(p.w, p.link, p.w.number())
	p.link.wire = v
	p.w.work.Go(func() { v.serve(p.w.server) })
	return &v.near, nil
}

func (p wpeers) CallLogin(ctx context.Context, _ string, req []byte) ([]byte, error) {
	return p.w.server.AnswerLogin(ctx, "2", req)
}
