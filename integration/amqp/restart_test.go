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
