package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/protocols/listener"
)

const (
	// edgeRetry is the first pause before a node that did not take a connection is
	// asked again, unless something changes before; edgeRetryMax the longest.
	edgeRetry    = 50 * time.Millisecond
	edgeRetryMax = time.Second
	// edgeDials is how many connections the node that serves is asked to take at a
	// time: it may have just begun, with all clients of a cluster at its door.
	edgeDials = 64
	// carryGreeting bounds the time until a node says whether it takes a connection.
	carryGreeting = 5 * time.Second
)

// A node that is asked to serve a connection of another one answers with one byte.
const (
	carryTaken   = 1
	carryRefused = 0
)

// exchange is where the node's connections go: to its own service, or to another node.
type exchange struct {
	mu      sync.Mutex
	service *service
	changed chan struct{} // closed and replaced when service changes
	carried atomic.Int64  // connections of other nodes' clients, open
	dials   chan struct{} // places of those that are being made, see edgeDials
}

func (e *exchange) init() { e.changed, e.dials = make(chan struct{}), make(chan struct{}, edgeDials) }

// dial does what asks another node, when there is a place for it.
func (e *exchange) dial(ctx context.Context, ask func() (net.Conn, error)) (net.Conn, error) {
	select {
	case e.dials <- struct{}{}:
		defer func() { <-e.dials }()
		return ask()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// retryPause is the pause after so many failures: longer each time, as it is the same for
// all clients that wait.
func retryPause(failures int) time.Duration {
	return min(edgeRetry<<min(max(failures-1, 0), 10), edgeRetryMax)
}

func (e *exchange) get() *service {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.service
}

func (e *exchange) change() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *exchange) set(s *service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.service = s
	close(e.changed)
	e.changed = make(chan struct{})
}

// take takes the service out: what comes goes to another node.
func (e *exchange) take() *service {
	s := e.get()
	if s != nil {
		e.set(nil)
	}
	return s
}

// accept takes the connections of a front's listener, until it is closed.
func (n *node) accept(f *front) error {
	if f.Protocol == "http" {
		return n.gate.Serve(f.l)
	}
	var relays sync.WaitGroup
	defer relays.Wait()
	for {
		c, err := f.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		if n.put(f, c) {
			continue
		}
		relays.Go(func() { n.carry(f, c) })
	}
}

// put hands a connection to a server of this node; false if its bytes are to be carried
// to another one.
func (n *node) put(f *front, c net.Conn) bool {
	return !n.door.far(f.Protocol) && n.lasting[f.Protocol].queues[f.Name].put(c)
}

// carry brings a connection to the node that serves, which may become this one, and
// carries its bytes until it ends. It waits for such a node as long as clients wait
// for a handshake.
func (n *node) carry(f *front, c net.Conn) {
	ctx, cancel := context.WithTimeout(n.ctx, n.config.Connections.HandshakeTimeout)
	defer cancel()
	for failures := 1; ; failures++ {
		here, there := n.edge.change(), n.replicas.Changed()
		if n.put(f, c) {
			return
		}
		leader := n.replicas.Leader()
		t, err := n.tunnel(ctx, f.Protocol, c)
		if err == nil {
			listener.Authenticated(c) // from here on the other node counts it
			n.relays.run(n, &relay{client: c, tunnel: t, to: leader})
			return
		}
		select {
		case <-here:
		case <-there:
		case <-time.After(retryPause(failures)):
		case <-ctx.Done():
			n.log.Warn().Err(err).Str("listener", f.Name).Stringer("peer", c.RemoteAddr()).Msg("nobody serves: a connection is closed")
			_ = c.Close()
			return
		}
	}
}

// tunnel opens a connection to the node that serves, for a client of this one.
func (n *node) tunnel(ctx context.Context, protocol string, c net.Conn) (net.Conn, error) {
	peer := listener.PeerOf(c)
	peer.Node = n.replicas.ID()
	meta, err := peer.Append([]byte(protocol + "\n"))
	if err != nil {
		return nil, err
	}
	return n.edge.dial(ctx, func() (net.Conn, error) { return n.ask(ctx, meta) })
}

// ask asks the node that serves to take a connection.
func (n *node) ask(ctx context.Context, meta []byte) (net.Conn, error) {
	t, err := n.replicas.DialTunnel(ctx, meta)
	if err != nil {
		return nil, err
	}
	answer := []byte{carryRefused}
	err = t.SetReadDeadline(time.Now().Add(carryGreeting))
	if err == nil {
		_, err = io.ReadFull(t, answer)
	}
	if err == nil && answer[0] != carryTaken {
		err = errors.New("the other node does not serve now")
	}
	if err == nil {
		err = t.SetReadDeadline(time.Time{})
	}
	if err != nil {
		_ = t.Close()
		return nil, err
	}
	return t, nil
}

// forward is admin.GateConfig.Forward.
func (n *node) forward(ctx context.Context, client net.Conn) (net.Conn, error) {
	return n.tunnel(ctx, "http", client)
}
