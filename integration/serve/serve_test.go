// Package serve tests the command line and the life of the process.
package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// refused runs the binary, which must end with exit code 2 and one line that
// contains want.
func refused(t *testing.T, env []string, want string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience) // if it is not refused
	defer cancel()
	cmd := exec.CommandContext(ctx, harness.Binary(t), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 2 {
		t.Errorf("%v: got %v, want exit code 2\n%s", args, err, &stderr)
		return
	}
	if line := strings.TrimSpace(stderr.String()); strings.Contains(line, "\n") || !strings.Contains(line, want) {
		t.Errorf("%v: got %q, want one line with %q", args, line, want)
	}
}

// quiet are arguments of a second node that collides with nothing.
func quiet(t *testing.T, args ...string) []string {
	return append([]string{"serve", "--data", t.TempDir(), "--amqp", "off", "--mqtt", "off", "--kafka", "off", "--http", "off", "--cluster", "off"}, args...)
}

func TestUsageErrorsAreOneLineAndExitCode2(t *testing.T) {
	b := harness.Start(t)
	file := filepath.Join(t.TempDir(), "trivium.yaml")
	harness.Must(t, os.WriteFile(file, []byte("amqp:\n  lisen: 127.0.0.1:1\n"), 0o600))
	t.Run("taken port", func(t *testing.T) { refused(t, nil, b.AMQP, quiet(t, "--amqp", b.AMQP)...) })
	t.Run("locked data directory", func(t *testing.T) { refused(t, nil, "in use", quiet(t, "--data", b.Dir)...) })
	t.Run("unknown key", func(t *testing.T) { refused(t, nil, "lisen", quiet(t, "--config", file)...) })
	t.Run("missing file", func(t *testing.T) { refused(t, nil, "none.yaml", quiet(t, "--config", "none.yaml")...) })
	t.Run("unknown variable", func(t *testing.T) {
		refused(t, []string{"TRIVIUM_AMQP_PORT=1"}, "TRIVIUM_AMQP_PORT", quiet(t)...)
	})
	t.Run("unknown flag", func(t *testing.T) { refused(t, nil, "--prot", quiet(t, "--prot", "1")...) })
	t.Run("stray argument", func(t *testing.T) { refused(t, nil, "now", quiet(t, "now")...) })
	t.Run("unknown command", func(t *testing.T) { refused(t, nil, `unknown command "bogus"; `, "bogus") })
	t.Run("nearly a command", func(t *testing.T) { refused(t, nil, `unknown command "qeue"; did you mean queue?`, "qeue") })
	t.Run("unknown command below", func(t *testing.T) { refused(t, nil, `unknown command "bogus"`, "queue", "bogus") })
	t.Run("origin that no browser sends", func(t *testing.T) {
		refused(t, nil, "mqtt.ws_origins", quiet(t, "--mqtt-ws-origins", "app.example.com")...)
	})
	t.Run("empty name", func(t *testing.T) { refused(t, nil, "NAME is empty", "queue", "delete", "") })
	t.Run("default tenant", func(t *testing.T) { refused(t, nil, "--yes", "tenant", "delete", "/", "--url", "http://"+b.HTTP) })
	t.Run("bad address", func(t *testing.T) { refused(t, nil, "mqtt.listen", quiet(t, "--mqtt", "1883")...) })
	t.Run("bad level", func(t *testing.T) { refused(t, nil, "log.level", quiet(t, "--log-level", "loud")...) })
	t.Run("wildcard advertised", func(t *testing.T) {
		refused(t, nil, "kafka.advertise", quiet(t, "--kafka-advertise", "0.0.0.0:9092")...)
	})
	t.Run("open cluster port", func(t *testing.T) { refused(t, nil, "cluster.advertise", quiet(t, "--cluster", "0.0.0.0:0")...) })
	t.Run("cluster port without certificates", func(t *testing.T) { refused(t, nil, "beyond the loopback", quiet(t, "--cluster", "192.0.2.1:7420")...) })
	t.Run("taken cluster port", func(t *testing.T) { refused(t, nil, "in use", quiet(t, "--cluster", b.AMQP)...) })
	t.Run("other node's directory", func(t *testing.T) {
		if code := b.Stop(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		refused(t, nil, "node", quiet(t, "--data", b.Dir, "--node-id", "7")...)
	})
}

// TestVersion: the version is told in both ways, with exit code 0, and so is the help
// without a command.
func TestVersion(t *testing.T) {
	var told []string
	for _, args := range [][]string{{"version"}, {"--version"}, {}} {
		out, err := exec.Command(harness.Binary(t), args...).Output()
		harness.Must(t, err)
		told = append(told, string(out))
	}
	if told[0] != told[1] || !strings.HasPrefix(told[0], "trivium version ") || !strings.Contains(told[2], "serve") {
		t.Errorf("%q", told)
	}
}

// TestSIGTERMDrains: with clients of every protocol connected and holding
// messages, SIGTERM ends the process with 0 within 10 s, and what was held is
// there again afterwards, in order.
func TestSIGTERMDrains(t *testing.T) {
	b := harness.Start(t)
	conn, ch := b.DialAMQP(t)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	harness.Declare(t, ch, "held")
	harness.Must(t, ch.Confirm(false))
	for _, body := range []string{"a", "b", "c"} {
		harness.Confirmed(t, ch, "", "held", amqp.Publishing{DeliveryMode: 2, Body: []byte(body)})
	}
	deliveries, err := ch.Consume("held", "", false, false, false, false, nil)
	harness.Must(t, err)
	for range 3 {
		harness.Receive(t, deliveries)
	}
	lost := make(chan error, 1)
	b.DialMQTT(t, "", func(o *mqtt.ClientOptions) {
		o.SetConnectionLostHandler(func(_ mqtt.Client, err error) { lost <- err })
	})
	k := b.DialKafka(t, kgo.ConsumeTopics("held"))
	polled := make(chan struct{})
	go func() { defer close(polled); k.PollFetches(t.Context()) }()

	began := time.Now()
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, b.Output())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	select {
	case e := <-closed:
		if e == nil || e.Code != amqp.ConnectionForced {
			t.Errorf("AMQP connection closed with %v, want 320", e)
		}
	case <-time.After(5 * time.Second):
		t.Error("the AMQP client was not told")
	}
	select {
	case <-lost:
	case <-time.After(5 * time.Second):
		t.Error("the MQTT client's connection is still open")
	}
	b.Run()
	heldAgain(t, b)
}

