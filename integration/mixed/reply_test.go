package mixed

import (
	"slices"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestDirectReplyToAcrossProtocols: who reads a request over MQTT or Kafka sees the name
// that the requester's answers go to; as a topic it is not to be reached.
func TestDirectReplyToAcrossProtocols(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "calls")
	answers, err := ch.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	harness.Must(t, err)
	c, got := sessionV5(t, b.MQTT, "server", true)
	_, err = c.Subscribe(within(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "$queue/calls", QoS: 1}}})
	harness.Must(t, err)
	harness.Must(t, ch.Confirm(false))
	harness.Confirmed(t, ch, "", "calls", amqp.Publishing{ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: "c"})

	name := harness.Receive(t, got).Properties.User.Get("reply-to")
	if !strings.HasPrefix(name, "amq.rabbitmq.reply-to.") {
		t.Fatalf("MQTT sees %q", name)
	}
	_, err = c.Publish(within(t), &paho.Publish{Topic: name, QoS: 1, Payload: []byte("over MQTT")})
	harness.Must(t, err)
	harness.Confirmed(t, ch, "", name, amqp.Publishing{Body: []byte("over AMQP")})
	if d := harness.Receive(t, answers); string(d.Body) != "over AMQP" {
		t.Errorf("%s", d.Body)
	}

	k := b.DialKafka(t, kgo.ConsumeTopics("calls"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	records, err := harness.Records(within(t), k, 1)
	harness.Must(t, err)
	if !slices.ContainsFunc(records[0].Headers, func(h kgo.RecordHeader) bool { return h.Key == "reply-to" && string(h.Value) == name }) {
		t.Errorf("Kafka sees %v", records[0].Headers)
	}
}
