package edge

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivium-mq/trivium/integration/harness"
)

func get(t *testing.T, addr, path string) []byte {
	t.Helper()
	resp, err := http.Get("http://" + addr + path)
	harness.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	return body
}

// metric is the value of one line of /metrics.
func metric(t *testing.T, addr, name string) float64 {
	t.Helper()
	for line := range strings.Lines(string(get(t, addr, "/metrics"))) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			harness.Must(t, err)
			return v
		}
	}
	t.Fatalf("/metrics lacks %s", name)
	return 0
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, harness.Patience)
	harness.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	harness.Must(t, c.SetDeadline(time.Now().Add(2*harness.Patience)))
	return c
}

// rest reads until the broker closes.
func rest(c net.Conn) (string, error) {
	b, err := io.ReadAll(c)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return string(b), err
	}
	return string(b), nil // a reset is an end, too
}

// TestRow24ForeignBytes: whoever speaks something else on the AMQP port is told
// what is spoken there and closed; nobody's scan is worth a warning.
func TestRow24ForeignBytes(t *testing.T) {
	a := harness.NewAuthority(t)
	b, at := harness.StartSecure(t, a)
	const header = "AMQP\x00\x00\x09\x01"
	hello := "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + strings.Repeat("x", 100)
	for name, first := range map[string]string{
		"TLS": hello, "HTTP": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "AMQP 1.0": "AMQP\x00\x01\x00\x00", "AMQP 0-9": "AMQP\x01\x01\x00\x09", "short": "AM",
	} {
		c := dial(t, b.AMQP)
		_, err := io.WriteString(c, first)
		harness.Must(t, err)
		harness.Must(t, c.(*net.TCPConn).CloseWrite())
		if got, err := rest(c); err != nil || got != header {
			t.Errorf("%s: answered %q, %v", name, got, err)
		}
	}
	for name, addr := range map[string]string{
		"amqps": at.AMQP, "mqtts": at.MQTT, "kafka over TLS": at.Kafka, "https": at.HTTP, "ws": at.WS, "wss": at.WSS, "mqtt": b.MQTT, "kafka": b.Kafka,
	} {
		_ = dial(t, addr).Close() // a port scan
		for _, first := range []string{"\x00\x01\x02\x03\x04\x05\x06\x07", header, "GET / HTTP/1.0\r\n\r\n"} {
			c := dial(t, addr)
			_, _ = io.WriteString(c, first) // it may be closed already
			_ = c.(*net.TCPConn).CloseWrite()
			if _, err := rest(c); err != nil {
				t.Errorf("%s: %q is not closed: %v", name, first, err)
			}
		}
	}
	harness.Wait(t, harness.Patience, "all connections to be closed", func() bool {
		return metric(t, b.HTTP, `trivium_listener_connections{listener="amqp/ssl"}`) == 0
	})
	if out := b.Output(); strings.Contains(out, " ERR ") || strings.Contains(out, " WRN ") {
		t.Errorf("the log complains:\n%s", out)
	}
}

// TestRow25SlowLoris: who does not come to the point is closed after the
// handshake timeout, however the bytes drip, and leaves nothing behind; others
// are served meanwhile.
func TestRow25SlowLoris(t *testing.T) {
	a := harness.NewAuthority(t)
	const timeout = 2 * time.Second
	b, at := harness.StartSecure(t, a, "--connections-handshake-timeout", timeout.String())
	before := metric(t, b.HTTP, "go_goroutines")
	addrs := map[string]string{
		"amqp": b.AMQP, "mqtt": b.MQTT, "kafka": b.Kafka, "amqps": at.AMQP, "mqtts": at.MQTT, "kafkas": at.Kafka, "ws": at.WS, "wss": at.WSS,
	}
	starts := map[string]string{
		"nothing": "", "amqp": "AMQP\x00\x00\x09", "mqtt": "\x10\xff\xff\x01\x00\x04MQTT\x05", "kafka": "\x00\x00\x04\x00\x00\x12\x00\x00",
		"tls": "\x16\x03\x01\x20\x00\x01\x00\x1f\xfc\x03\x03", "http": "GET /mqtt HTTP/1.1\r\nHost: ",
	}
	var g errgroup.Group
	for name, addr := range addrs {
		for what, start := range starts {
			for range 5 {
				c := dial(t, addr)
				g.Go(func() error { return loris(c, name+" with "+what, start, timeout) })
			}
		}
	}
	conn, err := dialAMQPS(at.AMQP, a.Trust())
	harness.Must(t, err)
	harness.Must(t, conn.Close())
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	harness.Wait(t, harness.Patience, "the goroutines to go", func() bool { return metric(t, b.HTTP, "go_goroutines") <= before+5 })
}

