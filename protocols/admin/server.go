// Package admin is the HTTP front-end: health, metrics, and a part of the
// management API in the shape of RabbitMQ's (rabbitmq-management 3.13), so that
// dashboards and scripts written for it work. One file per resource.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Bounds of a request.
const (
	maxHeader     = 16 << 10
	maxBody       = 64 << 10
	headerTimeout = 5 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute
	// drainTime is how long the end waits for requests under way, and for
	// connections that have not brought one yet.
	drainTime = 2 * time.Second
	// failureDelay slows down guessing of passwords.
	failureDelay = time.Second
)

// Node is what the front-end asks of the broker.
type Node interface {
	Authenticate(tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	HasTenant(tenant string) bool
	Counters(p kernel.Protocol) *broker.Counters
	Overview() broker.Overview
	QueueStatuses() []broker.QueueStatus
	Ready() error
}

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
	// Gatherer is where /metrics comes from; nil is an empty page.
	Gatherer prometheus.Gatherer
	Log      zerolog.Logger
}

// Server serves HTTP clients. Safe for concurrent use.
type Server struct {
	node  Node
	cfg   Config
	http  *http.Server
	rates rates
}

// NewServer returns a server on n.
func NewServer(n Node, cfg Config) *Server {
	if cfg.Gatherer == nil {
		cfg.Gatherer = prometheus.NewRegistry()
	}
	s := &Server{node: n, cfg: cfg}
	s.http = &http.Server{
		Handler:           http.MaxBytesHandler(s.routes(), maxBody),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ErrorLog: errorLog(cfg.Log),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, remoteKey{}, c.RemoteAddr())
		},
	}
	return s
}

// routes is the table of all resources.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/live", s.live)
	mux.HandleFunc("GET /health/ready", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Gatherer, promhttp.HandlerOpts{Timeout: readTimeout}))
	mux.HandleFunc("GET /api/overview", s.authorized(s.overview))
	mux.HandleFunc("GET /api/queues", s.authorized(s.queues))
	mux.HandleFunc("GET /api/queues/", s.authorized(s.queuesBelow))
	mux.HandleFunc("/", notFound)
	return mux
}

// Serve serves connections from l until Shutdown, then returns nil; else it
// returns why accepting ended.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http listener %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting and waits up to 2 seconds for the requests under
// way; then, or when ctx is done first, they are cut and an error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // Shutdown's error says more
		return fmt.Errorf("http shutdown: connections cut: %w", err)
	}
	return nil
}

type remoteKey struct{}

// authorized lets a request through that carries a user's name and password.
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		remote, _ := r.Context().Value(remoteKey{}).(net.Addr)
		user, password, ok := r.BasicAuth()
		if !ok {
			unauthorized(w, "a user name and password are needed")
			return
		}
		if _, err := s.node.Authenticate("", user, password, remote); err != nil {
			s.node.Counters("http").Refused.Add(1)
			s.cfg.Log.Info().Err(err).Stringer("peer", remote).Msg("http authentication failed")
			select {
			case <-time.After(failureDelay):
			case <-r.Context().Done():
			}
			unauthorized(w, "Login failed")
			return
		}
		next(w, r)
	}
}

func unauthorized(w http.ResponseWriter, reason string) {
	w.Header().Set("WWW-Authenticate", `Basic realm="Trivium"`)
	fail(w, http.StatusUnauthorized, "not_authorized", reason)
}

func notFound(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "method_not_allowed", "this API can only be read")
		return
	}
	fail(w, http.StatusNotFound, "Object Not Found", "Not Found")
}

// fail answers in the shape of RabbitMQ's errors.
func fail(w http.ResponseWriter, status int, kind, reason string) {
	answer(w, status, struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}{kind, reason})
}

func answer(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // only if a type here cannot be marshalled: a defect
		status, b = http.StatusInternalServerError, []byte(`{"error":"internal"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the peer has gone
}
