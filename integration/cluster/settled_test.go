package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestSettledBeforeAPlannedChange: what a client has acknowledged before it closed its
// connection does not come again when another node takes over as planned, however soon:
// what still waits in the leader for company on its way to the log goes there first.
func TestSettledBeforeAPlannedChange(t *testing.T) {
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), rng: rand.New(rand.NewPCG(17, 0))}
	a.whole()
	move := func(n *harness.Node) { a.lead(a.others(n)[0]) }
	stop := func(n *harness.Node) {
		code, err := n.Stop()
		a.must(err, "stop node %d", n.ID)
		if code != 0 {
			t.Errorf("node %d ended with %d", n.ID, code)
		}
		_, err = a.c.NextLeader(n, healed)
		a.must(err, "after the stop")
		a.must(n.Run(), "start node %d", n.ID)
	}
	for i, change := range []func(*harness.Node){move, stop, move, stop} {
		leader := a.leader()
		at := leader
		if i >= 2 {
			at = a.others(leader)[1]
		}
		queue := harness.Name("settled")
		a.settlesAll(at, queue)
		change(leader)
		c := openAMQP(t, a.leader(), false)
		if d, ok, err := c.ch.Get(queue, true); ok || err != nil {
			t.Errorf("change %d: acknowledged by way of node %d, and still there: %q, %v", i, at.ID, d.Body, err)
		}
		a.whole()
	}
}

// settlesAll publishes to a new queue, consumes and acknowledges all, and is gone.
func (a *arena) settlesAll(n *harness.Node, queue string) {
	a.t.Helper()
	c, err := dialAMQP(n)
	harness.Must(a.t, err)
	harness.Declare(a.t, c.ch, queue)
	harness.Must(a.t, c.ch.Confirm(false))
	deliveries, err := c.ch.Consume(queue, "", false, false, false, false, nil)
	harness.Must(a.t, err)
	for i := range 20 {
		harness.Confirmed(a.t, c.ch, "", queue, amqp.Publishing{Body: fmt.Append(nil, i), DeliveryMode: amqp.Persistent})
	}
	for range 20 {
		harness.Must(a.t, harness.Receive(a.t, deliveries).Ack(false))
	}
	harness.Must(a.t, c.conn.Close())
}
