package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// gateOn serves a gate on a port of its own until the test ends.
func gateOn(t *testing.T, cfg GateConfig) (g *Gate, url string) {
	t.Helper()
	cfg.Log = zerolog.Nop()
	g = NewGate(cfg)
	l, err := listener.Listen("127.0.0.1:0", listener.Options{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return g, "http://" + l.Addr().String()
}

// read answers a GET with credentials that a node knows.
func read(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestGateForwards: a node that does not serve has requests answered by the one that
// does, but for its own health; when nobody serves it says so.
func TestGateForwards(t *testing.T) {
	away := errors.New("no node leads")
	serving, there := gateOn(t, GateConfig{Ready: func() error { return nil }})
	serving.Serving(NewServer(&fakeNode{}, Config{Log: zerolog.Nop()}))
	host := strings.TrimPrefix(there, "http://")
	var none bool
	_, here := gateOn(t, GateConfig{
		Ready: func() error { return away },
		Forward: func(ctx context.Context, client net.Conn) (net.Conn, error) {
			if none {
				return nil, away
			}
			if client == nil || client.RemoteAddr() == nil {
				t.Error("the client is not told")
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", host)
		},
	})
	for _, path := range []string{"/api/overview", "/api/whoami"} {
		want, text := read(t, there+path)
		if status, body := read(t, here+path); status != want || want != http.StatusOK || len(body) == 0 || len(body)/8 != len(text)/8 {
			t.Errorf("%s: %d %q, the node that serves: %d %q", path, status, body, want, text)
		}
	}
	if status, body := read(t, here+"/health/ready"); status != http.StatusServiceUnavailable || !strings.Contains(body, away.Error()) {
		t.Errorf("ready: %d %s", status, body)
	}
	if status, _ := read(t, here+"/health/live"); status != http.StatusOK {
		t.Errorf("live: %d", status)
	}
	none = true
	if status, body := read(t, here+"/api/overview"); status != http.StatusServiceUnavailable || !strings.Contains(body, "no node serves now") {
		t.Errorf("nobody serves: %d %s", status, body)
	}
}

// TestForwardedStrangersStayStrangers: what another node answers to anybody makes nobody
// known here.
func TestForwardedStrangersStayStrangers(t *testing.T) {
	for _, one := range []struct {
		method, authorization string
		status                int
		known                 bool
	}{
		{http.MethodGet, "Basic x", http.StatusOK, true},
		{http.MethodPut, "Basic x", http.StatusCreated, true},
		{http.MethodGet, "", http.StatusOK, false},
		{http.MethodGet, "Basic x", http.StatusUnauthorized, false},
		{http.MethodGet, "Basic x", http.StatusTemporaryRedirect, false},
		{http.MethodOptions, "Basic x", http.StatusOK, false},
	} {
		here, there := net.Pipe()
		c := &caller{Conn: here}
		r, err := http.NewRequestWithContext(withCaller(t.Context(), c), one.method, "/api/overview", nil)
		if err != nil {
			t.Fatal(err)
		}
		if one.authorization != "" {
			r.Header.Set("Authorization", one.authorization)
		}
		if err := forwarded(&http.Response{StatusCode: one.status, Request: r}); err != nil || c.known.Load() != one.known {
			t.Errorf("%+v: known %v, %v", one, c.known.Load(), err)
		}
		_ = errors.Join(here.Close(), there.Close())
	}
}

// TestForwardedBodyThatIsWrong: a body that cannot be read is its client's fault, whichever
// node he asks; a node that cannot be reached is not.
func TestForwardedBodyThatIsWrong(t *testing.T) {
	serving, there := gateOn(t, GateConfig{Ready: func() error { return nil }})
	serving.Serving(NewServer(&fakeNode{}, Config{Log: zerolog.Nop()}))
	forward := func(to string) func(context.Context, net.Conn) (net.Conn, error) {
		return func(ctx context.Context, _ net.Conn) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", to)
		}
	}
	_, here := gateOn(t, GateConfig{Ready: func() error { return nil }, Forward: forward(strings.TrimPrefix(there, "http://"))})
	_, lost := gateOn(t, GateConfig{Ready: func() error { return nil }, Forward: forward("127.0.0.1:1")})
	const head = "PUT /api/queues/%2F/q HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tc := range []struct {
		at, body string
		want     int
	}{
		{there, "ZZZ\r\n{}\r\n", http.StatusBadRequest},
		{here, "ZZZ\r\n{}\r\n", http.StatusBadRequest},
		{here, "2\r\n{}XX0\r\n\r\n", http.StatusBadRequest},
		{lost, "2\r\n{}\r\n0\r\n\r\n", http.StatusServiceUnavailable},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(tc.at, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, head+tc.body); err != nil {
			t.Error(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != tc.want {
			t.Errorf("%q: %s, want %d", tc.body, resp.Status, tc.want)
		}
		_ = errors.Join(resp.Body.Close(), conn.Close())
	}
}
