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
	// edgeRetry is the pause before a node that did not take a connection is asked
	// again, unless something changes before.
	edgeRetry = 50 * time.Millisecond
	// carryGreeting bounds the time until a node says whether it takes a connection.
	carryGreeting = 5 * time.Second
)

// A node that is asked to serve a connection of another one answers with one byte.
const (
	carryTaken   = 1
	carryRefused = 0
)

// edge is where the node's connections go: to its own service, or to another node.
type edge struct {
	mu      sync.Mutex
	service *service
	changed chan struct{} // closed and replaced when service changes
	carried atomic.Int64  // connections of other nodes' clients, open
}

func (e *edge) init() { e.changed = make(chan struct{}) }

func (e *edge) get() *service {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.service
}

func (e *edge) change() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

func (e *edge) set(s *service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.service = s
	close(e.changed)
	e.changed = make(chan struct{})
}

// take takes the service out: what comes goes to another node.
func (e *edge) take() *service {
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
		if s := n.edge.get(); s != nil && s.put(f.Name, c) {
			continue
		}
		relays.Go(func() { n.carry(f, c) })
	}
}

// carry brings a connection to the node that serves, which may become this one, and
// carries its bytes until it ends. It waits for such a node as long as clients wait
// for a handshake.
func (n *node) carry(f *front, c net.Conn) {
	ctx, cancel := context.WithTimeout(n.ctx, n.config.Connections.HandshakeTimeout)
	defer cancel()
	for {
		here, there := n.edge.change(), n.replicas.Changed()
		if s := n.edge.get(); s != nil && s.put(f.Name, c) {
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
		case <-time.After(edgeRetry):
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
