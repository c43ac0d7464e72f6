package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/listener"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode stands for a broker where figures have to be known.
type fakeNode struct {
	Node
	notReady  error
	published uint64
	counters  broker.Counters
	alarms    broker.Alarms
}

func (n *fakeNode) Login(_ context.Context, user, password string, remote net.Addr) (*kernel.User, error) {
	if user != "guest" || password != "guest" || remote == nil {
		return nil, kernel.Errorf(kernel.CodeAccessRefused, "user", user, "wrong password")
	}
	return &kernel.User{Name: user, Tags: []string{kernel.TagAdministrator}}, nil
}

func (n *fakeNode) MayEnter(kernel.Identity) error { return nil }
func (n *fakeNode) Members() []broker.MemberStatus { return nil }
func (n *fakeNode) Tenants() []kernel.Tenant       { return []kernel.Tenant{{Name: "/"}, {Name: "other"}} }

func (n *fakeNode) QueuePolicies(*broker.QueueStatus) broker.QueuePolicies {
	return broker.QueuePolicies{}
}

func (n *fakeNode) Connection(id kernel.ConnectionID) (broker.ConnectionStatus, error) {
	return broker.ConnectionStatus{ID: id}, nil
}

func (n *fakeNode) QueueStatus(tenant, name string) (broker.QueueStatus, bool) {
	for _, q := range n.QueueStatuses() {
		if q.Address.Tenant == tenant && queueName(&q) == name {
			return q, true
		}
	}
	return broker.QueueStatus{}, false
}

func (n *fakeNode) Counters(kernel.Protocol) *broker.Counters { return &n.counters }

func (n *fakeNode) HasTenant(t string) bool { return t == "/" || t == "other" }
func (n *fakeNode) Ready() error            { return n.notReady }
func (n *fakeNode) Present() *broker.Alarms { return &n.alarms }

func (n *fakeNode) Overview() broker.Overview {
	return broker.Overview{
		NodeID: "1", Version: "0.1.0", Started: time.Now().Add(-time.Minute), Exchanges: 5, Queues: 3, Connections: 2, Members: 4,
		Ready: 7, Held: 1, Protocols: map[kernel.Protocol]*broker.Counters{"amqp": &n.counters},
	}
}

func (n *fakeNode) QueueStatuses() []broker.QueueStatus {
	return []broker.QueueStatus{
		{Address: kernel.QueueAddress("/", "a"), Queue: &kernel.Queue{AutoDelete: true, Exclusive: true}, Volatile: true},
		{Address: kernel.QueueAddress("/", "b/c"), Queue: &kernel.Queue{Type: kernel.Quorum, Durable: true, Arguments: []kernel.Argument{
			{Name: "x-queue-type", Value: "quorum"}, {Name: "x-raw", Value: kernel.Raw("\x01")},
		}}, Info: broker.QueueInfo{Ready: 5, Held: 2, Members: 1}, Published: n.published, Delivered: 3, Settled: 1},
		{Address: kernel.GroupAddress{Tenant: "other", Group: "workers", Topic: "s/#", Kind: kernel.Filter}},
	}
}