// loris sends a start and then a byte at a time until it is closed.
func loris(c net.Conn, what, start string, timeout time.Duration) error {
	begin := time.Now()
	_, _ = io.WriteString(c, start) // may be refused at once
	tick := time.NewTicker(timeout / 8)
	defer tick.Stop()
	closed := make(chan error, 1)
	go func() {
		_, err := rest(c)
		closed <- err
	}()
	for {
		select {
		case <-tick.C:
			_, _ = c.Write([]byte{'x'}) // the read says when it is over
		case err := <-closed:
			if took := time.Since(begin); err != nil || took > 2*timeout+10*time.Second {
				return fmt.Errorf("%s: closed after %v, %v", what, took, err)
			}
			return nil
		}
	}
}

// TestRow27Storm: thousands connect at once; the limits hold, those that are
// connected are served meanwhile, and all places come back.
func TestRow27Storm(t *testing.T) {
	a := harness.NewAuthority(t)
	const clients = 3000
	// Those that are served do not log in, and keep their places for as long as this takes.
	b, at := harness.StartSecure(t, a, "--connections-unknown-per-client", "0", "--mqtt-max-connections", "500",
		"--connections-handshake-timeout", "5m")
	calm, err := amqpClient(at.AMQP, a.Trust(), 0)
	harness.Must(t, err)
	defer calm.close()
	config := a.Trust()
	begin := time.Now()
	var g errgroup.Group
	g.SetLimit(500)
	served := make(chan net.Conn, clients)
	for range clients {
		g.Go(func() error {
			c, err := tls.Dial("tcp", at.MQTT, config)
			if err == nil {
				served <- c
			}
			return nil
		})
	}
	done := make(chan struct{})
	go func() { _ = g.Wait(); close(done) }()
	slowest := time.Duration(0)
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
			began := time.Now()
			harness.Must(t, calm.use())
			slowest = max(slowest, time.Since(began))
		}
	}
	took := time.Since(begin)
	close(served)
	n := len(served)
	t.Logf("%d connections, %d served, in %v; slowest confirm of a client connected before: %v", clients, n, took, slowest)
	if n != 500 {
		t.Errorf("%d of %d were served, the limit is 500", n, clients)
	}
	if refused := metric(t, b.HTTP, `trivium_listener_refused_total{listener="mqtt/ssl"}`); refused != clients-500 {
		t.Errorf("%v refused", refused)
	}
	if slowest > 3*time.Second {
		t.Errorf("a confirm took %v", slowest)
	}
	if lines := strings.Count(b.Output(), "a connection was not accepted"); lines == 0 || lines > 1+int(took/time.Second) {
		t.Errorf("%d lines about refused connections", lines)
	}
	for c := range served {
		_ = c.Close()
	}
	harness.Wait(t, harness.Patience, "the places to come back", func() bool {
		c, err := dialMQTT("ssl://"+at.MQTT, "", config)
		if err == nil {
			c.Disconnect(0)
		}
		return err == nil
	})
}

// TestOneAddressLocksNobodyOut: with few connections to be had, an address that
// never logs in leaves places for the clients and the health checks of others.
func TestOneAddressLocksNobodyOut(t *testing.T) {
	const places = 40
	b := harness.Start(t, "--connections-max", strconv.Itoa(places))
	for _, addr := range []string{b.AMQP, b.HTTP} {
		for range places {
			c := dial(t, addr)
			if addr == b.HTTP {
				_, _ = io.WriteString(c, "GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n") // and stays
			}
		}
	}
	client := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: harness.Patience}
	web := http.Client{Transport: &http.Transport{DialContext: client.DialContext}, Timeout: harness.Patience}
	defer web.CloseIdleConnections()
	resp, err := web.Get("http://" + b.HTTP + "/health/ready")
	harness.Must(t, err)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("health: %s", resp.Status)
	}
	c, err := client.Dial("tcp", b.MQTT)
	harness.Must(t, err)
	defer func() { _ = c.Close() }()
	harness.Must(t, c.SetDeadline(time.Now().Add(harness.Patience)))
	_, err = io.WriteString(c, "\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00")
	harness.Must(t, err)
	answer := make([]byte, 4)
	if _, err := io.ReadFull(c, answer); err != nil || answer[0] != 0x20 {
		t.Errorf("CONNECT is answered with %x, %v", answer, err)
	}
}
