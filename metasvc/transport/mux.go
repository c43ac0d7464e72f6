package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
)

// A connection for a group begins with 8 bytes: the magic and the id of the
// group, big-endian. Everything else belongs to somebody else, see [Mux.Rest].
const (
	magic        = "RFT1"
	preambleSize = 8

	// preambleTimeout is how long a new connection may take to say what it is.
	preambleTimeout = 5 * time.Second

	// maxNewcomers bounds the connections that have not said it yet.
	maxNewcomers = 256

	// backlog bounds the connections that wait to be accepted by a group or by
	// whoever serves the rest.
	backlog = 16
)

// MuxConfig is what a Mux is made of.
type MuxConfig struct {
	// Listener accepts connections; with TLS it is a TLS listener. The Mux
	// closes it.
	Listener net.Listener

	// Advertise is the address that peers reach this node at.
	Advertise string

	// Dial connects to a peer, with TLS if the peers want it; default plain TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Authorize looks at a new connection, such as at the certificate of its
	// peer, before any of its bytes reaches a group. Nil lets all pass.
	Authorize func(net.Conn) error

	// Resolve returns the present address of a node. Nil, or an error, means
	// the address in the group's configuration.
	Resolve func(nodeID string) (string, error)

	// Timeout of calls to peers; default 10 s.
	Timeout time.Duration

	Logger zerolog.Logger
}

// Mux carries all Raft groups of a node over one port, and hands on the
// connections that are none of its own.
type Mux struct {
	cfg    MuxConfig
	work   sync.WaitGroup
	slots  chan struct{}
	rest   *queue
	cancel context.CancelFunc
	ctx    context.Context

	mu        sync.Mutex
	groups    map[uint32]*layer
	newcomers map[net.Conn]struct{}
	closed    bool
}

// ErrClosed is returned after Close.
var ErrClosed = errors.New("transport: closed")

// NewMux starts to accept connections.
func NewMux(cfg MuxConfig) *Mux {
	if cfg.Dial == nil {
		var d net.Dialer
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if cfg.Advertise == "" {
		cfg.Advertise = cfg.Listener.Addr().String()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	m := &Mux{
		cfg:       cfg,
		slots:     make(chan struct{}, maxNewcomers),
		rest:      newQueue(cfg.Listener.Addr()),
		groups:    map[uint32]*layer{},
		newcomers: map[net.Conn]struct{}{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.accept)
	return m
}

// Rest gives the connections that are not for a Raft group, for a gRPC server.
// Until it is accepted from, a few of them wait and the others are closed.
func (m *Mux) Rest() net.Listener { return m.rest }

// Group returns a new transport for a group. The one before it must be closed.
//
// It has no fast path for heartbeats: in hashicorp/raft that one lets a new
// term slip in while the main loop appends entries of the old one, which then
// carry the new term.
func (m *Mux) Group(id uint32) (raft.Transport, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	if m.groups[id] != nil {
		return nil, fmt.Errorf("transport: group %d has a transport already", id)
	}
	l := &layer{queue: newQueue(address(m.cfg.Advertise)), mux: m, id: id, conns: map[*conn]struct{}{}}
	m.groups[id] = l
	l.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   resolver(m.cfg.Resolve),
		Logger:                  hclog.NewNullLogger(), // what matters, Raft itself says too
		Stream:                  l,
		MaxPool:                 3,
		MaxRPCsInFlight:         2,
		Timeout:                 m.cfg.Timeout,
		MsgpackUseNewTimeFormat: true,
	})
	return &serial{l.trans}, nil
}

// serial passes every message through Raft's main loop. Embedding keeps the
// optional methods: without RequestPreVote there would be no pre-vote.
type serial struct{ *raft.NetworkTransport }

var _ raft.WithPreVote = (*serial)(nil)

// SetHeartbeatHandler implements raft.Transport; see [Mux.Group].
func (*serial) SetHeartbeatHandler(func(raft.RPC)) {}

// resolver implements raft.ServerAddressProvider.
type resolver func(nodeID string) (string, error)

func (r resolver) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if r == nil {
		return "", errors.New("transport: no resolver")
	}
	a, err := r(string(id))
	return raft.ServerAddress(a), err
}

// address is an advertised net.Addr.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

// accept takes connections until the listener is closed.
func (m *Mux) accept() {
	for {
		c, err := m.cfg.Listener.Accept()
		if err != nil {
			if m.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			m.cfg.Logger.Warn().Err(err).Msg("accept failed")
			select {
			case <-time.After(50 * time.Millisecond): // out of descriptors, most likely
			case <-m.ctx.Done():
				return
			}
			continue
		}
		select {
		case m.slots <- struct{}{}:
		default:
			_ = c.Close() // too many that say nothing
			continue
		}
		m.mu.Lock()
		if m.closed {
			m.mu.Unlock()
			_ = c.Close()
			return
		}
		m.newcomers[c] = struct{}{}
		m.work.Go(func() { m.welcome(c) })
		m.mu.Unlock()
	}
}

// welcome finds out whom a connection is for.
func (m *Mux) welcome(c net.Conn) {
	err := m.assign(c)
	m.mu.Lock()
	delete(m.newcomers, c)
	m.mu.Unlock()
	<-m.slots
	if err != nil {
		_ = c.Close()
		m.cfg.Logger.Debug().Err(err).Stringer("peer", c.RemoteAddr()).Msg("connection refused")
	}
}

func (m *Mux) assign(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(preambleTimeout)); err != nil {
		return err
	}
	if h, ok := c.(interface{ HandshakeContext(context.Context) error }); ok {
		if err := h.HandshakeContext(m.ctx); err != nil {
			return err
		}
	}
	if m.cfg.Authorize != nil {
		if err := m.cfg.Authorize(c); err != nil {
			return err
		}
	}
	var b [preambleSize]byte
	if _, err := io.ReadFull(c, b[:len(magic)]); err != nil {
		return err
	}
	if string(b[:len(magic)]) != magic {
		if err := c.SetDeadline(time.Time{}); err != nil {
			return err
		}
		return m.rest.put(&prefixed{Conn: c, reader: io.MultiReader(bytes.NewReader(bytes.Clone(b[:len(magic)])), c)})
	}
	if _, err := io.ReadFull(c, b[len(magic):]); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	id := binary.BigEndian.Uint32(b[len(magic):])
	m.mu.Lock()
	l := m.groups[id]
	m.mu.Unlock()
	if l == nil {
		return fmt.Errorf("transport: no group %d here", id)
	}
	tracked, err := l.track(c)
	if err != nil {
		return err
	}
	if err := l.put(tracked); err != nil {
		_ = tracked.Close()
		return err
	}
	return nil
}

// prefixed gives back the bytes that were read to know a connection.
type prefixed struct {
	net.Conn
	reader io.Reader
}

func (p *prefixed) Read(b []byte) (int, error) { return p.reader.Read(b) }

// Close closes the listener and the transports of all groups, and waits for
// what it has started. The groups should be closed before.
func (m *Mux) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.closed = true
	for c := range m.newcomers {
		_ = c.Close()
	}
	layers := make([]*layer, 0, len(m.groups))
	for _, l := range m.groups {
		layers = append(layers, l)
	}
	m.mu.Unlock()
	m.cancel()
	err := m.cfg.Listener.Close()
	for _, l := range layers {
		_ = l.trans.Close() // closes l
	}
	_ = m.rest.Close()
	m.work.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("transport: %w", err)
	}
	return nil
}
