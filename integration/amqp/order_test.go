package amqp

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// TestPublishIsSeen: what a channel does next finds what it has published
// before, with and without confirms, in queues of every kind. Clients do such
// things all the time: put, size, get.
func TestPublishIsSeen(t *testing.T) {
	type queue struct {
		durable bool
		args    args
	}
	for kind, q := range map[string]queue{"durable": {true, nil}, "quorum": {true, args{"x-queue-type": "quorum"}}, "in memory": {false, nil}} {
		if external && kind == "quorum" {
			continue // there it is stored a little later
		}
		for _, confirms := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, confirms %v", kind, confirms), func(t *testing.T) {
				_, ch := shared.DialAMQP(t)
				if confirms {
					must(t, ch.Confirm(false))
				}
				n := name("order")
				declare := func() amqp091.Queue {
					d, err := ch.QueueDeclare(n, q.durable, false, false, false, q.args)
					must(t, err)
					return d
				}
				declare()
				seen(t, ch, n, declare)
			})
		}
	}
}

func seen(t *testing.T, ch *amqp091.Channel, n string, declare func() amqp091.Queue) {
	put := func(many int) {
		for i := range many {
			send(t, ch, "", n, fmt.Sprint(i))
		}
	}
	for i := range 10 {
		send(t, ch, "", n, fmt.Sprint(i))
		if d, ok, err := ch.Get(n, true); err != nil || !ok || string(d.Body) != fmt.Sprint(i) {
			t.Fatalf("get after publish %d: %q, %v, %v", i, d.Body, ok, err)
		}
	}
	for i := range 5 {
		put(50)
		if passive := count(t, ch, n); passive != 50 {
			t.Errorf("round %d: %d messages after 50 publishes", i, passive)
		}
		if purged, err := ch.QueuePurge(n, false); err != nil || purged != 50 {
			t.Errorf("round %d: purged %d, %v", i, purged, err)
		}
		put(20)
		if purged, err := ch.QueuePurge(n, false); err != nil || purged != 20 {
			t.Errorf("round %d: purged %d at once, %v", i, purged, err)
		}
		if left := count(t, ch, n); left != 0 {
			t.Errorf("round %d: %d messages came back after a purge", i, left)
		}
	}
	put(30)
	if again := declare(); again.Messages != 30 {
		t.Errorf("declared again it has %d messages", again.Messages)
	}
	if deleted, err := ch.QueueDelete(n, false, false, false); err != nil || deleted != 30 {
		t.Errorf("deleted with %d, %v", deleted, err)
	}
	declare()
	put(1)
	_, err := ch.QueueDelete(n, false, true, false)
	if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 {
		t.Errorf("a queue that is not empty: %v", err)
	}
}

// TestClosedInOrder: after a close in order everything published is there, and
// after a channel was closed with an error, too.
func TestClosedInOrder(t *testing.T) {
	watch := newChannel(t)
	for how, end := range map[string]func(c *amqp091.Connection, ch *amqp091.Channel){
		"channel":    func(_ *amqp091.Connection, ch *amqp091.Channel) { must(t, ch.Close()) },
		"connection": func(c *amqp091.Connection, _ *amqp091.Channel) { must(t, c.Close()) },
		"error": func(_ *amqp091.Connection, ch *amqp091.Channel) {
			closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
			send(t, ch, "missing", "", "")
			if e := <-closed; e == nil || e.Code != 404 {
				t.Errorf("closed with %v", e)
			}
		},
	} {
		q := newQueue(t, watch)
		for i := 1; i <= 20; i++ {
			c, ch := shared.DialAMQP(t)
			send(t, ch, "", q, fmt.Sprint(i))
			end(c, ch)
			if n := count(t, watch, q); n != i {
				t.Errorf("%s: %d messages after close %d", how, n, i)
			}
		}
	}
}

// TestPublishThenUnbind: a message is routed by the bindings at its publish.
func TestPublishThenUnbind(t *testing.T) {
	ch := newChannel(t)
	q := newQueue(t, ch)
	must(t, ch.QueueBind(q, "", "amq.fanout", false, nil))
	send(t, ch, "amq.fanout", "", "1")
	must(t, ch.QueueUnbind(q, "", "amq.fanout", nil))
	send(t, ch, "amq.fanout", "", "2")
	must(t, ch.QueueBind(q, "", "amq.fanout", false, nil))
	send(t, ch, "amq.fanout", "", "3")
	for _, want := range []string{"1", "3"} {
		if d, ok, err := ch.Get(q, true); err != nil || !ok || string(d.Body) != want {
			t.Errorf("%q, %v, %v; want %s", d.Body, ok, err, want)
		}
	}
	must(t, ch.QueueUnbind(q, "", "amq.fanout", nil))
}
