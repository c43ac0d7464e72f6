package amqp

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// Confirmed messages, queues, bindings and what was acked outlive the node.
func TestRestart(t *testing.T) {
	ownOnly(t)
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	must(t, ch.Confirm(false))
	for _, q := range []string{"kept", "volatile"} {
		_, err := ch.QueueDeclare(q, q == "kept", false, false, false, nil)
		must(t, err)
		must(t, ch.QueueBind(q, "k", "amq.direct", false, nil))
	}
	for i := range 100 {
		confirmed(t, ch, "amq.direct", "k", amqp091.Publishing{Body: fmt.Append(nil, i), DeliveryMode: 2})
	}
	deliveries, err := ch.Consume("kept", "", false, false, false, false, nil)
	must(t, err)
	for i := range 10 {
		if d := harness.Receive(t, deliveries); i < 5 {
			must(t, d.Ack(false))
		}
	}
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	must(t, ch.Cancel("none", false)) // the acks have been handled when this is answered
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if e := harness.Receive(t, closed); e.Code != 320 || e.Reason != "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" {
		t.Errorf("%v", e)
	}

	b.Run()
	c, ch := b.DialAMQP(t)
	if !gone(t, c, "volatile") {
		t.Error("a queue that is not durable is there")
	}
	must(t, ch.Confirm(false))
	confirmed(t, ch, "amq.direct", "k", amqp091.Publishing{Body: []byte("100")})
	deliveries, err = ch.Consume("kept", "", true, false, false, false, nil)
	must(t, err)
	for i := 5; i <= 100; i++ {
		if d := harness.Receive(t, deliveries); string(d.Body) != fmt.Sprint(i) {
			t.Fatalf("%s, want %d", d.Body, i)
		}
	}
}

// Redelivered are the messages that a consumer got, however the node ended, and no
// others.
func TestRestartMarks(t *testing.T) {
	ownOnly(t)
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	must(t, ch.Confirm(false))
	publish := func(ch *amqp091.Channel, queue string) {
		t.Helper()
		for i := range 10 {
			confirmed(t, ch, "", queue, amqp091.Publishing{Body: fmt.Append(nil, i), DeliveryMode: 2})
		}
	}
	for _, q := range []string{"held", "untouched", "left"} {
		_, err := ch.QueueDeclare(q, true, false, false, false, nil)
		must(t, err)
		publish(ch, q)
	}
	must(t, ch.Qos(3, 0, false))
	held, err := ch.Consume("held", "", false, false, false, false, nil)
	must(t, err)
	for range 3 {
		harness.Receive(t, held)
	}
	b.Kill()

	b.Run()
	marked(t, b, "held", 3)
	marked(t, b, "untouched", 0)

	// A consumer has been at work, and is gone.
	_, ch = b.DialAMQP(t)
	must(t, ch.Confirm(false))
	must(t, ch.Qos(5, 0, false))
	left, err := ch.Consume("left", "c", false, false, false, false, nil)
	must(t, err)
	for range 10 {
		publish(ch, "left")
		for range 10 {
			d := harness.Receive(t, left)
			must(t, d.Ack(false))
		}
	}
	for range 10 {
		d := harness.Receive(t, left)
		must(t, d.Ack(false))
	}
	must(t, ch.Cancel("c", false))
	publish(ch, "left")
	publish(ch, "untouched")
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	b.Run()
	marked(t, b, "untouched", 0)
	marked(t, b, "left", 0)
}

// marked takes the ten messages of a queue, of which the first so many are
// redelivered.
func marked(t *testing.T, b *harness.Broker, queue string, want int) {
	t.Helper()
	c, ch := b.DialAMQP(t)
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	must(t, err)
	for i := range 10 {
		d := harness.Receive(t, deliveries)
		if string(d.Body) != fmt.Sprint(i) || d.Redelivered != (i < want) {
			t.Errorf("%s: message %d is %s, redelivered %v; want %d marked", queue, i, d.Body, d.Redelivered, want)
		}
	}
	must(t, c.Close())
}
