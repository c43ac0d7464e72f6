package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
)

// forwardWait bounds the wait for the first bytes of the answer of another node.
const forwardWait = 30 * time.Second

// GateConfig is what a Gate is made with.
type GateConfig struct {
	// Ready returns nil when the node serves clients, itself or through another
	// node, else why not.
	Ready func() error
	// Opened is closed when the node is open: before, and for 5 seconds at most, requests
	// wait that are for more than health and metrics. Nil: it is open.
	Opened <-chan struct{}
	// Forward opens a connection to the node that serves, for a request that came on
	// client; nil: there are no others.
	Forward func(ctx context.Context, client net.Conn) (net.Conn, error)
	// Cluster returns who answers what is about the cluster, nil while nobody can; a nil
	// function: never.
	Cluster func() Cluster
	// Archive returns who makes backups of the node; a nil function: nobody.
	Archive func() Archive
	// Local returns who says how the node itself is; a nil function: whoever serves.
	Local func() Local
	// Gatherer is where /metrics comes from; nil is an empty page.
	Gatherer prometheus.Gatherer
	Log      zerolog.Logger
}

// Gate is the HTTP server of a node: it answers itself what concerns the node alone,
// health and metrics, and what any node can say of the cluster, and has all else answered by the Server of the node that
// serves, which may be another. Safe for concurrent use.
type Gate struct {
	cfg     GateConfig
	http    *http.Server
	local   *http.ServeMux
	proxy   *httputil.ReverseProxy
	serving atomic.Pointer[Server]
}

// NewGate returns a gate behind which nobody serves yet.
func NewGate(cfg GateConfig) *Gate {
	if cfg.Gatherer == nil {
		cfg.Gatherer = prometheus.NewRegistry()
	}
	g := &Gate{cfg: cfg, local: http.NewServeMux()}
	g.local.HandleFunc("GET /health/live", live)
	g.local.HandleFunc("GET /health/ready", g.ready)
	g.local.Handle("GET /metrics", promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{Timeout: readTimeout}))
	g.local.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if g.opened(w, r) {
			g.hand(w, r)
		}
	})
	g.http = newHTTP(http.HandlerFunc(g.route), cfg.Log)
	g.proxy = &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "serving"
			p.Out.Host = p.In.Host
		},
		Transport:      &http.Transport{DialContext: g.dial, DisableKeepAlives: true, ResponseHeaderTimeout: forwardWait, DisableCompression: true},
		ModifyResponse: forwarded,
		ErrorHandler:   g.unreachable,
		ErrorLog:       errorLog(cfg.Log),
	}
	return g
}

// Serving says who answers from now on; nil: another node, if any.
func (g *Gate) Serving(s *Server) { g.serving.Store(s) }

// Serve serves connections from l until Shutdown, then returns nil; else it
// returns why accepting ended.
func (g *Gate) Serve(l net.Listener) error {
	if err := g.http.Serve(callers{l}); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http listener %s: %w", l.Addr(), err)
	}
	return nil
}

// Shutdown stops accepting and waits up to 2 seconds for the requests under
// way; then, or when ctx is done first, they are cut and an error is returned.
func (g *Gate) Shutdown(ctx context.Context) error { return shutdown(ctx, g.http) }

// route keeps ServeMux away from paths below /api, which it would redirect.
func (g *Gate) route(w http.ResponseWriter, r *http.Request) {
	if isAPI(r) {
		if !g.opened(w, r) {
			return
		}
		if g.cfg.Archive != nil && isBackup(r) {
			g.answerError(w, r, backup(g.cfg.Archive(), w, r))
			return
		}
		if g.cfg.Local != nil && g.serving.Load() == nil && isLocalAlarms(r) {
			g.answerError(w, r, g.localAlarms(w, r))
			return
		}
		if g.cfg.Cluster != nil && isCluster(r) {
			if of := g.cfg.Cluster(); of != nil {
				g.clusterAPI(w, r, of)
				return
			}
		}
		g.hand(w, r)
		return
	}
	g.local.ServeHTTP(w, r)
}

// openWait is how long a request waits for the node to open.
const openWait = 5 * time.Second

// opened waits until the node is open; if that takes too long it answers the request, and
// returns false.
func (g *Gate) opened(w http.ResponseWriter, r *http.Request) bool {
	if g.cfg.Opened == nil {
		return true
	}
	timer := time.NewTimer(openWait)
	defer timer.Stop()
	select {
	case <-g.cfg.Opened:
		return true
	case <-timer.C:
	case <-r.Context().Done():
	}
	g.unreachable(w, r, g.cfg.Ready())
	return false
}

// hand has a request answered by the node that serves.
func (g *Gate) hand(w http.ResponseWriter, r *http.Request) {
	if s := g.serving.Load(); s != nil {
		s.handler.ServeHTTP(w, r)
		return
	}
	if g.cfg.Forward == nil {
		g.unreachable(w, r, g.cfg.Ready())
		return
	}
	body := &watchedBody{ReadCloser: r.Body}
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))
	r.Body = body
	g.proxy.ServeHTTP(w, r)
}

// bodyKey is where a request's context has its watchedBody.
type bodyKey struct{}

// watchedBody keeps why the body of a request that another node answers could not be
// read: that is the client's fault, and no other node's. Safe for concurrent use, as
// the transport reads it beside the handler.
type watchedBody struct {
	io.ReadCloser
	failed atomic.Pointer[error]
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.failed.Store(&err)
	}
	return n, err
}

func (g *Gate) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, ok := ctx.Value(callerKey{}).(*caller)
	if !ok {
		return nil, errors.New("a request without a connection")
	}
	return g.cfg.Forward(ctx, c.Conn)
}

// forwarded notes that another node has let the client in. OPTIONS is answered to
// anybody, whatever he shows.
func forwarded(r *http.Response) error {
	c, ok := r.Request.Context().Value(callerKey{}).(*caller)
	if ok && r.StatusCode < http.StatusMultipleChoices && r.Request.Method != http.MethodOptions && r.Request.Header.Get("Authorization") != "" {
		c.loggedIn()
	}
	return nil
}

func (g *Gate) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if body, ok := r.Context().Value(bodyKey{}).(*watchedBody); ok {
		if failed := body.failed.Load(); failed != nil {
			g.answerError(w, r, unread(*failed, largeBody))
			return
		}
	}
	reason := "no node serves now"
	if err != nil {
		reason += ": " + err.Error()
	}
	fail(w, http.StatusServiceUnavailable, "unavailable", reason)
}

// ready says whether clients of the node are served; else 503 and why not.
func (g *Gate) ready(w http.ResponseWriter, _ *http.Request) {
	if err := g.cfg.Ready(); err != nil {
		answer(w, http.StatusServiceUnavailable, health{Status: "failed", Reason: err.Error()})
		return
	}
	answer(w, http.StatusOK, health{Status: "ok"})
}
