package backup

import (
	"context"
	"fmt"
	"testing"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// holds checks that a node has at least all that was confirmed, over each protocol, each
// message once and in order, and that it takes and gives more.
func holds(t *testing.T, at harness.Addresses, want counts) {
	t.Helper()
	holdsLog(t, at, topic, want.kafka)
	holdsLog(t, at, queue, want.amqp) // the queue's messages, read over Kafka
	holdsQueue(t, at, want.amqp)
	holdsSession(t, at, want.mqtt)
	holdsRetained(t, at, want.mqtt)
}

// holdsLog reads a topic from its start over Kafka.
func holdsLog(t *testing.T, at harness.Addresses, name string, want int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	c := at.DialKafka(t, kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(t, c.ProduceSync(ctx, &kgo.Record{Topic: name, Value: []byte("last")}).FirstErr())
	for next := int64(0); ; {
		list, err := harness.Records(ctx, c, 1)
		must(t, err)
		for _, r := range list {
			if string(r.Value) == "last" {
				if next < want {
					t.Errorf("%s has %d messages, %d were confirmed", name, next, want)
				}
				return
			}
			if n := number(r.Value); n != next || r.Offset != next {
				t.Fatalf("%s: message %d at %d, want %d", name, n, r.Offset, next)
			}
			next++
		}
	}
}

// holdsQueue takes all that the queue has.
func holdsQueue(t *testing.T, at harness.Addresses, want int64) {
	t.Helper()
	_, ch := at.DialAMQP(t)
	must(t, ch.Confirm(false))
	harness.Confirmed(t, ch, "", queue, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("end")})
	list, err := ch.Consume(queue, "", false, false, false, false, nil)
	must(t, err)
	for next := int64(0); ; {
		d := harness.Receive(t, list)
		must(t, d.Ack(false))
		switch n := number(d.Body); {
		case string(d.Body) == "end":
			if next < want {
				t.Errorf("the queue has %d messages, %d were confirmed", next, want)
			}
			return
		case string(d.Body) == "last": // over Kafka
		case n != next:
			t.Fatalf("message %d, want %d", n, next)
		default:
			next++
		}
	}
}

// holdsSession comes back as the MQTT client that was away.
func holdsSession(t *testing.T, at harness.Addresses, want int64) {
	t.Helper()
	got := make(chan []byte, 1024)
	c := at.DialMQTT(t, session, func(o *mqtt.ClientOptions) {
		o.SetCleanSession(false)
		o.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) { got <- m.Payload() })
	})
	harness.Done(t, c.Publish("away/x", 1, false, "end"))
	for next := int64(0); ; next++ {
		b := harness.Receive(t, got)
		if string(b) == "end" {
			if next < want {
				t.Errorf("the session has %d messages, %d were confirmed", next, want)
			}
			return
		}
		if n := number(b); n != next {
			t.Fatalf("message %d of the session, want %d", n, next)
		}
	}
}

// holdsRetained checks that the retained messages are no older than what was confirmed
// last, and that one can be replaced.
func holdsRetained(t *testing.T, at harness.Addresses, want int64) {
	t.Helper()
	got := make(chan mqtt.Message, 2*retained)
	c := at.DialMQTT(t, harness.Name("reader"))
	harness.Done(t, c.Subscribe("retained/+", 1, func(_ mqtt.Client, m mqtt.Message) { got <- m }))
	for range min(retained, want) {
		m := harness.Receive(t, got)
		var name int64
		if _, err := fmt.Sscanf(m.Topic(), "retained/%d", &name); err != nil {
			t.Fatal(err)
		}
		least := (want-1-name)/retained*retained + name // the last one confirmed of that name
		if n := number(m.Payload()); n < least || n%retained != name {
			t.Errorf("%s is message %d, and %d was confirmed", m.Topic(), n, least)
		}
	}
	harness.Done(t, c.Publish("retained/0", 1, true, "replaced"))
	again := make(chan string, 1)
	harness.Done(t, at.DialMQTT(t, harness.Name("reader")).Subscribe("retained/0", 1, func(_ mqtt.Client, m mqtt.Message) { again <- string(m.Payload()) }))
	if s := harness.Receive(t, again); s != "replaced" {
		t.Errorf("what is retained anew is %.20q", s)
	}
}

// commit has a Kafka group commit an offset of the topic.
func commit(t *testing.T, at harness.Addresses, offset int64) {
	t.Helper()
	adm := kadm.NewClient(at.DialKafka(t))
	var o kadm.Offsets
	o.AddOffset(topic, 0, offset, -1)
	must(t, adm.CommitAllOffsets(t.Context(), readers, o))
}

// committed checks what the group has committed.
func committed(t *testing.T, at harness.Addresses, want int64) {
	t.Helper()
	list, err := kadm.NewClient(at.DialKafka(t)).FetchOffsets(t.Context(), readers)
	must(t, err)
	if o, ok := list.Lookup(topic, 0); !ok || o.At != want {
		t.Errorf("committed %+v, want %d", o, want)
	}
}
