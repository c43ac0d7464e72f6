package kafka

import (
	"errors"
	"strings"
	"testing"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// Queues that are made over AMQP are seen under Kafka names, but for exclusive
// ones, and what either side stores the other reads.
func TestQueuesAreTopics(t *testing.T) {
	ctx := limited(t)
	_, ch := shared.DialAMQP(t)
	harness.Declare(t, ch, "plant/1")
	_, err := ch.QueueDeclare("mine", false, false, true, false, nil)
	must(t, err)
	must(t, ch.Confirm(false))
	harness.Confirmed(t, ch, "", "plant/1", amqp091.Publishing{Body: []byte("over AMQP")})
	adm := admin(t, shared)
	topics, err := adm.ListTopics(ctx)
	if err != nil || !topics.Has("plant_x2F1") || topics.Has("mine") {
		t.Errorf("topics %v, error %v", topics.Names(), err)
	}
	produce(ctx, t, shared.DialKafka(t), &kgo.Record{Topic: "plant_x2F1", Value: []byte("over Kafka")})
	got := consume(ctx, t, shared.DialKafka(t, kgo.ConsumeTopics("plant_x2F1")), 2)
	for i, want := range []struct{ key, value string }{{"plant/1", "over AMQP"}, {"", "over Kafka"}} {
		if string(got[i].Key) != want.key || string(got[i].Value) != want.value {
			t.Errorf("record %d: key %q, value %q", i, got[i].Key, got[i].Value)
		}
	}
	until(t, "the queue has both", func() bool {
		q, err := ch.QueueDeclarePassive("plant/1", true, false, false, false, nil)
		return err == nil && q.Messages == 2
	})
	if _, err := adm.DeleteTopic(ctx, "plant_x2F1"); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("delete of a queue with messages: %v", err)
	}
	_, err = ch.QueuePurge("plant/1", false)
	must(t, err)
	if _, err := adm.DeleteTopic(ctx, "plant_x2F1"); err != nil {
		t.Errorf("delete of an empty queue: %v", err)
	}
}

// A topic is not deleted under a durable MQTT subscription, even one that has
// read everything and is away: it would miss what comes next.
func TestSubscriptionHoldsBackDeletion(t *testing.T) {
	ctx := limited(t)
	session := func(o *mqtt.ClientOptions) { o.SetCleanSession(false) }
	sub := shared.DialMQTT(t, "holds-back", session)
	harness.Done(t, sub.Subscribe("held-back", 1, nil))
	sub.Disconnect(100)
	adm := admin(t, shared)
	_, err := adm.DeleteTopic(ctx, "held-back")
	if !errors.Is(err, kerr.PolicyViolation) {
		t.Fatalf("delete: %v", err)
	}
	resps, err := adm.DeleteTopics(ctx, "held-back")
	must(t, err)
	if text := resps["held-back"].ErrMessage; !strings.Contains(text, "durable subscription") {
		t.Errorf("reason %q", text)
	}
	got := make(chan string, 1)
	produce(ctx, t, shared.DialKafka(t), &kgo.Record{Topic: "held-back", Value: []byte("next")})
	sub = shared.DialMQTT(t, "holds-back", session, func(o *mqtt.ClientOptions) {
		o.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) { got <- string(m.Payload()) })
	})
	if text := harness.Receive(t, got); text != "next" {
		t.Errorf("got %q", text)
	}
	harness.Done(t, sub.Unsubscribe("held-back"))
}
