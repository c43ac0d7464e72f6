package amqp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

func confirming(t testing.TB) *amqp091.Channel {
	t.Helper()
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	return ch
}

func limitedQueue(t testing.TB, ch *amqp091.Channel, args amqp091.Table) string {
	t.Helper()
	q := name("limited")
	_, err := ch.QueueDeclare(q, true, false, false, false, args)
	must(t, err)
	return q
}

// getSoon waits for a message and acknowledges it.
func getSoon(t testing.TB, ch *amqp091.Channel, queue string) amqp091.Delivery {
	t.Helper()
	var d amqp091.Delivery
	until(t, "a message in "+queue, func() bool {
		var ok bool
		var err error
		d, ok, err = ch.Get(queue, true)
		must(t, err)
		return ok
	})
	return d
}

// deaths shows the history of a dead message, newest first.
func deaths(d amqp091.Delivery) string {
	var b strings.Builder
	list, _ := d.Headers["x-death"].([]any)
	for _, x := range list {
		e := x.(amqp091.Table)
		fmt.Fprintf(&b, "%v %v %v %v %v;", e["queue"], e["reason"], e["count"], e["exchange"], e["routing-keys"])
	}
	return b.String()
}

// TestDeadLetterHops: two hops through exchanges; the values are RabbitMQ 3.10's
// for the same declarations, but for x-last-death-*, which it does not have.
func TestDeadLetterHops(t *testing.T) {
	ch := confirming(t)
	x1, x2 := name("dlx"), name("dlx")
	must(t, ch.ExchangeDeclare(x1, "fanout", true, false, false, false, nil))
	must(t, ch.ExchangeDeclare(x2, "direct", true, false, false, false, nil))
	a := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(100), "x-dead-letter-exchange": x1})
	b := limitedQueue(t, ch, amqp091.Table{"x-dead-letter-exchange": x2, "x-dead-letter-routing-key": "final"})
	d := limitedQueue(t, ch, nil)
	must(t, ch.QueueBind(b, "", x1, false, nil))
	must(t, ch.QueueBind(d, "final", x2, false, nil))
	harness.Confirmed(t, ch, "", a, amqp091.Publishing{
		Body: []byte("one"), ContentType: "text/plain", MessageId: "m1", Priority: 3, Expiration: "60000", DeliveryMode: 2,
		Headers: amqp091.Table{"k": int32(1), "s": "x", "x-death": "forged", "x-first-death-queue": "forged"},
	})
	var first amqp091.Delivery
	until(t, "the expired message", func() bool {
		var ok bool
		var err error
		first, ok, err = ch.Get(b, false)
		must(t, err)
		return ok
	})
	if got, want := deaths(first), fmt.Sprintf("%s expired 1  [%s];", a, a); got != want || first.Expiration != "" || first.Exchange != x1 || first.RoutingKey != a {
		t.Errorf("first hop: %q, want %q; %+v", got, want, first)
	}
	must(t, first.Reject(false))
	last := getSoon(t, ch, d)
	if got, want := deaths(last), fmt.Sprintf("%s rejected 1 %s [%s];%s expired 1  [%s];", b, x1, a, a, a); got != want {
		t.Errorf("second hop: %q, want %q", got, want)
	}
	h := last.Headers
	if string(last.Body) != "one" || last.ContentType != "text/plain" || last.MessageId != "m1" || last.Priority != 3 || last.DeliveryMode != 2 ||
		h["k"] != int32(1) || h["s"] != "x" || last.Exchange != x2 || last.RoutingKey != "final" {
		t.Errorf("%+v", last)
	}
	if h["x-first-death-queue"] != a || h["x-first-death-reason"] != "expired" || h["x-first-death-exchange"] != "" ||
		h["x-last-death-queue"] != b || h["x-last-death-reason"] != "rejected" || h["x-last-death-exchange"] != x1 {
		t.Errorf("first and last death: %v", h)
	}
	if e := h["x-death"].([]any)[1].(amqp091.Table); e["original-expiration"] != "60000" {
		t.Errorf("original expiration %v", e)
	}
}

