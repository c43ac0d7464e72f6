package amqp

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// protocol is the front-end's name in listings and metrics.
const protocol = "amqp"

// Defaults of Config.
const (
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultHeartbeat        = 60 * time.Second
	DefaultFrameMax         = 131072
	DefaultChannelMax       = 2047
	DefaultMaxMessage       = 16 << 20
	DefaultFailureDelay     = 3 * time.Second
	DefaultOutTotal         = 256 << 20
	DefaultInTotal          = 512 << 20
	DefaultBlockedBuffer    = 4 << 20

	preAuthFrameMax = 8192      // of frames before the login has succeeded
	hardMaxMessage  = 512 << 20 // an announced body above this is no message but an attack
	closeTimeout    = 3 * time.Second
	settleTime      = 5 * time.Second // for publishes under way when the client closes
)

// Config is what a Server is made from. Zero values mean the defaults.
type Config struct {
	Edge    *edge.Edge
	Logger  zerolog.Logger
	Version string // shown to clients

	HandshakeTimeout time.Duration // from accept to connection.open
	Heartbeat        time.Duration // proposed to clients, whole seconds
	FrameMax         int           // bytes, overhead included
	ChannelMax       int
	MaxMessage       int           // bytes of body
	FailureDelay     time.Duration // before a refused login is closed without an answer
	// OutTotal is how many bytes may wait for all clients together. Beyond it
	// each has 64 KiB, those with larger messages nothing, or if they have read so
	// far one, and one that does not read 128 KiB in 15 seconds is cut off.
	OutTotal int
	// InTotal is how many bytes of bodies that are not whole yet all clients
	// together may have sent. Beyond it they are not read for up to 2 seconds,
	// then closed (506).
	InTotal int
	// BlockedBuffer is how many bytes of publishes are kept for a client while an
	// alarm holds them up; they count against InTotal. One message may exceed it.
	BlockedBuffer int
}

func (c *Config) setDefaults() {
	set(&c.HandshakeTimeout, DefaultHandshakeTimeout)
	set(&c.Heartbeat, DefaultHeartbeat)
	set(&c.FrameMax, DefaultFrameMax)
	set(&c.ChannelMax, DefaultChannelMax)
	set(&c.MaxMessage, DefaultMaxMessage)
	set(&c.FailureDelay, DefaultFailureDelay)
	set(&c.OutTotal, DefaultOutTotal)
	set(&c.InTotal, DefaultInTotal)
	set(&c.BlockedBuffer, DefaultBlockedBuffer)
}

func set[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Server speaks AMQP on the listeners it is given. Safe for concurrent use.
type Server struct {
	cfg     Config
	backend backend
	log     zerolog.Logger
	running listener.Group
	out, in *listener.Memory // of Config.OutTotal and InTotal

	mu       sync.Mutex
	conns    map[*conn]struct{}
	stopping bool
}

// NewServer makes a server; it does nothing until Serve.
func NewServer(cfg Config) *Server { return newServer(cfg, node{cfg.Edge}) }

func newServer(cfg Config, b backend) *Server {
	cfg.setDefaults()
	return &Server{
		cfg: cfg, backend: b, log: cfg.Logger, conns: make(map[*conn]struct{}),
		out: listener.NewMemory(cfg.OutTotal), in: listener.NewMemory(cfg.InTotal),
	}
}

// Serve accepts connections from l, which it closes, until Shutdown (then it
// returns nil) or until l fails. Errors that pass are l's to outlive, as those
// of listener.Listener do.
func (s *Server) Serve(l net.Listener) error { return s.running.Serve(l, s.handle) }

// Shutdown stops accepting, tells every client to go (320) and waits until all
// have gone; once ctx is done the rest is cut off. It leaves nothing running.
// The edge must still work.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for c := range s.conns {
		c.forceClose("broker forced connection closure with reason 'shutdown'")
	}
	s.mu.Unlock()
	return s.running.Shutdown(ctx)
}

// handle runs one connection.
func (s *Server) handle(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	stopping := s.stopping
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	if !stopping {
		c.run()
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}
