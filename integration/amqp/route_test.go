package amqp

import (
	"context"
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// headerRow is one binding to a headers exchange and one message.
type headerRow struct {
	bind, message args
	want          bool
}

var nested = args{"a": "b"}

var headerRows = []headerRow{
	{bind: nil, message: nil, want: true},
	{bind: nil, message: args{"a": "1"}, want: true},
	{bind: args{"x-match": "any"}, message: args{"a": "1"}},
	{bind: args{"a": "1"}, message: args{"a": "1"}, want: true},
	{bind: args{"a": "1"}, message: args{"a": "2"}},
	{bind: args{"a": "1"}, message: nil},
	{bind: args{"a": "1"}, message: args{"A": "1"}},
	{bind: args{"a": "1", "b": "2"}, message: args{"a": "1", "b": "2", "c": "3"}, want: true},
	{bind: args{"a": "1", "b": "2"}, message: args{"a": "1"}},
	{bind: args{"x-match": "all", "a": "1", "b": "2"}, message: args{"a": "1", "b": "3"}},
	{bind: args{"x-match": "any", "a": "1", "b": "2"}, message: args{"a": "1"}, want: true},
	{bind: args{"x-match": "any", "a": "1", "b": "2"}, message: args{"a": "2", "b": "2"}, want: true},
	{bind: args{"x-match": "any", "a": "1", "b": "2"}, message: args{"a": "2", "b": "1"}},
	{bind: args{"x-match": "any", "a": "1"}, message: nil},
	{bind: args{"a": nil}, message: args{"a": "x"}, want: true},
	{bind: args{"a": nil}, message: args{"a": int32(7)}, want: true},
	{bind: args{"a": nil}, message: args{"a": nil}, want: true},
	{bind: args{"a": nil}, message: args{"b": "x"}},
	{bind: args{"a": "1"}, message: args{"a": nil}},
	{bind: args{"x-match": "any", "a": nil, "b": "1"}, message: args{"a": true}, want: true},
	{bind: args{"a": int32(1)}, message: args{"a": int32(1)}, want: true},
	{bind: args{"a": int32(1)}, message: args{"a": int64(1)}, want: true},
	{bind: args{"a": int32(1)}, message: args{"a": "1"}},
	{bind: args{"a": int32(1)}, message: args{"a": float64(1)}, want: true},
	{bind: args{"a": float64(1.5)}, message: args{"a": float64(1.5)}, want: true},
	{bind: args{"a": true}, message: args{"a": true}, want: true},
	{bind: args{"a": true}, message: args{"a": false}},
	{bind: args{"a": "1"}, message: args{"a": []byte("1")}, want: true},
	{bind: args{"a": nested}, message: args{"a": nested}, want: true},
	{bind: args{"a": nested}, message: args{"a": args{"a": "c"}}},
	{bind: args{"x-a": "1"}, message: nil, want: true},
	{bind: args{"x-match": "any", "x-a": "1"}, message: args{"x-a": "1"}},
	{bind: args{"x-match": "all-with-x", "x-a": "1"}, message: args{"x-a": "1"}, want: true},
	{bind: args{"x-match": "all-with-x", "x-a": "1"}, message: nil},
	{bind: args{"x-match": "any-with-x", "x-a": "1", "b": "2"}, message: args{"x-a": "1"}, want: true},
	{bind: args{"x-match": "any-with-x", "x-a": "1"}, message: args{"x-a": "2"}},
}

func TestHeadersExchange(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	for i, row := range headerRows {
		for _, x := range []string{"amq.headers", "amq.match"} {
			q := newQueue(t, ch)
			must(t, ch.QueueBind(q, "", x, false, row.bind))
			confirmed(t, ch, x, "any", amqp091.Publishing{Headers: row.message})
			if got := count(t, ch, q) == 1; got != row.want {
				t.Errorf("row %d, %s: %v to %v: %v", i, x, row.message, row.bind, got)
			}
			_, err := ch.QueueDelete(q, false, false, false)
			must(t, err)
		}
	}
}

// made declares an exchange for the test.
func made(t *testing.T, ch *amqp091.Channel, kind string, a args) string {
	t.Helper()
	x := name("exchange")
	must(t, ch.ExchangeDeclare(x, kind, false, false, false, false, a))
	t.Cleanup(func() { _ = ch.ExchangeDelete(x, false, false) })
	return x
}

// TestExchangeBindings: a cycle of exchanges hands a message on once, and
// unbinding takes the way away.
func TestExchangeBindings(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	a, b, q := made(t, ch, "topic", nil), made(t, ch, "fanout", nil), newQueue(t, ch)
	must(t, ch.ExchangeBind(b, "k.#", a, false, nil))
	must(t, ch.ExchangeBind(a, "", b, false, nil))
	must(t, ch.QueueBind(q, "", b, false, nil))
	must(t, ch.QueueBind(q, "#", a, false, nil))
	for i, key := range []string{"k.1", "other"} {
		confirmed(t, ch, a, key, amqp091.Publishing{})
		if n := count(t, ch, q); n != i+1 {
			t.Errorf("%d messages after %s", n, key)
		}
	}
	must(t, ch.QueueUnbind(q, "#", a, nil))
	must(t, ch.ExchangeUnbind(b, "k.#", a, false, nil))
	confirmed(t, ch, a, "k.1", amqp091.Publishing{})
	if n := count(t, ch, q); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// TestAlternateExchange: what nothing takes goes on, around a circle only once,
// and counts as routed.
func TestAlternateExchange(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	back := ch.NotifyReturn(make(chan amqp091.Return, 4))
	q, x, y := newQueue(t, ch), name("x"), name("y")
	must(t, ch.ExchangeDeclare(x, "direct", false, false, false, false, args{"alternate-exchange": y}))
	publish := func() {
		d, err := ch.PublishWithDeferredConfirm(x, "k", true, false, amqp091.Publishing{})
		must(t, err)
		d.Wait()
	}
	publish()
	harness.Receive(t, back) // there is no such exchange
	must(t, ch.ExchangeDeclare(y, "direct", false, false, true, false, args{"alternate-exchange": x}))
	publish()
	harness.Receive(t, back)
	must(t, ch.QueueBind(q, "k", y, false, nil))
	publish()
	if n := count(t, ch, q); n != 1 || len(back) > 0 {
		t.Errorf("%d messages, %d came back", n, len(back))
	}
}

func TestConsistentHash(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	x, small, large := made(t, ch, "x-consistent-hash", nil), newQueue(t, ch), newQueue(t, ch)
	must(t, ch.QueueBind(small, "10", x, false, nil))
	must(t, ch.QueueBind(large, "30", x, false, nil))
	const n = 2000
	for i := range n {
		must(t, ch.PublishWithContext(context.Background(), x, fmt.Sprint("key", i), false, false, amqp091.Publishing{}))
	}
	confirmed(t, ch, "", small, amqp091.Publishing{})
	got := count(t, ch, small) - 1
	if got+count(t, ch, large) != n || got < n/4-n/10 || got > n/4+n/10 {
		t.Errorf("%d of %d went to a quarter", got, n)
	}
}

func TestCopies(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	to, cc, bcc := newQueue(t, ch), newQueue(t, ch), newQueue(t, ch)
	confirmed(t, ch, "", to, amqp091.Publishing{Headers: args{"CC": []any{cc, to}, "BCC": []any{bcc}, "n": int32(1)}})
	for _, q := range []string{to, cc, bcc} {
		m, ok, err := ch.Get(q, true)
		must(t, err)
		if _, seen := m.Headers["BCC"]; !ok || seen || m.Headers["CC"] == nil || m.Headers["n"] != int32(1) {
			t.Errorf("%s: %v, %v", q, ok, m.Headers)
		}
		if n := count(t, ch, q); n != 0 {
			t.Errorf("%s has %d more", q, n)
		}
	}
}

// TestPrefetchOfChannel: the consumers of a channel hold no more together than
// its prefetch, whichever queue is full.
func TestPrefetchOfChannel(t *testing.T) {
	ch := newChannel(t)
	empty, full := newQueue(t, ch), newQueue(t, ch)
	fill(t, ch, full, 10)
	must(t, ch.Qos(3, 0, true))
	in := make(chan amqp091.Delivery, 20)
	for _, q := range []string{empty, full} {
		d, err := ch.Consume(q, "", false, false, false, false, nil)
		must(t, err)
		go func() {
			for m := range d {
				in <- m
			}
		}()
	}
	var held []amqp091.Delivery
	for range 3 {
		held = append(held, harness.Receive(t, in))
	}
	if n := count(t, ch, full); n != 7 || len(in) > 0 {
		t.Errorf("%d left, %d came too many", n, len(in))
	}
	for i := range 7 {
		must(t, held[i].Ack(false))
		held = append(held, harness.Receive(t, in))
	}
	if n := count(t, ch, full); n != 0 || len(in) > 0 {
		t.Errorf("%d left, %d came too many", n, len(in))
	}
	send(t, ch, "", empty, "first")
	must(t, held[7].Ack(false))
	if m := harness.Receive(t, in); string(m.Body) != "first" {
		t.Errorf("got %q", m.Body)
	}
}
