package kafka

import (
	"errors"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// What other front-ends make through the kernel is seen under Kafka names,
// and the other way round.
func TestQueuesAreTopics(t *testing.T) {
	ctx := limited(t)
	id, err := shared.broker.Authenticate("", "guest", "guest", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := shared.broker.Connect(id, kernel.ConnectionInfo{Protocol: "test"}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, q := range []broker.QueueSpec{{Name: "plant/1", Durable: true}, {Name: "mine", Exclusive: true}} {
		if _, err := c.DeclareQueue(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, c, "plant/1", "over the kernel")
	adm := admin(t, shared)
	topics, err := adm.ListTopics(ctx)
	if err != nil || !topics.Has("plant_x2F1") || topics.Has("mine") {
		t.Errorf("topics %v, error %v", topics.Names(), err)
	}
	if err := client(t, shared).ProduceSync(ctx, &kgo.Record{Topic: "plant_x2F1", Value: []byte("over Kafka")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	got := consume(ctx, t, client(t, shared, kgo.ConsumeTopics("plant_x2F1")), 2)
	for i, want := range []struct{ key, value string }{{"plant/1", "over the kernel"}, {"", "over Kafka"}} {
		if string(got[i].Key) != want.key || string(got[i].Value) != want.value {
			t.Errorf("record %d: key %q, value %q", i, got[i].Key, got[i].Value)
		}
	}
	until(ctx, t, "the queue has both", func() bool {
		info, err := c.Queue("plant/1")
		return err == nil && info.Ready == 2
	})
	if _, err := adm.DeleteTopic(ctx, "plant_x2F1"); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("delete of a queue with messages: %v", err)
	}
	if _, err := c.PurgeQueue(ctx, "plant/1"); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.DeleteTopic(ctx, "plant_x2F1"); err != nil {
		t.Errorf("delete of an empty queue: %v", err)
	}
}

// outcome waits for one publish.
type outcome chan error

func (o outcome) Completed(_ uint64, res kernel.Result) { o <- res.Err }
func (o outcome) Flush()                                {}

func publish(t *testing.T, c *broker.Conn, queue, value string) {
	t.Helper()
	done := make(outcome, 1)
	p := c.Publisher(done)
	defer p.Close()
	if _, err := p.ToExchange("", queue, &kernel.Record{Key: []byte(queue), Value: []byte(value)}, kernel.PublishOptions{}, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
