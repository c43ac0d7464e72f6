package amqp

import (
	"context"
	"fmt"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

const replyTo = "amq.rabbitmq.reply-to"

// replyName begins to consume answers and returns where they go.
func replyName(t testing.TB, ch *amqp091.Channel) (string, <-chan amqp091.Delivery) {
	t.Helper()
	answers, err := ch.Consume(replyTo, "", true, false, false, false, nil)
	must(t, err)
	_, server := shared.DialAMQP(t)
	q := newQueue(t, server)
	must(t, ch.PublishWithContext(context.Background(), "", q, false, false, amqp091.Publishing{ReplyTo: replyTo}))
	return getSoon(t, server, q).ReplyTo, answers
}

// listens reports whether a passive declaration finds a reply queue.
func listens(t testing.TB, queue string) bool {
	t.Helper()
	q, err := newChannel(t).QueueDeclarePassive(queue, false, false, false, false, nil)
	if err == nil && (q.Name != queue || q.Messages != 0 || q.Consumers != 1) {
		t.Errorf("%+v", q)
	}
	if e, ok := err.(*amqp091.Error); err != nil && (!ok || e.Code != 404) {
		t.Error(err)
	}
	return err == nil
}

// returned publishes and reports whether nobody was there to get it.
func returned(t testing.TB, ch *amqp091.Channel, key string) bool {
	t.Helper()
	back := ch.NotifyReturn(make(chan amqp091.Return, 1))
	must(t, ch.PublishWithContext(context.Background(), "", key, true, false, amqp091.Publishing{Body: []byte("mandatory")}))
	_, err := ch.QueueDeclare("", false, true, true, false, nil) // it comes before the answer
	must(t, err)
	select {
	case r := <-back:
		return r.ReplyCode == 312
	default:
		return false
	}
}

// TestReplyTo: answers of other connections come in order, with or without confirms, to
// the channel that asked, and nothing is left of a name that was given up.
func TestReplyTo(t *testing.T) {
	for what, end := range map[string]func(ch *amqp091.Channel, tag string) error{
		"cancel":        func(ch *amqp091.Channel, tag string) error { return ch.Cancel(tag, false) },
		"channel.close": func(ch *amqp091.Channel, _ string) error { return ch.Close() },
	} {
		for _, confirms := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, confirms %v", what, confirms), func(t *testing.T) {
				ch, server := newChannel(t), newChannel(t)
				if confirms {
					must(t, ch.Confirm(false))
					must(t, server.Confirm(false))
				}
				name, answers := replyName(t, ch)
				for i := range 20 {
					must(t, server.PublishWithContext(context.Background(), "", name, false, false, amqp091.Publishing{CorrelationId: fmt.Sprint(i)}))
				}
				must(t, server.PublishWithContext(context.Background(), "amq.direct", name, false, false, amqp091.Publishing{CorrelationId: "no"}))
				var tag string
				for i := range 20 {
					d := harness.Receive(t, answers)
					if tag = d.ConsumerTag; d.CorrelationId != fmt.Sprint(i) || d.RoutingKey != name || d.Exchange != "" || d.Redelivered {
						t.Fatalf("%d: %+v", i, d)
					}
				}
				if !strings.HasPrefix(name, replyTo+".") || !listens(t, name) || !listens(t, replyTo) {
					t.Errorf("%s is not there", name)
				}
				if _, err := channel(t, connectionOf(t)).QueueDelete(name, false, false, false); err != nil || !listens(t, name) {
					t.Errorf("deleted: %v", err)
				}
				must(t, end(ch, tag))
				until(t, "the end of the reply queue", func() bool { return !listens(t, name) })
				if !returned(t, server, name) {
					t.Error("an answer to nobody was taken")
				}
				if listens(t, name) { // nor is it made by that
					t.Error("it is there again")
				}
			})
		}
	}
}

// connectionOf is one more connection.
func connectionOf(t testing.TB) *amqp091.Connection {
	t.Helper()
	c, _ := shared.DialAMQP(t)
	return c
}

// TestReplyToIsRouted: RabbitMQ 3 returns a mandatory answer that it delivers; from 4.2
// on, and here, it counts as routed.
func TestReplyToIsRouted(t *testing.T) {
	ownOnly(t)
	name, answers := replyName(t, newChannel(t))
	if returned(t, newChannel(t), name) {
		t.Error("it was returned")
	}
	if d := harness.Receive(t, answers); string(d.Body) != "mandatory" {
		t.Errorf("%+v", d)
	}
	for _, nobody := range []string{replyTo, replyTo + ".x"} {
		if !returned(t, newChannel(t), nobody) {
			t.Errorf("%s: it was not returned", nobody)
		}
	}
}

// TestReturnedRequest: what comes back of a request that nobody gets has the name that was
// put in.
func TestReturnedRequest(t *testing.T) {
	ch := newChannel(t)
	name, _ := replyName(t, ch)
	back := ch.NotifyReturn(make(chan amqp091.Return, 1))
	must(t, ch.PublishWithContext(context.Background(), "", "amq.nobody", true, false, amqp091.Publishing{ReplyTo: replyTo}))
	if r := harness.Receive(t, back); r.ReplyTo != name {
		t.Errorf("%q, want %q", r.ReplyTo, name)
	}
}
