package amqp

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Confirmed messages, queues, bindings and what was acked outlive the node.
func TestRestart(t *testing.T) {
	ownOnly(t)
	dir := t.TempDir()
	n, err := start(dir)
	must(t, err)
	ch := channel(t, dial(t, n))
	must(t, ch.Confirm(false))
	for _, q := range []string{"kept", "volatile"} {
		_, err = ch.QueueDeclare(q, q == "kept", false, false, false, nil)
		must(t, err)
		must(t, ch.QueueBind(q, "k", "amq.direct", false, nil))
	}
	for i := range 100 {
		confirmed(t, ch, "amq.direct", "k", amqp091.Publishing{Body: fmt.Append(nil, i), DeliveryMode: 2})
	}
	deliveries, err := ch.Consume("kept", "", false, false, false, false, nil)
	must(t, err)
	for i := range 10 {
		if d := receive(t, deliveries); i < 5 {
			must(t, d.Ack(false))
		}
	}
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	must(t, ch.Cancel("none", false)) // the acks have been handled when this is answered
	must(t, n.stop())
	if e := receive(t, closed); e.Code != 320 || e.Reason != "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'" {
		t.Errorf("%v", e)
	}

	n, err = start(dir)
	must(t, err)
	defer func() { must(t, n.stop()) }()
	c := dial(t, n)
	if !gone(t, c, "volatile") {
		t.Error("a queue that is not durable is there")
	}
	ch = channel(t, c)
	must(t, ch.Confirm(false))
	confirmed(t, ch, "amq.direct", "k", amqp091.Publishing{Body: []byte("100")})
	deliveries, err = ch.Consume("kept", "", true, false, false, false, nil)
	must(t, err)
	for i := 5; i <= 100; i++ {
		if d := receive(t, deliveries); string(d.Body) != fmt.Sprint(i) {
			t.Fatalf("%s, want %d", d.Body, i)
		}
	}
}
