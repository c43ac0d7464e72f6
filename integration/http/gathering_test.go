package http

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/admin"
	"github.com/trivium-mq/trivium/protocols/amqp"
)

// TestPublishWaitsForClients: a node that has just begun to serve, and waits for the
// clients of others, has no alarm; a message that is published over HTTP waits as well,
// and is taken then.
func TestPublishWaitsForClients(t *testing.T) {
	b, err := broker.Open(broker.Config{DataDir: t.TempDir(), Logger: zerolog.Nop()})
	harness.Must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	server := admin.NewServer(b, admin.Config{Mapper: amqp.Mapper{}, Gatherer: prometheus.NewRegistry(), Log: zerolog.Nop()})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		harness.Must(t, server.Shutdown(ctx))
		harness.Must(t, <-served)
		harness.Must(t, b.Close(ctx))
	})
	began := time.Now()
	const hold = 300 * time.Millisecond
	b.Gather(hold, func(ctx context.Context) { <-ctx.Done() })
	u := user{"http://" + l.Addr().String(), "guest", "guest"}
	if status, answer := u.ask(t, "GET", "/api/health/checks/alarms", ""); status != 200 {
		t.Error(status, answer)
	}
	u.must(t, "PUT", "/api/queues/%2F/q", `{"durable": true}`)
	answer := u.must(t, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties": {}, "routing_key": "q", "payload": "v", "payload_encoding": "string"}`)
	if !strings.Contains(answer, `"routed":true`) {
		t.Error(answer)
	}
	if took := time.Since(began); took < hold {
		t.Errorf("published after %v", took)
	}
}
