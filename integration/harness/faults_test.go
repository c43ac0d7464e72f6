package harness

import (
	"context"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestFaultyBinary: a node with faults obeys: its clock is set, its syncs fail,
// and what it has confirmed outlives a kill that loses what was not synced.
func TestFaultyBinary(t *testing.T) {
	if os.Getenv("TRIVIUM_NEMESES") == "" {
		t.Skip("make test-cluster runs this: it builds another binary")
	}
	c := StartCluster(t, ClusterConfig{Nodes: 1, Faults: true, Lose: true})
	n := c.Nodes[0]
	ch := openOperator(t, n)
	Declare(t, ch, "q")
	Confirmed(t, ch, "", "q", amqp.Publishing{Body: []byte("kept")})
	Must(t, n.Step(time.Hour))
	Must(t, n.Step(0))
	n.Kill()
	Must(t, n.Run())
	ch = openOperator(t, n)
	d, ok, err := ch.Get("q", true)
	if err != nil || !ok || string(d.Body) != "kept" {
		t.Fatalf("after the kill: %q, %v, %v", d.Body, ok, err)
	}
	Must(t, n.Break(Rule{Op: "sync", Name: "*.wal", Error: "EIO"}))
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	if sent, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", "q", false, false, amqp.Publishing{Body: []byte("lost")}); err == nil && sent.Wait() {
		t.Error("confirmed although no sync succeeds")
	}
	n.Kill()
	Must(t, n.Run())
	ch = openOperator(t, n)
	for {
		d, ok, err := ch.Get("q", true)
		Must(t, err)
		if !ok {
			break
		}
		if string(d.Body) == "lost" {
			t.Error("what was never synced came")
		}
	}
}

func openOperator(t *testing.T, n *Node) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial("amqp://" + ClusterUser + ":" + ClusterPassword + "@" + n.AMQP + "/")
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	Must(t, err)
	Must(t, ch.Confirm(false))
	return ch
}
