package transport

import (
	"context"
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

const (
	// helloTimeout is how long a new connection may take to say what it is, and to
	// be admitted or refused.
	helloTimeout = 5 * time.Second

	// These bound the connections that wait to be accepted by a group, or by whoever
	// serves their kind.
	groupBacklog  = 16
	rpcBacklog    = 64
	tunnelBacklog = 512
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

	// Self is who this node is; nil says nothing. It is asked for each connection.
	Self func() Identity

	// Admit looks at a new connection and its hello before it is given to anybody. An
	// error is the answer, a [*Refusal] with its code; the context ends when the other
	// side need not wait any more. Nil lets all pass.
	Admit func(ctx context.Context, c net.Conn, h Hello) error

	// Verify looks at who has answered a hello of this node, and has refused it or not.
	// An error ends the connection. Nil believes all.
	Verify func(ctx context.Context, c net.Conn, h Hello, who Identity, refused *Refusal) error

	// Resolve returns the present address of a node by its Raft id. Nil, or an error,
	// means the address in the group's configuration.
	Resolve func(raftID string) (string, error)

	// Witness is told what peers have promised, nil = nobody.
	Witness Witness

	// Timeout of calls to peers; default 10 s.
	Timeout time.Duration

	Logger zerolog.Logger
}

// Mux carries all that nodes say to each other over one port: their Raft groups,
// and connections of other kinds, which it hands on.
type Mux struct {
	cfg    MuxConfig
	work   sync.WaitGroup
	fresh  *newcomers
	kinds  map[Kind]*queue
	cancel context.CancelFunc
	ctx    context.Context

	mu     sync.Mutex
	groups map[uint32]*layer
	closed bool
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
		cfg:   cfg,
		fresh: newNewcomers(maxNewcomers),
		kinds: map[Kind]*queue{
			KindRPC: newQueue(cfg.Listener.Addr(), rpcBacklog), KindTunnel: newQueue(cfg.Listener.Addr(), tunnelBacklog),
			KindClient: newQueue(cfg.Listener.Addr(), rpcBacklog),
		},
		groups: map[uint32]*layer{},
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.work.Go(m.accept)
	return m
}

// Listener gives the connections of a kind other than KindGroup; each is a [*Conn].
// Until it is accepted from, a few of them wait and the others are closed.
func (m *Mux) Listener(k Kind) net.Listener { return m.kinds[k] }

// Conn is a connection that a peer has made, and what it has said first.
type Conn struct {
	net.Conn
	Hello Hello
}

// NetConn returns the connection below: a socket, or a TLS connection.
func (c *Conn) NetConn() net.Conn { return c.Conn }

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
	l := &layer{queue: newQueue(address(m.cfg.Advertise), groupBacklog), mux: m, id: id, conns: map[*conn]struct{}{}}
	m.groups[id] = l
	l.trans = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Logger:                  hclog.NewNullLogger(), // what matters, Raft itself says too
		Stream:                  l,
		MaxPool:                 3,
		MaxRPCsInFlight:         2,
		Timeout:                 m.cfg.Timeout,
		MsgpackUseNewTimeFormat: true,
	})
	return &serial{NetworkTransport: l.trans, group: id, resolve: m.cfg.Resolve, witness: m.cfg.Witness}, nil
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
		if !m.fresh.add(c) {
			_ = c.Close() // too many of which nobody has got anywhere, or the end
			continue
		}
		m.work.Go(func() { m.welcome(c) })
	}
}

// welcome finds out whom a connection is for.
func (m *Mux) welcome(c net.Conn) {
	err := m.assign(c)
	m.fresh.remove(c)
	if err != nil {
		_ = c.Close()
		m.cfg.Logger.Debug().Err(err).Stringer("peer", c.RemoteAddr()).Msg("connection refused")
	}
}

func (m *Mux) assign(c net.Conn) error {
	ctx, cancel := context.WithTimeout(m.ctx, helloTimeout)
	defer cancel()
	if err := c.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	if h, ok := c.(interface{ HandshakeContext(context.Context) error }); ok {
		if err := errors.Join(h.HandshakeContext(ctx), m.fresh.proved(c)); err != nil {
			return err
		}
	}
	h, err := readHello(c)
	if err := errors.Join(err, m.fresh.proved(c)); err != nil {
		return err
	}
	take, refused := m.taker(h)
	if refused == nil && m.cfg.Admit != nil {
		refused = m.cfg.Admit(ctx, c, h)
	}
	if err := errors.Join(refused, writeAnswer(c, m.self(), refused), c.SetDeadline(time.Time{})); err != nil {
		return err
	}
	return take(&Conn{c, h})
}

// taker returns who takes a connection.
func (m *Mux) taker(h Hello) (func(*Conn) error, error) {
	if h.Kind == KindGroup {
		m.mu.Lock()
		l := m.groups[h.Group]
		m.mu.Unlock()
		if l == nil {
			return nil, &Refusal{Code: CodeNoGroup, Reason: fmt.Sprintf("there is no group %d here", h.Group)}
		}
		return l.take, nil
	}
	q := m.kinds[h.Kind]
	if q == nil {
		return nil, &Refusal{Code: CodeOther, Reason: fmt.Sprintf("connections of kind %d are not known here", h.Kind)}
	}
	return func(c *Conn) error { return q.put(c) }, nil
}

func (m *Mux) self() Identity {
	if m.cfg.Self == nil {
		return Identity{}
	}
	return m.cfg.Self()
}

// Dial connects to a node, says hello and returns who has answered. The hello is
// sent as from this node. An answer that it is not wanted is a [*Refusal]; who has
// given it is returned as well.
func (m *Mux) Dial(ctx context.Context, addr string, h Hello) (net.Conn, Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	c, err := m.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, Identity{}, err
	}
	hurry := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	h.From = m.self()
	err = writeHello(c, h)
	var who Identity
	if err == nil {
		who, err = readAnswer(c)
	}
	if !hurry() {
		err = errors.Join(err, ctx.Err())
	} else if errors.Is(err, io.EOF) {
		err = fmt.Errorf("the connection was closed without an answer, as by a node that has certificates if this one has none: %w", err)
	}
	refused, _ := errors.AsType[*Refusal](err)
	if m.cfg.Verify != nil && (err == nil || refused != nil) {
		if bad := m.cfg.Verify(ctx, c, h, who, refused); bad != nil {
			err = bad // nobody to believe
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, who, fmt.Errorf("%s: %w", addr, err)
	}
	return c, who, nil
}

// Close closes the listener and the transports of all groups, and waits for
// what it has started. The groups should be closed before.
func (m *Mux) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.closed = true
	layers := make([]*layer, 0, len(m.groups))
	for _, l := range m.groups {
		layers = append(layers, l)
	}
	m.mu.Unlock()
	m.cancel()
	err := m.cfg.Listener.Close()
	m.fresh.close()
	for _, l := range layers {
		_ = l.trans.Close() // closes l
	}
	for _, q := range m.kinds {
		_ = q.Close()
	}
	m.work.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("transport: %w", err)
	}
	return nil
}
