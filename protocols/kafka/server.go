package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/kafka/group"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// Config is what a Server is made with. Zero fields have the defaults named.
type Config struct {
	// NodeID is this broker's id in metadata.
	NodeID int32
	// Brokers lists the nodes of the cluster; nil is this one alone. It is called for
	// requests and must be quick.
	Brokers func() []Broker
	// Node is this node's Raft name, and Leader the id of the one that serves, which is
	// quick; nil is this one.
	Node   string
	Leader func() int32
	// Spread has clients told of all nodes as leaders of partitions, each of some: they
	// share the work with the one that serves. Else all are that one's.
	Spread bool
	// Epoch is the leader epoch of all partitions (KIP-320): it rises with each change
	// of the node that serves; nil is 0. Batches in fetch answers carry it too.
	Epoch func() int32
	// Settings say whether and how topics are made on demand; nil is as broker's.
	Settings *broker.Settings
	// ClusterID names the cluster in metadata.
	ClusterID string
	// Advertise is the HOST:PORT that clients are told to connect to; empty is
	// the address that each client connected to.
	Advertise string
	// AdvertiseTLS is the same for clients that connect with TLS.
	AdvertiseTLS string
	// LoginTimeout is how long a peer may take, in all, until the first request
	// has come that is allowed to do something; 0 is 30 s.
	LoginTimeout time.Duration
	// MaxBatchBytes is the largest batch accepted; 0 is 1048588, Kafka's
	// max.message.bytes.
	MaxBatchBytes int
	// MaxFetchBytes is the most one fetch answers, whatever it asks for; 0 is
	// 8 MiB. One batch goes out even if it is larger.
	MaxFetchBytes int
	// RequestMemory is how many bytes of requests over 1 MiB may be held at one
	// time; 0 is 256 MiB, and the least is one request of the largest size.
	RequestMemory int64
	// FetchMemory is how many bytes of fetch answers may be held at one time
	// before further ones are kept small; 0 is 256 MiB.
	FetchMemory int64
	// Groups bounds the consumer groups.
	Groups group.Limits
	Log    zerolog.Logger
}

func (cfg *Config) defaults() {
	if cfg.LoginTimeout <= 0 {
		cfg.LoginTimeout = loginTimeout
	}
	if cfg.MaxBatchBytes <= 0 {
		cfg.MaxBatchBytes = 1048588
	}
	if cfg.MaxFetchBytes <= 0 {
		cfg.MaxFetchBytes = 8 << 20
	}
	if cfg.RequestMemory <= 0 {
		cfg.RequestMemory = 256 << 20
	}
	if cfg.FetchMemory <= 0 {
		cfg.FetchMemory = 256 << 20
	}
	if cfg.Leader == nil {
		cfg.Leader = func() int32 { return cfg.NodeID }
	}
	if cfg.Epoch == nil {
		cfg.Epoch = func() int32 { return 0 }
	}
	if cfg.Settings == nil {
		cfg.Settings = broker.DefaultSettings()
	}
	cfg.RequestMemory = max(cfg.RequestMemory, maxFrame)
}

// Server serves Kafka clients. Safe for concurrent use.
type Server struct {
	cfg     Config
	node    node
	auto    broker.Settings // whether and how topics are made on demand
	plain   endpoint        // advertised; empty = the address each client connected to
	secure  endpoint        // the same for clients with TLS
	groups  *group.Coordinator
	views   coordinators
	watch   sync.WaitGroup      // of views
	memory  *semaphore.Weighted // bytes of large requests held
	decoded *semaphore.Weighted // bytes of large requests being handled, decoded
	fetches *semaphore.Weighted // bytes of fetch answers held
	inflate chan struct{}       // one place per batch being decompressed
	buffers bufferPool
	conns   listener.Group
	faults  zerolog.Logger  // of clients that break the rules; not more than faultLines
	ctx     context.Context // done when connections are cut
	cut     context.CancelFunc
	drain   context.Context // done when connections should finish
	finish  context.CancelFunc
}

// NewServer returns a server on e. It fails when cfg.Advertise is not an address that
// clients could connect to. Shutdown ends it.
func NewServer(e *edge.Edge, cfg Config) (*Server, error) { return newServer(edgeNode{e}, cfg) }

func newServer(n node, cfg Config) (*Server, error) {
	cfg.defaults()
	s := &Server{cfg: cfg, node: n, auto: *cfg.Settings, inflate: make(chan struct{}, runtime.GOMAXPROCS(0))}
	var err error
	if s.plain, err = parseAdvertise(cfg.Advertise); err != nil {
		return nil, err
	}
	if s.secure, err = parseAdvertise(cfg.AdvertiseTLS); err != nil {
		return nil, err
	}
	s.faults = cfg.Log.Sample(&zerolog.BurstSampler{Burst: faultLines, Period: time.Minute})
	s.memory = semaphore.NewWeighted(cfg.RequestMemory)
	s.decoded = semaphore.NewWeighted(decodedMemory)
	s.fetches = semaphore.NewWeighted(cfg.FetchMemory)
	s.ctx, s.cut = context.WithCancel(context.Background())
	s.drain, s.finish = context.WithCancel(context.Background())
	s.groups = group.NewCoordinator(cfg.Groups, memberships{s})
	s.views.srv, s.views.stale = s, make(chan struct{}, 1)
	s.watch.Go(func() { s.views.watch(s.drain) })
	return s, nil
}

// endpoint is where clients connect.
type endpoint struct {
	host string
	port int32
}

// parseAdvertise checks an address to advertise: a wildcard reaches nobody.
func parseAdvertise(addr string) (e endpoint, err error) {
	if addr == "" {
		return e, nil
	}
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return e, fmt.Errorf("kafka advertise %q: %w", addr, err)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return e, fmt.Errorf("kafka advertise %q: port must be 1 to 65535", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return e, fmt.Errorf("kafka advertise %q: a wildcard address cannot be advertised", addr)
	}
	return endpoint{host, int32(n)}, nil
}

// Serve serves connections from l until Shutdown, then returns nil; else it
// returns why accepting ended. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error {
	if err := s.conns.Serve(l, s.serve); err != nil {
		return fmt.Errorf("kafka listener %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting and reading, answers what is under way, and waits
// for every connection to end; when ctx is done first they are cut and its
// error is returned. Nothing of the server runs afterwards.
func (s *Server) Shutdown(ctx context.Context) error {
	s.finish()
	s.watch.Wait()
	s.groups.Close() // answers the members that wait in a rebalance
	stop := context.AfterFunc(ctx, s.cut)
	err := s.conns.Shutdown(ctx)
	stop()
	s.cut()
	if err != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("kafka shutdown: connections cut: %w", err)
	}
	return err
}

// advertised returns the address that the client of nc should connect to.
func (s *Server) advertised(nc net.Conn) (host string, port int32) {
	e := s.plain
	if listener.Secure(nc) {
		e = s.secure
	}
	if e.host != "" {
		return e.host, e.port
	}
	host, p, err := net.SplitHostPort(nc.LocalAddr().String())
	if err != nil {
		return nc.LocalAddr().String(), 0 // not TCP: no client will ask
	}
	n, _ := strconv.ParseUint(p, 10, 16) // a local address has a valid port
	return host, int32(n)
}

// faultLines is how many closed connections are logged in a minute because of
// what their clients sent.
const faultLines = 20
