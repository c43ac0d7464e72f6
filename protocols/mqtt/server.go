package mqtt

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
const protocol = "mqtt"

// Limits bound what one connection may use. Zero fields have the default.
type Limits struct {
	// ConnectTimeout is how long a client may take to send CONNECT (10 s).
	ConnectTimeout time.Duration
	// WriteTimeout is how long 128 KiB may take to go out (30 s).
	WriteTimeout time.Duration
	// MaximumPacketSize is the largest packet accepted after CONNECT, in bytes
	// (16 MiB); before it, 64 KiB.
	MaximumPacketSize int
	// ReceiveMaximum is how many QoS 1 publishes a client may have
	// unacknowledged (4,096). Version 5 clients are told; 3.1.1 clients are not
	// read while they have that many.
	ReceiveMaximum int
	// InFlight is how many QoS 1 deliveries a version 5 client may have
	// unacknowledged, if its Receive Maximum allows (1,024).
	InFlight int
	// InFlight311 is the same for 3.1.1 clients, which cannot say (256).
	InFlight311 int
	// TopicAliases is the largest topic alias a client may use (64).
	TopicAliases int
	// OutBuffer is how many bytes may wait for a slow client before QoS 0
	// messages to it are dropped (1 MiB).
	OutBuffer int
	// OutTotal is how many bytes may wait for all clients together (256 MiB).
	// Beyond it each connection has 64 KiB.
	OutTotal int
	// InTotal is how many bytes of packets over 64 KiB that are not whole yet all
	// clients together may have sent (256 MiB). Beyond it they are not read for up
	// to 2 seconds, then disconnected (0x97).
	InTotal int
	// LiveBuffer is how many bytes of session-less QoS 1 messages may wait for
	// the client's acknowledgements before their publishers wait (1 MiB).
	LiveBuffer int
	// KeepAlive is the longest keep alive accepted, in seconds; longer ones and
	// 0 are lowered to it, by telling version 5 clients. 0: no limit.
	KeepAlive uint16
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	if l.ConnectTimeout <= 0 {
		l.ConnectTimeout = 10 * time.Second
	}
	if l.WriteTimeout <= 0 {
		l.WriteTimeout = 30 * time.Second
	}
	set(&l.MaximumPacketSize, 16<<20)
	set(&l.ReceiveMaximum, 4096)
	set(&l.InFlight, 1024)
	set(&l.InFlight311, 256)
	set(&l.TopicAliases, 64)
	set(&l.OutBuffer, 1<<20)
	set(&l.OutTotal, 256<<20)
	set(&l.InTotal, 256<<20)
	set(&l.LiveBuffer, 1<<20)
	l.ReceiveMaximum = min(l.ReceiveMaximum, 65535)
	l.InFlight = min(l.InFlight, maxInFlight)
	l.InFlight311 = min(l.InFlight311, maxInFlight)
	l.TopicAliases = min(l.TopicAliases, 65535)
	return l
}

// Config is what a Server is made from.
type Config struct {
	Edge   *edge.Edge
	Logger zerolog.Logger
	Limits Limits
	// CertificateFirst lets a client's certificate name the user even when
	// CONNECT has a user name.
	CertificateFirst bool
}

// Server serves MQTT on any number of listeners. Safe for concurrent use.
type Server struct {
	node   node
	limits Limits
	log    zerolog.Logger
	conns  listener.Group
	// certificateFirst is Config.CertificateFirst.
	certificateFirst bool
	queued           *listener.Memory // bytes that wait for clients, to accountStep per connection
	inbound          *listener.Memory // bytes of Limits.InTotal

	mu       sync.Mutex
	open     map[*conn]struct{}
	stopping bool
}

// NewServer returns a server that has no listener yet.
func NewServer(c Config) *Server {
	s := newServer(edgeNode{c.Edge}, c.Limits, c.Logger)
	s.certificateFirst = c.CertificateFirst
	return s
}

func newServer(n node, l Limits, log zerolog.Logger) *Server {
	s := &Server{node: n, limits: l.withDefaults(), log: log, open: map[*conn]struct{}{}}
	s.queued = listener.NewMemory(s.limits.OutTotal)
	s.inbound = listener.NewMemory(s.limits.InTotal)
	return s
}

// Serve accepts connections from l, which it closes, until Shutdown (then it
// returns nil) or until l fails. Errors that pass are l's to outlive, as those
// of listener.Listener do.
func (s *Server) Serve(l net.Listener) error { return s.conns.Serve(l, s.handle) }

// Shutdown ends the server: it accepts no more, publishes of clients that are
// under way are acknowledged for up to two seconds, clients are disconnected
// (0x8B), which publishes their wills. It returns when nothing of it runs any
// more; once ctx is done the connections are cut. The edge must still work.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for c := range s.open {
		c.stop()
	}
	s.mu.Unlock()
	return s.conns.Shutdown(ctx)
}

func (s *Server) handle(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		return
	}
	s.open[c] = struct{}{}
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
}
