// Package admin is the HTTP front-end: health, metrics, and the management API
// in the shape of RabbitMQ's (rabbitmq-management 3.13), so that dashboards and
// scripts written for it work. One file per resource; resources.go is the table
// of routes.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// Bounds of a request.
const (
	maxHeader     = 16 << 10
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute
	// drainTime is how long the end waits for requests under way, and for
	// connections that have not brought one yet.
	drainTime = 2 * time.Second
)

// Listener is one listening socket of the node, as the overview shows it.
type Listener struct {
	Protocol string // "amqp", "mqtt", "kafka", "http"
	Address  net.Addr
}

// Config is what a Server is made with.
type Config struct {
	// Name is the node's name in answers; empty is trivium@<node id>.
	Name string
	// Cluster is the cluster's name in answers; empty is the node's.
	Cluster string
	// Listeners returns the listening sockets; nil is none.
	Listeners func() []Listener
	// Peers returns the nodes of the cluster, this one among them; nil is this one alone.
	Peers func() []kernel.ClusterNode
	// Mapper reads and shows arguments and messages.
	Mapper Mapper
	// Gatherer is where /metrics comes from; nil is an empty page.
	Gatherer prometheus.Gatherer
	Log      zerolog.Logger
}

// Server serves HTTP clients. Safe for concurrent use.
type Server struct {
	node    Node
	cfg     Config
	http    *http.Server
	handler http.Handler
	table   table
	bodies  bodies
	rates   rates

	naming sync.Once
	own    string // by id
}

// NewServer returns a server on n.
func NewServer(n Node, cfg Config) *Server {
	if cfg.Gatherer == nil {
		cfg.Gatherer = prometheus.NewRegistry()
	}
	s := &Server{node: n, cfg: cfg, table: newTable(resources), bodies: newBodies()}
	s.handler = s.routes()
	s.http = newHTTP(s.handler, cfg.Log)
	return s
}

// newHTTP returns an HTTP server with the bounds of this package.
func newHTTP(h http.Handler, log zerolog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: errorLog(log),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withCaller(context.WithValue(ctx, remoteKey{}, c.RemoteAddr()), c)
		},
	}
}

// routes is the table of all resources.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", live)
	mux.HandleFunc("GET /health/ready", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{Timeout: readTimeout}))
	mux.HandleFunc("/", notFound)
	// Paths below /api are taken apart by hand: ServeMux takes a segment %2F for a
	// slash, and would redirect.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAPI(r) {
			s.api(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

func notFound(w http.ResponseWriter, _ *http.Request) {
	fail(w, errNotFound.status, errNotFound.kind, errNotFound.reason)
}

// Serve serves connections from l until Shutdown, then returns nil; else it
// returns why accepting ended.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(callers{l}); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http listener %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting and waits up to 2 seconds for the requests under
// way; then, or when ctx is done first, they are cut and an error is returned.
func (s *Server) Shutdown(ctx context.Context) error { return shutdown(ctx, s.http) }

func shutdown(ctx context.Context, s *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close() // Shutdown's error says more
		return fmt.Errorf("http shutdown: connections cut: %w", err)
	}
	return nil
}

type remoteKey struct{}
