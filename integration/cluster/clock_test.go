package cluster

import (
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestRow11Clocks: the clock of the node that serves is set an hour ahead, and an hour
// behind, and another node takes over meanwhile. What lives for ten minutes stays, what
// lives for a second goes, whenever it was published and whoever serves.
func TestRow11Clocks(t *testing.T) {
	full(t)
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3, Faults: true}), rng: rand.New(rand.NewPCG(11, 1))}
	a.whole()
	c := openAMQP(t, a.leader(), true)
	declare := func(queue string, ttl int) {
		t.Helper()
		_, err := c.ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-message-ttl": ttl})
		harness.Must(t, err)
	}
	declare("long", 600_000)
	declare("short", 1000)
	harness.Declare(t, c.ch, "own")
	count := func(queue string) int {
		t.Helper()
		q, err := c.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		harness.Must(t, err)
		return q.Messages
	}
	kept := 0
	expire := func(when string) {
		t.Helper()
		harness.Confirmed(t, c.ch, "", "long", amqp.Publishing{DeliveryMode: amqp.Persistent})
		harness.Confirmed(t, c.ch, "", "own", amqp.Publishing{DeliveryMode: amqp.Persistent, Expiration: "600000"})
		harness.Confirmed(t, c.ch, "", "short", amqp.Publishing{DeliveryMode: amqp.Persistent})
		kept++
		harness.Wait(t, harness.Patience, when+": what lives for a second goes", func() bool { return count("short") == 0 })
		if long, own := count("long"), count("own"); long != kept || own != kept {
			t.Errorf("%s: %d and %d of %d messages are left", when, long, own, kept)
		}
	}
	expire("before")
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		n := a.leader()
		a.must(n.Step(step), "set the clock of node %d", n.ID)
		expire("at a node whose clock was set by " + step.String())
		a.serveFrom(a.follower())
		a.whole()
		expire("at another node")
		a.serveFrom(n)
		a.whole()
		expire("back at the node whose clock was set")
		a.must(n.Step(0), "set the clock of node %d back", n.ID)
		expire("at a node whose clock was set back")
	}
}
