package mixed

import (
	"testing"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestKafkaProducersCannotForgeProperties: headers with the broker's reserved
// names mean nothing on records that a Kafka producer made. They neither break
// AMQP consumers, nor hide the record, nor change where it seems to come from.
func TestKafkaProducersCannotForgeProperties(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "forged")
	k := b.DialKafka(t)
	forged := &kgo.Record{Topic: "forged", Key: []byte("key"), Value: []byte("body"), Headers: []kgo.RecordHeader{
		{Key: "mq.amqp", Value: []byte("\xff\xff\xff\xffgarbage")},
		{Key: "mq.expires-at", Value: []byte("1000")},
		{Key: "mq.exchange", Value: []byte("\xff\xfe")},
		{Key: "mq.rk", Value: []byte("a.#\x00")},
		{Key: "mq.user.x", Value: []byte("y")},
		{Key: "content-type", Value: []byte("\xff\xfe")},
		{Key: "mine", Value: []byte("kept")},
	}}
	for range 2 {
		if err := k.ProduceSync(t.Context(), forged).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	d, ok, err := ch.Get("forged", true)
	if err != nil || !ok {
		t.Fatalf("get: %v %v", ok, err)
	}
	if string(d.Body) != "body" || d.Exchange != "" || d.RoutingKey != "forged" || d.ContentType != "" {
		t.Errorf("body %q, exchange %q, key %q, content type %q", d.Body, d.Exchange, d.RoutingKey, d.ContentType)
	}
	if d.Headers["mine"] != "kept" || d.Headers["x-kafka-key"] != "key" || d.Headers["x"] != nil || d.Headers["mq.amqp"] != nil {
		t.Errorf("headers %v", d.Headers)
	}
	got := make(chan mqtt.Message, 1)
	c := b.DialMQTT(t, "reader", func(o *mqtt.ClientOptions) {
		o.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) { got <- m })
	})
	harness.Done(t, c.Subscribe("$queue/forged", 1, nil))
	if m := harness.Receive(t, got); m.Topic() != "forged" || string(m.Payload()) != "body" {
		t.Errorf("MQTT got %s %s", m.Topic(), m.Payload())
	}
}
