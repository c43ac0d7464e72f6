package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

func openAMQP(t *testing.T, n *harness.Node, confirm bool) *connection {
	t.Helper()
	c, err := dialAMQP(n)
	harness.Must(t, err)
	t.Cleanup(c.close)
	if confirm {
		harness.Must(t, c.ch.Confirm(false))
	}
	return c
}

// TestMistakesAtEveryNode: a publish that is not taken closes its channel, by whatever
// node the client is connected, and what it has published after it is not done.
func TestMistakesAtEveryNode(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	for _, n := range c.Nodes {
		for _, confirm := range []bool{false, true} {
			conn := openAMQP(t, n, confirm)
			q, err := conn.ch.QueueDeclare("", false, false, true, false, nil)
			harness.Must(t, err)
			closed := conn.ch.NotifyClose(make(chan *amqp.Error, 1))
			to := func(exchange string) error {
				return conn.ch.PublishWithContext(t.Context(), exchange, q.Name, false, false, amqp.Publishing{})
			}
			harness.Must(t, to(""))
			harness.Must(t, to("missing"))
			_ = to("")
			e := harness.Receive(t, closed)
			if e == nil || e.Code != amqp.NotFound || !strings.Contains(e.Reason, "no exchange 'missing' in vhost '/'") {
				t.Errorf("node %d: %v", n.ID, e)
			}
			ch, err := conn.conn.Channel()
			harness.Must(t, err)
			if q, err = ch.QueueDeclarePassive(q.Name, false, false, true, false, nil); err != nil || q.Messages != 1 {
				t.Errorf("node %d: %d messages, %v", n.ID, q.Messages, err)
			}
		}
	}
}

// TestConnectionsShowTheirNode: listings name the node that holds a connection's socket,
// whichever is asked.
func TestConnectionsShowTheirNode(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	ports := map[int]string{}
	for _, n := range c.Nodes {
		conn := openAMQP(t, n, false)
		ports[conn.conn.LocalAddr().(*net.TCPAddr).Port] = fmt.Sprint("trivium@", n.ID)
	}
	for _, n := range c.Nodes {
		var rows []struct {
			Node string `json:"node"`
			Port int    `json:"peer_port"`
		}
		harness.Must(t, n.Get("/api/connections", &rows))
		shown := map[int]string{}
		for _, x := range rows {
			shown[x.Port] = x.Node
		}
		if !maps.Equal(shown, ports) {
			t.Errorf("node %d shows %v, want %v", n.ID, shown, ports)
		}
	}
}

// TestClientsOfLeaderCutOff: a node that served and is cut off from the others nacks what
// its clients have published, closes those that would not hear of it, and serves the
// others again when it is back, on the connections that they have.
func TestClientsOfLeaderCutOff(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3, Network: true})
	harness.Must(t, c.Whole(healed))
	last, err := c.Leader(healed)
	harness.Must(t, err)
	heard, unheard, idle := openAMQP(t, last, true), openAMQP(t, last, false), openAMQP(t, last, true)
	_, err = idle.ch.QueueDeclare("q", true, false, false, false, nil)
	harness.Must(t, err)
	mine, err := idle.ch.QueueDeclare("", false, false, true, false, nil)
	harness.Must(t, err)
	harness.Must(t, idle.ch.QueueBind(mine.Name, "key", "amq.direct", false, nil))
	publish := func(c *connection, exchange, key string) *amqp.DeferredConfirmation {
		t.Helper()
		d, err := c.ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
		harness.Must(t, err)
		return d
	}
	confirmed := func(d *amqp.DeferredConfirmation) bool {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), healed)
		defer cancel()
		acked, err := d.WaitContext(ctx)
		harness.Must(t, err)
		return acked
	}
	if !confirmed(publish(heard, "", "q")) {
		t.Fatal("not confirmed")
	}
	for _, n := range c.Nodes {
		if n != last {
			c.Net.Both(last.ID, n.ID, harness.Link{Cut: true})
		}
	}
	unknown := publish(heard, "", "q")
	publish(unheard, "", "q")
	if confirmed(unknown) {
		t.Error("a node that is cut off has confirmed")
	}
	if e := harness.Receive(t, unheard.closed); e == nil || e.Code != amqp.ConnectionForced || !strings.Contains(e.Reason, "may be lost") {
		t.Errorf("closed with %v", e)
	}
	held := publish(heard, "", "q") // until somebody serves whom the node can reach
	next, err := c.NextLeader(last, healed)
	harness.Must(t, err)
	if !confirmed(publish(openAMQP(t, next, true), "", "q")) {
		t.Error("not confirmed by the others")
	}
	c.Net.Heal()
	if !confirmed(held) {
		t.Error("not confirmed when the node is back")
	}
	until := time.Now().Add(healed)
	for !confirmed(publish(idle, "amq.direct", "key")) && time.Now().Before(until) {
	}
	if q, err := idle.ch.QueueDeclarePassive(mine.Name, false, false, true, false, nil); err != nil || q.Messages < 1 {
		t.Errorf("%d messages, %v", q.Messages, err)
	}
	for _, conn := range []*connection{heard, idle} {
		if conn.conn.IsClosed() {
			t.Error("a connection was closed")
		}
	}
}
