package amqp

import (
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

func TestServerNamedQueue(t *testing.T) {
	ch := newChannel(t)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	must(t, err)
	if len(q.Name) < 20 || q.Name[:8] != "amq.gen-" {
		t.Errorf("named %q", q.Name)
	}
	must(t, ch.QueueBind("", "", "amq.direct", false, nil)) // "" is the queue declared last, as key too
	send(t, ch, "amq.direct", q.Name, "a")
	until(t, "the message", func() bool { return count(t, ch, q.Name) == 1 })
	must(t, ch.QueueUnbind("", "", "amq.direct", nil))
	send(t, ch, "amq.direct", q.Name, "b")
	if n := count(t, ch, q.Name); n != 1 {
		t.Errorf("%d messages, although the binding has gone", n)
	}
	if n, err := ch.QueueDelete("", false, false, false); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func send(t testing.TB, ch *amqp091.Channel, exchange, key, body string) {
	t.Helper()
	must(t, ch.PublishWithContext(t.Context(), exchange, key, false, false, amqp091.Publishing{Body: []byte(body)}))
}

// count is how many messages of a queue are ready.
func count(t testing.TB, ch *amqp091.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(t, err)
	return q.Messages
}

// gone reports whether a queue does not exist.
func gone(t testing.TB, c *amqp091.Connection, queue string) bool {
	t.Helper()
	ch := channel(t, c)
	defer ch.Close()
	_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return err != nil
}

func newQueue(t testing.TB, ch *amqp091.Channel) string {
	t.Helper()
	q := name("queue")
	harness.Declare(t, ch, q)
	return q
}

func TestDeclareAgain(t *testing.T) {
	ch := newChannel(t)
	for i, a := range []args{nil, {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}, {"x-queue-type": "stream"}, {"x-retention": int32(0)}, {"x-retention": "36h"}, {"x-retention": "7D"}} {
		n := name("queue")
		for range 2 {
			if _, err := ch.QueueDeclare(n, true, false, false, false, a); err != nil {
				t.Fatalf("case %d: %v", i, err)
			}
		}
	}
	for range 2 {
		must(t, ch.ExchangeDeclare("amq.topic", "topic", true, false, false, false, nil))
		must(t, ch.ExchangeDeclare("amq.fanout", "fanout", true, false, false, false, nil))
		must(t, ch.ExchangeDeclarePassive("amq.direct", "direct", true, false, false, false, nil))
		must(t, ch.ExchangeDeclare("a\nb", "topic", false, true, false, false, nil))
	}
	must(t, ch.ExchangeDeclarePassive("ab", "topic", false, true, false, false, nil))
}

// Arguments that do not work are refused, one by one.
func TestArgumentsRefused(t *testing.T) {
	ownOnly(t)
	c, _ := shared.DialAMQP(t)
	for arg, v := range map[string]any{
		"x-max-priority": int32(5), "x-single-active-consumer": true, "x-unheard-of": "x",
	} {
		ch := channel(t, c)
		n := name("queue")
		_, err := ch.QueueDeclare(n, true, false, false, false, args{arg: v})
		want := fmt.Sprintf("PRECONDITION_FAILED - invalid arg '%s' for queue '%s' in vhost '/': the argument is not supported yet", arg, n)
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 || e.Reason != want {
			t.Errorf("%v", err)
		}
	}
	for _, v := range []any{"soon", int32(-1), true, "-3h", ""} {
		_, err := channel(t, c).QueueDeclare(name("queue"), true, false, false, false, args{"x-retention": v})
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 {
			t.Errorf("x-retention %v: %v", v, err)
		}
	}
	for _, arg := range []string{"x-priority", "x-stream-offset", "x-consumer-timeout"} {
		ch := channel(t, c)
		_, err := ch.Consume(newQueue(t, ch), "", false, false, false, false, args{arg: int32(1)})
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// What closes the connection needs one of its own.
func TestNotImplemented(t *testing.T) {
	ownOnly(t)
	for what, do := range map[string]func(ch *amqp091.Channel) error{
		"transactions are not supported yet": func(ch *amqp091.Channel) error { return ch.Tx() },
	} {
		err := do(newChannel(t))
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 540 || len(e.Reason) < len(what) || e.Reason[18:18+len(what)] != what {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestExclusiveQueue(t *testing.T) {
	c, ch := shared.DialAMQP(t)
	other, _ := shared.DialAMQP(t)
	n := name("exclusive")
	_, err := ch.QueueDeclare(n, true, false, true, false, nil)
	must(t, err)
	must(t, ch.Close())
	if _, err := channel(t, c).QueueDeclarePassive(n, true, false, true, false, nil); err != nil {
		t.Errorf("it went with its channel: %v", err)
	}
	must(t, c.Close())
	until(t, "the end of the queue", func() bool { return gone(t, other, n) })
}

func TestAutoDelete(t *testing.T) {
	c, ch := shared.DialAMQP(t)
	n := name("auto")
	_, err := ch.QueueDeclare(n, true, true, false, false, nil)
	must(t, err)
	if gone(t, c, n) {
		t.Fatal("it went without ever having had a consumer")
	}
	must(t, ch.Confirm(false))
	confirmed(t, ch, "", n, amqp091.Publishing{Body: []byte("a")})
	told := ch.NotifyCancel(make(chan string, 2))
	for _, tag := range []string{"one", "two"} {
		_, err = ch.Consume(n, tag, false, false, false, false, nil)
		must(t, err)
	}
	until(t, "the delivery", func() bool { return count(t, ch, n) == 0 }) // never acked
	must(t, ch.Cancel("one", false))
	if gone(t, c, n) {
		t.Fatal("it went before its last consumer")
	}
	must(t, ch.Cancel("two", false))
	until(t, "the end of the queue", func() bool { return gone(t, c, n) })
	must(t, ch.Cancel("none", false)) // what the server sent before has come when this is answered
	select {
	case tag := <-told:
		t.Errorf("told of the end of %q, which the client itself had cancelled", tag)
	default:
	}

	x := name("auto")
	must(t, ch.ExchangeDeclare(x, "fanout", true, true, false, false, nil))
	q := newQueue(t, ch)
	must(t, ch.QueueBind(q, "", x, false, nil))
	must(t, ch.QueueUnbind(q, "", x, nil))
	if err := ch.ExchangeDeclarePassive(x, "fanout", true, true, false, false, nil); err == nil {
		t.Error("the exchange did not go with its last binding")
	}
}

func TestCountsOfReadyAndConsumers(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	q := newQueue(t, ch)
	for range 5 {
		confirmed(t, ch, "", q, amqp091.Publishing{})
	}
	must(t, ch.Qos(2, 0, false))
	d, err := ch.Consume(q, "c", false, false, false, false, nil)
	must(t, err)
	harness.Receive(t, d)
	last := harness.Receive(t, d)
	got, err := ch.QueueDeclare(q, true, false, false, false, nil)
	if err != nil || got.Messages != 3 || got.Consumers != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if n, err := ch.QueuePurge(q, false); n != 3 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	must(t, last.Nack(true, true)) // unacked ones are not purged
	if m := harness.Receive(t, d); !m.Redelivered {
		t.Error("not marked")
	}
	must(t, ch.Cancel("c", false))
	must(t, recoverAll(ch, true))
	until(t, "both to be ready", func() bool { return count(t, ch, q) == 2 })
	if n, err := ch.QueueDelete(q, false, false, false); n != 2 || err != nil {
		t.Errorf("deleted with %d, %v", n, err)
	}
	if n, err := ch.QueueDelete(q, false, false, false); n != 0 || err != nil {
		t.Errorf("a missing one: %d, %v", n, err)
	}
	must(t, ch.ExchangeDelete(name("missing"), false, false))
	q = newQueue(t, ch)
	must(t, ch.QueueUnbind(q, "never", "amq.topic", nil))
}

func TestBindingsRoute(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	topic, fan := name("topic"), name("fan")
	must(t, ch.ExchangeDeclare(topic, "topic", true, false, false, false, nil))
	must(t, ch.ExchangeDeclare(fan, "fanout", false, false, false, false, nil))
	all, some := newQueue(t, ch), newQueue(t, ch)
	must(t, ch.QueueBind(all, "#", topic, false, nil))
	must(t, ch.QueueBind(all, "a.#", topic, false, nil)) // twice matched, once stored
	must(t, ch.QueueBind(some, "a.*.c", topic, false, nil))
	must(t, ch.QueueBind(all, "ignored", fan, false, nil))
	must(t, ch.QueueBind(some, "", fan, false, nil))
	for _, key := range []string{"a.b.c", "a.c", "a.b.c.d", "b", "a..c"} {
		confirmed(t, ch, topic, key, amqp091.Publishing{})
	}
	confirmed(t, ch, fan, "any", amqp091.Publishing{})
	if a, s := count(t, ch, all), count(t, ch, some); a != 6 || s != 3 {
		t.Errorf("%d and %d", a, s)
	}
	must(t, ch.QueueUnbind(some, "a.*.c", topic, nil))
	confirmed(t, ch, topic, "a.b.c", amqp091.Publishing{})
	if s := count(t, ch, some); s != 3 {
		t.Errorf("%d after the unbind", s)
	}
	m, ok, err := ch.Get(some, true)
	if err != nil || !ok || m.Exchange != topic || m.RoutingKey != "a.b.c" {
		t.Errorf("%+v, %v", m, err)
	}
}

// A publish to the default exchange makes the queue, and the first declaration
// settles what it is.
func TestQueueMadeByPublish(t *testing.T) {
	ownOnly(t)
	conn, ch := shared.DialAMQP(t)
	must(t, ch.Confirm(false))
	n := name("made")
	confirmed(t, ch, "", n, amqp091.Publishing{Body: []byte("first")})
	q, err := ch.QueueDeclare(n, true, false, false, false, args{"x-queue-type": "quorum"})
	if err != nil || q.Messages != 1 {
		t.Errorf("%+v, %v", q, err)
	}
	n = name("mandatory")
	returns := ch.NotifyReturn(make(chan amqp091.Return, 1))
	c, err := ch.PublishWithDeferredConfirm("", n, true, false, amqp091.Publishing{})
	must(t, err)
	if !c.Wait() || harness.Receive(t, returns).ReplyCode != 312 {
		t.Error("a mandatory publish was not returned")
	}
	if !gone(t, conn, n) {
		t.Error("a mandatory publish made a queue")
	}
}

func TestExpiration(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	q := newQueue(t, ch)
	confirmed(t, ch, "", q, amqp091.Publishing{Expiration: "1", Body: []byte("gone")})
	confirmed(t, ch, "", q, amqp091.Publishing{Expiration: "600000", Body: []byte("stays")})
	<-time.After(10 * time.Millisecond) // the time itself is what is tested
	m, ok, err := ch.Get(q, true)
	if err != nil || !ok || string(m.Body) != "stays" || len(m.Expiration) != 6 || m.Expiration > "600000" {
		t.Errorf("%s %q, %v", m.Body, m.Expiration, err)
	}
	if _, ok, err := ch.Get(q, true); ok || err != nil {
		t.Error("a second one", err)
	}
}