func heldAgain(t *testing.T, b *harness.Broker) {
	t.Helper()
	_, ch := b.DialAMQP(t)
	for _, want := range []string{"a", "b", "c"} {
		d, ok, err := ch.Get("held", true)
		if err != nil || !ok || string(d.Body) != want || !d.Redelivered {
			t.Errorf("got %q redelivered %v (%v %v), want %q redelivered", d.Body, d.Redelivered, ok, err, want)
		}
	}
}

// TestListenersOff: an address of "off" opens no socket, the others serve.
func TestListenersOff(t *testing.T) {
	b := harness.Start(t, "--mqtt", "off", "--kafka", "off")
	for name, addr := range map[string]string{"mqtt": b.MQTT, "kafka": b.Kafka} {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			c.Close()
			t.Errorf("%s still listens on %s", name, addr)
		}
	}
	if body := get(t, b, "/health/ready", http.StatusOK); !json.Valid(body) {
		t.Errorf("ready says %q", body)
	}
}

func get(t *testing.T, b *harness.Broker, path string, status int) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.HTTP+path, nil)
	harness.Must(t, err)
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("GET %s: %d %v\n%s", path, resp.StatusCode, err, body)
	}
	return body
}

// TestMetricsCountEveryProtocol: /metrics and /api show what went through.
func TestMetricsCountEveryProtocol(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "depth")
	harness.Must(t, ch.Confirm(false))
	for range 5 {
		harness.Confirmed(t, ch, "", "depth", amqp.Publishing{DeliveryMode: 2})
	}
	if _, ok, err := ch.Get("depth", true); !ok || err != nil {
		t.Fatal(ok, err)
	}
	metrics := string(get(t, b, "/metrics", http.StatusOK))
	for _, want := range []string{
		`trivium_messages_received_total{protocol="amqp"} 5`, `trivium_messages_delivered_total{protocol="amqp"} 1`,
		`trivium_messages_settled_total{protocol="amqp"} 1`, `trivium_queue_messages_ready 4`,
		`trivium_commit_seconds_bucket{placement="durable",le="0.001"}`, "trivium_wal_syncs_total",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	var queues []struct {
		Name, Vhost, State, Type string
		Durable                  bool
		Messages                 int `json:"messages"`
		Ready                    int `json:"messages_ready"`
	}
	harness.Must(t, json.Unmarshal(get(t, b, "/api/queues", http.StatusOK), &queues))
	if len(queues) != 1 || queues[0].Name != "depth" || queues[0].Vhost != "/" || queues[0].Ready != 4 || queues[0].Messages != 4 || !queues[0].Durable {
		t.Errorf("/api/queues: %+v", queues)
	}
	var overview map[string]any
	harness.Must(t, json.Unmarshal(get(t, b, "/api/overview", http.StatusOK), &overview))
	for _, key := range []string{"rabbitmq_version", "management_version", "node", "object_totals", "queue_totals", "listeners"} {
		if _, ok := overview[key]; !ok {
			t.Errorf("/api/overview lacks %s", key)
		}
	}
}

// TestSecondSignalEndsAtOnce: a second SIGTERM does not wait for anybody.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	b := harness.Start(t)
	p, err := os.FindProcess(b.PID())
	harness.Must(t, err)
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGTERM)
	b.Stop()
}
