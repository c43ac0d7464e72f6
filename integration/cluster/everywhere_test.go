package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestEveryNodeIsTheSameBroker: what belongs to a connection, a consumer or a client of
// one node is theirs for the clients of all others, too.
func TestEveryNodeIsTheSameBroker(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	for i, n := range c.Nodes {
		other := c.Nodes[(i+1)%3]
		exclusiveElsewhere(t, n, other)
		prefetchElsewhere(t, n, other)
		takeoverElsewhere(t, n, other)
	}
	epochsEverywhere(t, c)
}

// refusedWith does something over a channel of its own, which has to end with a code.
func refusedWith(t *testing.T, c *connection, code int, do func(*amqp.Channel) error) {
	t.Helper()
	ch, err := c.conn.Channel()
	harness.Must(t, err)
	if err := do(ch); !answered(err, code) {
		t.Errorf("%v, want %d", err, code)
	}
}

// exclusiveElsewhere: a queue of a connection, and a consumer that wants to be alone.
func exclusiveElsewhere(t *testing.T, n, elsewhere *harness.Node) {
	t.Helper()
	mine, theirs := openAMQP(t, n, false), openAMQP(t, elsewhere, true)
	q, err := mine.ch.QueueDeclare("", false, false, true, false, nil)
	harness.Must(t, err)
	refusedWith(t, theirs, amqp.ResourceLocked, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(q.Name, false, false, true, false, nil)
		return err
	})
	refusedWith(t, theirs, amqp.ResourceLocked, func(ch *amqp.Channel) error {
		_, _, err := ch.Get(q.Name, true)
		return err
	})
	harness.Confirmed(t, theirs.ch, "", q.Name, amqp.Publishing{Body: []byte("an answer")})
	if d, ok, err := mine.ch.Get(q.Name, true); err != nil || !ok || string(d.Body) != "an answer" {
		t.Errorf("node %d: %q, %v, %v", n.ID, d.Body, ok, err)
	}
	alone := harness.Name("alone")
	harness.Declare(t, mine.ch, alone)
	_, err = mine.ch.Consume(alone, "", false, true, false, false, nil)
	harness.Must(t, err)
	refusedWith(t, theirs, amqp.AccessRefused, func(ch *amqp.Channel) error {
		_, err := ch.Consume(alone, "", false, false, false, false, nil)
		return err
	})
}

// prefetchElsewhere: consumers of two nodes on one queue hold what they may, and no more.
func prefetchElsewhere(t *testing.T, n, elsewhere *harness.Node) {
	t.Helper()
	queue := harness.Name("prefetch")
	p := openAMQP(t, n, true)
	harness.Declare(t, p.ch, queue)
	ready := func(want int) {
		t.Helper()
		harness.Wait(t, harness.Patience, fmt.Sprint(want, " messages are ready"), func() bool {
			q, err := p.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			harness.Must(t, err)
			return q.Messages == want
		})
	}
	consumer := func(n *harness.Node, prefetch int) <-chan amqp.Delivery {
		t.Helper()
		c := openAMQP(t, n, false)
		harness.Must(t, c.ch.Qos(prefetch, 0, false))
		ds, err := c.ch.Consume(queue, "", false, false, false, false, nil)
		harness.Must(t, err)
		return ds
	}
	three, two := consumer(n, 3), consumer(elsewhere, 2)
	for range 20 {
		harness.Confirmed(t, p.ch, "", queue, amqp.Publishing{DeliveryMode: amqp.Persistent})
	}
	ready(15)
	var held amqp.Delivery
	for range 3 {
		held = harness.Receive(t, three)
	}
	for range 2 {
		harness.Receive(t, two)
	}
	harness.Must(t, held.Ack(false))
	harness.Receive(t, three)
	ready(14)
	if len(three) > 0 || len(two) > 0 {
		t.Errorf("%d and %d messages beyond the prefetch", len(three), len(two))
	}
}

// takeoverElsewhere: an MQTT client that connects by way of another node has its id, and
// gets what is published by way of any.
func takeoverElsewhere(t *testing.T, n, elsewhere *harness.Node) {
	t.Helper()
	id, said := harness.Name("client"), make(chan byte, 1)
	first, _, err := dialMQTT(t.Context(), n, id, func(c *paho.ClientConfig) {
		c.OnServerDisconnect = func(d *paho.Disconnect) { said <- d.ReasonCode }
	})
	harness.Must(t, err)
	defer leave(first)
	came := make(chan string, 10)
	second, _, err := dialMQTT(t.Context(), elsewhere, id, func(c *paho.ClientConfig) {
		c.OnPublishReceived = []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			came <- string(p.Packet.Payload)
			return true, nil
		}}
	})
	harness.Must(t, err)
	defer leave(second)
	if code := harness.Receive(t, said); code != 0x8e { // session taken over
		t.Errorf("node %d: DISCONNECT 0x%02x", n.ID, code)
	}
	ctx, cancel := context.WithTimeout(t.Context(), healed)
	defer cancel()
	_, err = second.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: id, QoS: 0}}})
	harness.Must(t, err)
	p, _, err := dialMQTT(ctx, n, id+"-publisher", nil)
	harness.Must(t, err)
	defer leave(p)
	_, err = p.Publish(ctx, &paho.Publish{Topic: id, QoS: 1, Payload: []byte("to all")})
	harness.Must(t, err)
	if got := harness.Receive(t, came); got != "to all" {
		t.Errorf("node %d: %q", elsewhere.ID, got)
	}
}

// epochsEverywhere: all nodes tell Kafka clients the same leader and epoch of a
// partition, and a higher epoch when another node has taken over.
func epochsEverywhere(t *testing.T, c *harness.Cluster) {
	t.Helper()
	const topic = "epochs"
	k, err := kafkaClient(c.Nodes)
	harness.Must(t, err)
	defer k.Close()
	_, err = kadm.NewClient(k).CreateTopic(t.Context(), 1, 1, nil, topic)
	harness.Must(t, err)
	told := func(last int32) (leader, epoch int32) {
		t.Helper()
		for i, n := range c.Nodes {
			one, err := kafkaClient([]*harness.Node{n})
			harness.Must(t, err)
			harness.Wait(t, healed, fmt.Sprintf("node %d tells a leader of a later epoch than %d", n.ID, last), func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				list, err := kadm.NewClient(one).ListTopics(ctx, topic)
				if err != nil || list[topic].Err != nil {
					return false
				}
				p := list[topic].Partitions[0]
				if i > 0 && (p.Leader != leader || p.LeaderEpoch != epoch) {
					return false
				}
				leader, epoch = p.Leader, p.LeaderEpoch
				return p.Err == nil && leader > 0 && epoch > last
			})
			one.Close()
		}
		return leader, epoch
	}
	was, before := told(-1)
	next := c.Nodes[int(was)%3]
	harness.Must(t, c.Whole(healed))
	harness.Must(t, next.Lead())
	leader, after := told(before)
	t.Logf("led by node %d in epoch %d, then by node %d in epoch %d", was, before, leader, after)
	if int(leader) != next.ID {
		t.Errorf("node %d leads, not node %d", leader, next.ID)
	}
}
