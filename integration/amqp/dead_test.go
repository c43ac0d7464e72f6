package amqp

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestDeadLetterByHeaders: an exchange that chooses by typed headers sees those
// of the message that died, and how it died.
func TestDeadLetterByHeaders(t *testing.T) {
	ch := confirming(t)
	x := name("dlx")
	must(t, ch.ExchangeDeclare(x, "headers", true, false, false, false, nil))
	one, two, died := limitedQueue(t, ch, nil), limitedQueue(t, ch, nil), limitedQueue(t, ch, nil)
	must(t, ch.QueueBind(one, "", x, false, amqp091.Table{"x-match": "all", "n": int32(1), "ok": true}))
	must(t, ch.QueueBind(two, "", x, false, amqp091.Table{"x-match": "all", "n": int32(2)}))
	must(t, ch.QueueBind(died, "", x, false, amqp091.Table{"x-match": "all-with-x", "x-first-death-reason": "expired"}))
	from := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(30), "x-dead-letter-exchange": x})
	harness.Confirmed(t, ch, "", from, amqp091.Publishing{Body: []byte("typed"), Headers: amqp091.Table{"n": int64(1), "ok": true, "x-first-death-reason": "forged"}})
	if d := getSoon(t, ch, one); string(d.Body) != "typed" || d.Headers["n"] != int64(1) || d.Headers["ok"] != true || d.Headers["x-first-death-reason"] != "expired" {
		t.Errorf("%+v", d)
	}
	getSoon(t, ch, died)
	harness.Confirmed(t, ch, "", from, amqp091.Publishing{Body: []byte("text"), Headers: amqp091.Table{"n": "1", "ok": true}})
	getSoon(t, ch, died) // it was routed, and the text is no number
	if n := count(t, ch, one) + count(t, ch, two); n != 0 {
		t.Errorf("%d more messages", n)
	}
}

// TestDeadLetterByHash: dead letters are spread as publishes are; an exchange that
// chooses at random hands each on once.
func TestDeadLetterByHash(t *testing.T) {
	for _, kind := range []string{"x-consistent-hash", "x-random"} {
		t.Run(kind, func(t *testing.T) {
			ch := confirming(t)
			x := name("dlx")
			must(t, ch.ExchangeDeclare(x, kind, true, false, false, false, nil))
			a, b := limitedQueue(t, ch, nil), limitedQueue(t, ch, nil)
			must(t, ch.QueueBind(a, "1", x, false, nil))
			must(t, ch.QueueBind(b, "1", x, false, nil))
			from := limitedQueue(t, ch, amqp091.Table{"x-max-length": int32(0), "x-dead-letter-exchange": x})
			must(t, ch.ExchangeDeclare(x+"in", "fanout", true, false, false, false, nil))
			must(t, ch.QueueBind(from, "", x+"in", false, nil))
			const messages = 40
			for i := range messages {
				key := fmt.Sprint("key", i)
				harness.Confirmed(t, ch, x, key, amqp091.Publishing{})
				harness.Confirmed(t, ch, x+"in", key, amqp091.Publishing{})
			}
			until(t, "all messages", func() bool { return count(t, ch, a)+count(t, ch, b) == 2*messages })
			want := count(t, ch, a)
			if want == 0 || want == 2*messages {
				t.Errorf("one queue has %d of %d", want, 2*messages)
			}
			if kind == "x-consistent-hash" && want%2 != 0 {
				t.Errorf("%d messages: publishes and dead letters went to different queues", want)
			}
		})
	}
}

// TestDeadLetterKeys: dead letters go by all the keys of their message, those of
// CC too; a key for dead letters takes the place of all of them.
func TestDeadLetterKeys(t *testing.T) {
	ch := confirming(t)
	x := name("dlx")
	must(t, ch.ExchangeDeclare(x, "direct", true, false, false, false, nil))
	a, b, c := limitedQueue(t, ch, nil), limitedQueue(t, ch, nil), limitedQueue(t, ch, nil)
	from := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(30), "x-dead-letter-exchange": x})
	over := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(30), "x-dead-letter-exchange": x, "x-dead-letter-routing-key": "c"})
	for queue, key := range map[string]string{a: "a", b: "b", c: "c"} {
		must(t, ch.QueueBind(queue, key, x, false, nil))
	}
	must(t, ch.QueueBind(a, from, x, false, nil))
	keys := amqp091.Table{"CC": []any{"a", "b"}, "BCC": []any{"secret"}, "n": int32(7)}
	harness.Confirmed(t, ch, "", from, amqp091.Publishing{Body: []byte("kept"), Headers: keys})
	for _, queue := range []string{a, b} {
		d := getSoon(t, ch, queue)
		if got, want := deaths(d), fmt.Sprintf("%s expired 1  [%s a b];", from, from); got != want || d.RoutingKey != from {
			t.Errorf("%q with key %q, want %q", got, d.RoutingKey, want)
		}
		if got := fmt.Sprint(d.Headers["CC"], d.Headers["BCC"], d.Headers["n"]); got != "[a b] <nil> 7" {
			t.Errorf("headers %s", got)
		}
	}
	harness.Confirmed(t, ch, "", over, amqp091.Publishing{Body: []byte("replaced"), Headers: keys})
	d := getSoon(t, ch, c)
	if got, want := deaths(d), fmt.Sprintf("%s expired 1  [%s a b];", over, over); got != want || d.RoutingKey != "c" {
		t.Errorf("%q with key %q, want %q", got, d.RoutingKey, want)
	}
	if got := fmt.Sprint(d.Headers["CC"], d.Headers["n"]); got != "<nil> 7" {
		t.Errorf("headers %s", got)
	}
	if n := count(t, ch, a) + count(t, ch, b); n != 0 {
		t.Errorf("%d messages went by their old keys", n)
	}
}