// TestDeadLetterCycle is row 43 of the faults: a message that expires into its own
// queue is dropped; one that was refused on the way goes round.
func TestDeadLetterCycle(t *testing.T) {
	ch := confirming(t)
	q := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(30), "x-dead-letter-exchange": ""})
	harness.Confirmed(t, ch, "", q, amqp091.Publishing{Body: []byte("round")})
	until(t, "its end", func() bool { return count(t, ch, q) == 0 })
	later := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(150)})
	harness.Confirmed(t, ch, "", later, amqp091.Publishing{})
	until(t, "the time in which it would have come back", func() bool { return count(t, ch, later) == 0 })
	if n := count(t, ch, q); n != 0 {
		t.Errorf("%d messages", n)
	}
	wait, work := name("wait"), name("work")
	_, err := ch.QueueDeclare(work, true, false, false, false, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
	must(t, err)
	_, err = ch.QueueDeclare(wait, true, false, false, false, amqp091.Table{"x-message-ttl": int32(20), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": work})
	must(t, err)
	harness.Confirmed(t, ch, "", work, amqp091.Publishing{Body: []byte("again")})
	for round := range 4 {
		var d amqp091.Delivery
		until(t, "the message again", func() bool {
			var ok bool
			d, ok, err = ch.Get(work, false)
			must(t, err)
			return ok
		})
		want := ""
		if round > 0 {
			want = fmt.Sprintf("%s expired %d  [%s];%s rejected %d  [%s];", wait, round, wait, work, round, work)
		}
		if got := deaths(d); got != want {
			t.Fatalf("round %d: %q, want %q", round, got, want)
		}
		must(t, d.Reject(false))
	}
}

// TestPoisonMessage is row 42 of the faults: what crashes every consumer is dead
// after 20 redeliveries.
func TestPoisonMessage(t *testing.T) {
	ch := confirming(t)
	dead := limitedQueue(t, ch, nil)
	q := limitedQueue(t, ch, amqp091.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	harness.Confirmed(t, ch, "", q, amqp091.Publishing{Body: []byte("poison")})
	n := 0
	for count(t, ch, dead) == 0 {
		d, ok, err := ch.Get(q, false)
		must(t, err)
		if !ok {
			continue
		}
		if got, _ := d.Headers["x-delivery-count"].(int64); int(got) != n {
			t.Fatalf("delivery %d has count %d", n, got)
		}
		n++
		must(t, d.Reject(true))
	}
	if n != 21 {
		t.Errorf("%d deliveries, want 21", n)
	}
	if got, want := deaths(getSoon(t, ch, dead)), fmt.Sprintf("%s delivery_limit 1  [%s];", q, q); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOverflow: the three modes, with the confirms that publishers see.
func TestOverflow(t *testing.T) {
	for mode, want := range map[string]struct {
		acks  string
		first string
		dead  string
	}{
		"drop-head":          {"++++", "2", "0 1 "},
		"reject-publish":     {"++--", "0", ""},
		"reject-publish-dlx": {"++--", "0", "2 3 "},
	} {
		t.Run(mode, func(t *testing.T) {
			ch := confirming(t)
			dead := limitedQueue(t, ch, nil)
			q := limitedQueue(t, ch, amqp091.Table{
				"x-max-length": int32(2), "x-overflow": mode, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
			})
			acks := ""
			for i := range 4 {
				c, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp091.Publishing{Body: []byte(fmt.Sprint(i))})
				must(t, err)
				if c.Wait() {
					acks += "+"
				} else {
					acks += "-"
				}
			}
			if acks != want.acks || count(t, ch, q) != 2 {
				t.Errorf("acks %s, %d ready", acks, count(t, ch, q))
			}
			if d := getSoon(t, ch, q); string(d.Body) != want.first {
				t.Errorf("the first is %s", d.Body)
			}
			got := ""
			for range strings.Count(want.dead, " ") {
				got += string(getSoon(t, ch, dead).Body) + " "
			}
			if got != want.dead {
				t.Errorf("dead letters %q, want %q", got, want.dead)
			}
		})
	}
}

// TestTimeToLive: of the queue and of the message, the shorter one; 0 is now or
// never.
func TestTimeToLive(t *testing.T) {
	ch := confirming(t)
	q := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(60000)})
	begin := time.Now()
	harness.Confirmed(t, ch, "", q, amqp091.Publishing{Body: []byte("short"), Expiration: "200"})
	if count(t, ch, q) != 1 && time.Since(begin) < 190*time.Millisecond {
		t.Error("it went at once")
	}
	until(t, "its end", func() bool { return count(t, ch, q) == 0 })
	if d := time.Since(begin); d < 190*time.Millisecond {
		t.Errorf("it went after %v", d)
	}
	now := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(0)})
	harness.Confirmed(t, ch, "", now, amqp091.Publishing{Body: []byte("nobody waits")})
	if n := count(t, ch, now); n != 0 {
		t.Errorf("%d ready", n)
	}
	got, err := ch.Consume(now, "", true, false, false, false, nil)
	must(t, err)
	harness.Confirmed(t, ch, "", now, amqp091.Publishing{Body: []byte("somebody waits")})
	if d := harness.Receive(t, got); string(d.Body) != "somebody waits" {
		t.Errorf("got %s", d.Body)
	}
}

// TestLimitArguments: what RabbitMQ 3.10 says about arguments that are wrong.
func TestLimitArguments(t *testing.T) {
	for want, args := range map[string]amqp091.Table{
		"': {value_negative,-1}":               {"x-message-ttl": int32(-1)},
		"': \"expected integer, got longstr\"": {"x-max-length": "a"},
		"': invalid_overflow":                  {"x-overflow": "foo"},
		"': {unacceptable_type,signedint}":     {"x-overflow": int32(5)},
		"': routing_key_but_no_dlx_defined":    {"x-dead-letter-routing-key": "k"},
		"' of queue type rabbit_classic_queue": {"x-delivery-limit": int32(5)},
		"' of queue type rabbit_stream_queue":  {"x-queue-type": "stream", "x-message-ttl": int32(5)},
		"': invalid_dlx_strategy":              {"x-queue-type": "quorum", "x-dead-letter-strategy": "x"},
	} {
		ch := newChannel(t)
		_, err := ch.QueueDeclare(name("q"), true, false, false, false, args)
		e, ok := err.(*amqp091.Error)
		if !ok || e.Code != 406 || !strings.HasSuffix(e.Reason, want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
	ch := newChannel(t)
	q := limitedQueue(t, ch, amqp091.Table{"x-message-ttl": int32(10)})
	_, err := ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-message-ttl": int64(10)})
	must(t, err)
	_, err = ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-message-ttl": int32(20)})
	if e, ok := err.(*amqp091.Error); !ok || !strings.HasSuffix(e.Reason, "received '20' but current is '10'") {
		t.Errorf("redeclare: %v", err)
	}
}