func start(t *testing.T, n *fakeNode) string {
	t.Helper()
	l, err := listener.Listen("127.0.0.1:0", listener.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "trivium_test_total"})
	registry.MustRegister(c)
	s := NewServer(n, Config{Mapper: amqp.Mapper{}, Gatherer: registry, Log: zerolog.Nop(), Listeners: func() []Listener {
		return []Listener{{"http", l.Addr()}}
	}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// get asks for a path as guest and returns status and body.
func get(t *testing.T, base, path string) (int, string) {
	t.Helper()
	return do(t, http.MethodGet, base+path, "guest", "guest")
}

func do(t *testing.T, method, url, user, password string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode == http.StatusUnauthorized && resp.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	return resp.StatusCode, string(b)
}

// TestShutdownWithIdleClient: a connection that never asks for anything does
// not hold the end up.
func TestShutdownWithIdleClient(t *testing.T) { synctest.Test(t, testShutdownWithIdleClient) }

func testShutdownWithIdleClient(t *testing.T) {
	s := NewServer(&fakeNode{}, Config{Log: zerolog.Nop()})
	near, far := net.Pipe()
	defer near.Close()
	l := &once{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- far
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	synctest.Wait()
	begin := time.Now()
	if err := s.Shutdown(t.Context()); err == nil {
		t.Error("the idle connection was not cut")
	}
	if took := time.Since(begin); took > drainTime {
		t.Errorf("it took %v", took)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// once is a listener on which one client comes.
type once struct {
	conn   chan net.Conn
	closed chan struct{}
	close  sync.Once
}

func (l *once) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *once) Close() error   { l.close.Do(func() { close(l.closed) }); return nil }
func (l *once) Addr() net.Addr { return &net.TCPAddr{} }

func TestStatus(t *testing.T) {
	n := &fakeNode{}
	base := start(t, n)
	for _, c := range []struct {
		method, path, user, password string
		want                         int
		contains                     string
	}{
		{"GET", "/health/live", "", "", 200, `"ok"`},
		{"GET", "/health/ready", "", "", 200, `"ok"`},
		{"GET", "/metrics", "", "", 200, "trivium_test_total 0"},
		{"GET", "/api/overview", "", "", 401, "not_authorized"},
		{"GET", "/api/overview", "guest", "wrong", 401, "Login failed"},
		{"GET", "/api/overview", "guest", "guest", 200, `"product_name":"Trivium"`},
		{"GET", "/api/queues", "guest", "guest", 200, `"name":"a"`},
		{"GET", "/api/queues/%2F", "guest", "guest", 200, `"name":"a"`},
		{"GET", "/api/queues/none", "guest", "guest", 404, "Not Found"},
		{"GET", "/api/queues/%2f/a", "guest", "guest", 200, `"exclusive":true`},
		{"GET", "/api/queues/%2F/b%2Fc", "guest", "guest", 200, `"type":"quorum"`},
		{"GET", "/api/queues/%2F/none", "guest", "guest", 404, "Object Not Found"},
		{"GET", "/api/queues/other/$share%2Fworkers%2Fs%2F%23", "guest", "guest", 200, `"vhost":"other"`},
		{"GET", "/api/nothing", "guest", "guest", 404, "Not Found"},
		{"GET", "/", "", "", 404, "Not Found"},
		{"PATCH", "/api/queues/%2F/a", "guest", "guest", 405, "method_not_allowed"},
		{"GET", "/api/queues?page=0", "guest", "guest", 400, "invalid_pagination_parameters"},
		{"GET", "/api/queues?page=1&page_size=501", "guest", "guest", 400, "invalid_pagination_parameters"},
		{"GET", "/api/queues?page=x", "guest", "guest", 400, "Pagination parameters are invalid"},
		{"GET", "/api/queues?page=9", "guest", "guest", 400, "Page out of range, page: 9 page size: 100, len: 3"},
		{"GET", "/api/queues?name=(&use_regex=true", "guest", "guest", 400, "regular expression"},
	} {
		status, body := do(t, c.method, base+c.path, c.user, c.password)
		if status != c.want || !strings.Contains(body, c.contains) {
			t.Errorf("%s %s as %q: %d %s, want %d with %s", c.method, c.path, c.user, status, body, c.want, c.contains)
		}
	}
	if n := n.counters.Refused.Load(); n != 1 {
		t.Errorf("%d refused logins counted", n)
	}
	n.notReady = errors.New("the log is being replayed")
	if status, body := get(t, base, "/health/ready"); status != 503 || !strings.Contains(body, "replayed") {
		t.Errorf("not ready: %d %s", status, body)
	}
}

func TestQueueShape(t *testing.T) {
	base := start(t, &fakeNode{published: 10})
	_, body := get(t, base, "/api/queues/%2F/b%2Fc")
	var q map[string]any
	if err := json.Unmarshal([]byte(body), &q); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"name": "b/c", "vhost": "/", "durable": true, "auto_delete": false, "exclusive": false, "type": "quorum", "state": "running",
		"messages": 7.0, "messages_ready": 5.0, "messages_unacknowledged": 2.0, "consumers": 1.0, "node": "trivium@1", "policy": nil,
	} {
		if got, ok := q[field]; !ok || got != want {
			t.Errorf("%s = %v, want %v", field, got, want)
		}
	}
	if stats := q["message_stats"].(map[string]any); stats["publish"] != 10.0 || stats["ack"] != 1.0 {
		t.Errorf("message_stats %v", stats)
	}
	if args := q["arguments"].(map[string]any); args["x-queue-type"] != "quorum" {
		t.Errorf("arguments %v", args)
	}
	_, body = get(t, base, "/api/queues?page=1&page_size=2&columns=name,message_stats.publish_details.rate")
	want := `{"filtered_count":3,"item_count":2,"items":[{"message_stats":{"publish_details":{"rate":0}},"name":"a"},` +
		`{"message_stats":{"publish_details":{"rate":0}},"name":"b/c"}],"page":1,"page_count":2,"page_size":2,"total_count":3}`
	if body != want {
		t.Errorf("page:\n%s\nwant\n%s", body, want)
	}
	if _, body = get(t, base, "/api/queues?name=%5Ea&use_regex=true&columns=name"); body != `[{"name":"a"}]` {
		t.Errorf("by regular expression: %s", body)
	}
}

func TestOverviewShape(t *testing.T) {
	n := &fakeNode{}
	n.counters.In.Store(12)
	base := start(t, n)
	_, body := get(t, base, "/api/overview")
	var o overview
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		t.Fatal(err)
	}
	if o.ObjectTotals.Queues != 3 || o.QueueTotals.Messages != 8 || o.MessageStats.Publish != 12 || o.ManagementVersion == "" ||
		len(o.Listeners) != 1 || o.Listeners[0].Port == 0 || o.Node != "trivium@1" || o.ClusterName != "trivium@1" {
		t.Errorf("overview %s", body)
	}
}

func TestRates(t *testing.T) {
	var r rates
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	queues := func(published uint64) []broker.QueueStatus {
		return []broker.QueueStatus{{Address: kernel.QueueAddress("/", "q"), Published: published}}
	}
	rateAt := func(after time.Duration, published uint64) float64 {
		now := at.Add(after)
		from := r.update(now, counts{published: published}, queues(published))
		per := from.since(now)
		return statsOf(from.queues[kernel.QueueAddress("/", "q")], counts{published: published}, per).PublishDetails.Rate
	}
	for _, c := range []struct {
		after     time.Duration
		published uint64
		want      float64
	}{{0, 100, 0}, {2 * time.Second, 120, 10}, {5 * time.Second, 200, 20}, {10 * time.Second, 700, 100}, {12 * time.Second, 700, 500.0 / 7}} {
		if got := rateAt(c.after, c.published); got != c.want {
			t.Errorf("after %v: %v per second, want %v", c.after, got, c.want)
		}
	}
}
