package amqp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// there reports whether a queue exists. On a connection of its own, since asking
// is a use of the queue.
func there(t testing.TB, queue string) bool {
	t.Helper()
	_, err := newChannel(t).QueueDeclarePassive(queue, false, false, false, false, nil)
	if e, ok := err.(*amqp091.Error); ok && e.Code == 404 {
		return false
	}
	must(t, err)
	return true
}

// goneUnasked waits until a queue is gone without asking for it: a message to a
// queue that is not there comes back.
func goneUnasked(t testing.TB, ch *amqp091.Channel, queue string) {
	t.Helper()
	back := ch.NotifyReturn(make(chan amqp091.Return, 1000))
	until(t, queue+" is gone", func() bool {
		c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{})
		must(t, err)
		c.Wait() // false: it went just then
		return len(back) > 0
	})
}

func TestExpiresArgument(t *testing.T) {
	for want, v := range map[string]any{
		"': {value_zero,0}":                    int32(0),
		"': {value_negative,-1}":               int32(-1),
		"': {value_too_large,4294967296000}":   int64(4294967296000),
		"': \"expected integer, got longstr\"": "1000",
	} {
		_, err := newChannel(t).QueueDeclare(name("q"), true, false, false, false, amqp091.Table{"x-expires": v})
		if e, ok := err.(*amqp091.Error); !ok || e.Code != 406 || !strings.HasSuffix(e.Reason, want) {
			t.Errorf("%v: %v, want %q", v, err, want)
		}
	}
	_, err := newChannel(t).QueueDeclare(name("q"), true, false, false, false, amqp091.Table{"x-queue-type": "stream", "x-expires": int32(5)})
	if e, ok := err.(*amqp091.Error); !ok || !strings.HasSuffix(e.Reason, "' of queue type rabbit_stream_queue") {
		t.Errorf("stream: %v", err)
	}
	q := name("q")
	_, err = newChannel(t).QueueDeclare(q, true, false, false, false, amqp091.Table{"x-expires": int32(60000)})
	must(t, err)
	_, err = newChannel(t).QueueDeclare(q, true, false, false, false, amqp091.Table{"x-expires": int32(5)})
	if e, ok := err.(*amqp091.Error); !ok || !strings.HasSuffix(e.Reason, "received '5' but current is '60000'") {
		t.Errorf("redeclare: %v", err)
	}
}

// TestUnusedQueuesExpire: of all kinds, and not while they have a consumer.
func TestUnusedQueuesExpire(t *testing.T) {
	ownOnly(t) // RabbitMQ closes a channel that publishes just as a queue goes
	ch := confirming(t)
	const life = int32(1000) // longer than it takes to use a queue
	used := name("used")
	_, err := ch.QueueDeclare(used, true, false, false, false, amqp091.Table{"x-expires": life})
	must(t, err)
	got, err := ch.Consume(used, "tag", true, false, false, false, nil)
	must(t, err)
	var unused []string
	for _, q := range []struct {
		kind                           string
		durable, autoDelete, exclusive bool
	}{
		{"classic", true, false, false}, {"quorum", true, false, false}, {"classic", false, true, false}, {"classic", false, false, true},
	} {
		n := name("q")
		_, err := ch.QueueDeclare(n, q.durable, q.autoDelete, q.exclusive, false, amqp091.Table{"x-queue-type": q.kind, "x-expires": life})
		must(t, err)
		must(t, ch.QueueBind(n, n, "amq.direct", false, nil))
		unused = append(unused, n)
	}
	for _, n := range unused {
		goneUnasked(t, confirming(t), n)
	}
	harness.Confirmed(t, ch, "", used, amqp091.Publishing{Body: []byte("to whom it is kept for")})
	harness.Receive(t, got)
	must(t, ch.Cancel("tag", false))
	goneUnasked(t, ch, used)
	if there(t, used) {
		t.Error("a late message made it anew")
	}
}

// TestExpiryAfterKill: queues that were being unused when the node died expire
// when it is back, however it ended.
func TestExpiryAfterKill(t *testing.T) {
	ownOnly(t)
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	_, err := ch.QueueDeclare("q", true, false, false, false, amqp091.Table{"x-expires": int32(2000)})
	must(t, err)
	_, err = ch.QueueDeclare("kept", true, false, false, false, amqp091.Table{"x-expires": int32(3600_000)})
	must(t, err)
	b.Kill()
	b.Run()
	_, ch = b.DialAMQP(t)
	must(t, ch.Confirm(false))
	goneUnasked(t, ch, "q")
	_, err = ch.QueueDeclarePassive("kept", true, false, false, false, nil)
	must(t, err)
}

// TestCelery: its event queue has x-expires, x-message-ttl and auto-delete, its
// reply queues x-expires.
func TestCelery(t *testing.T) {
	harness.NeedPython(t, "celery")
	out := harness.Client(t, 2*time.Minute, harness.Python, "celery_events.py", fmt.Sprintf("amqp://guest:guest@%s//", shared.AMQP), name("celery"))
	if !strings.Contains(out, "ok") {
		t.Error(out)
	}
}
