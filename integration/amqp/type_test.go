package amqp

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestDeliveryCount: a message of a quorum queue says how often it came back,
// whatever its publisher wrote there; of other queues it does not.
func TestDeliveryCount(t *testing.T) {
	for _, kind := range []string{"quorum", "classic"} {
		ch := newChannel(t)
		q := name(kind)
		_, err := ch.QueueDeclare(q, true, false, false, false, args{"x-queue-type": kind})
		must(t, err)
		must(t, ch.PublishWithContext(t.Context(), "", q, false, false, amqp091.Publishing{Headers: args{"a": int32(1), "b": "text"}}))
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		must(t, err)
		for i := range 4 {
			d := harness.Receive(t, deliveries)
			want := any(int64(i))
			if kind == "classic" || i == 0 && !external {
				want = nil
			}
			if d.Headers["x-delivery-count"] != want || d.Headers["a"] != int32(1) || d.Headers["b"] != "text" || d.Redelivered != (i > 0) {
				t.Errorf("%s, delivery %d: %v", kind, i, d.Headers)
			}
			must(t, d.Nack(false, true))
		}
	}
}

// TestStreamRefusals: what a stream does not do in RabbitMQ it does not do here.
func TestStreamRefusals(t *testing.T) {
	for what, tc := range map[string]struct {
		code int
		text string
		do   func(ch *amqp091.Channel, q string) error
	}{
		"get": {540, "basic.get not supported by stream queues queue '%s' in vhost '/'", func(ch *amqp091.Channel, q string) error {
			_, _, err := ch.Get(q, true)
			return err
		}},
		"purge": {540, "queue.purge not supported by stream queues queue '%s' in vhost '/'", func(ch *amqp091.Channel, q string) error {
			_, err := ch.QueuePurge(q, false)
			return err
		}},
		"no ack": {540, "automatic acknowledgement not supported by stream queues queue '%s' in vhost '/'", func(ch *amqp091.Channel, q string) error {
			must(t, ch.Qos(10, 0, false))
			_, err := ch.Consume(q, "", true, false, false, false, nil)
			return err
		}},
		"no prefetch": {406, "consumer prefetch count is not set for 'queue '%s' in vhost '/''", func(ch *amqp091.Channel, q string) error {
			_, err := ch.Consume(q, "", false, false, false, false, nil)
			return err
		}},
	} {
		ch := newChannel(t)
		q := name("stream")
		_, err := ch.QueueDeclare(q, true, false, false, false, args{"x-queue-type": "stream"})
		must(t, err)
		err = tc.do(ch, q)
		if e, ok := err.(*amqp091.Error); !ok || e.Code != tc.code || e.Reason != reason(tc.code)+fmt.Sprintf(tc.text, q) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ch := newChannel(t)
	q := name("stream")
	_, err := ch.QueueDeclare(q, true, false, false, false, args{"x-queue-type": "stream"})
	must(t, err)
	must(t, ch.Qos(10, 0, false))
	deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
	must(t, err)
	send(t, ch, "", q, "a")
	d := harness.Receive(t, deliveries)
	must(t, d.Ack(false))
}

func reason(code int) string {
	return map[int]string{406: "PRECONDITION_FAILED - ", 540: "NOT_IMPLEMENTED - "}[code]
}

// TestQueueNames: a name with NUL, which RabbitMQ would take, is refused with
// the reason; line ends are taken out.
func TestQueueNames(t *testing.T) {
	ownOnly(t)
	c, ch := shared.DialAMQP(t)
	n := name("a")
	if q, err := ch.QueueDeclare(n+"\r\n\u00e9", true, false, false, false, nil); err != nil || q.Name != n+"\u00e9" {
		t.Errorf("%q, %v", q.Name, err)
	}
	_, err := channel(t, c).QueueDeclare("a\x00b", true, false, false, false, nil)
	if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 || e.Reason != "PRECONDITION_FAILED - queue 'a\x00b' in vhost '/': queue name holds a NUL character" {
		t.Errorf("%v", err)
	}
}

// TestShareAddressIsNoTarget: a declared share address gets what is published
// to its topic; the default exchange does not know its name.
func TestShareAddressIsNoTarget(t *testing.T) {
	ownOnly(t)
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	topic := newQueue(t, ch)
	group := "$share/" + name("group") + "/" + topic
	for _, address := range []string{group, "$queue/" + topic} {
		_, err := ch.QueueDeclare(address, true, false, false, false, nil)
		must(t, err)
		confirmed(t, ch, "", address, amqp091.Publishing{Body: []byte("lost")})
		returned := ch.NotifyReturn(make(chan amqp091.Return, 1))
		must(t, ch.PublishWithContext(t.Context(), "", address, true, false, amqp091.Publishing{Body: []byte("back")}))
		if r := harness.Receive(t, returned); r.ReplyCode != 312 || string(r.Body) != "back" || r.RoutingKey != address {
			t.Errorf("%s: returned %+v", address, r)
		}
		if n := count(t, ch, address); n != 0 {
			t.Errorf("%s has %d messages", address, n)
		}
		ch = newChannel(t) // the listener of returns stays
		must(t, ch.Confirm(false))
	}
	confirmed(t, ch, "", topic, amqp091.Publishing{Body: []byte("here")})
	if d, ok, err := ch.Get(group, true); err != nil || !ok || string(d.Body) != "here" {
		t.Errorf("%q, %v, %v", d.Body, ok, err)
	}
}
