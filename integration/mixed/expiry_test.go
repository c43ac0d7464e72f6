package mixed

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// sessionV5 connects with MQTT 5 as a client whose session is kept, and passes on what
// has come and is acknowledged.
func sessionV5(t *testing.T, addr, id string, clean bool) (*paho.Client, <-chan *paho.Publish) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	harness.Must(t, err)
	got := make(chan *paho.Publish, 10)
	c := paho.NewClient(paho.ClientConfig{Conn: conn, Session: harness.NewAcknowledged(got)})
	expiry := uint32(600)
	_, err = c.Connect(within(t), &paho.Connect{
		ClientID: id, CleanStart: clean, KeepAlive: 60, Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry},
	})
	harness.Must(t, err)
	return c, got
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

// wait lets so much time pass.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	harness.Wait(t, harness.Patience, "the time", func() bool { return time.Now().After(end) })
}

// TestExpirationToMessageExpiry: MQTT 3.3.2-6. What is published over AMQP with an
// expiration comes to an MQTT 5 session with the time that remains, and not at all when
// it is over.
func TestExpirationToMessageExpiry(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Must(t, ch.Confirm(false))
	c, got := sessionV5(t, b.MQTT, "reader", true)
	_, err := c.Subscribe(within(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "a/+", QoS: 1}}})
	harness.Must(t, err)
	send := func(body, expiration string) {
		t.Helper()
		harness.Confirmed(t, ch, "amq.topic", "a.b", amqp.Publishing{Body: []byte(body), Expiration: expiration, DeliveryMode: 2})
	}
	check := func(body string, least, most uint32) {
		t.Helper()
		p := harness.Receive(t, got)
		left := p.Properties.MessageExpiry
		switch {
		case string(p.Payload) != body || p.Topic != "a/b":
			t.Fatalf("%s on %s, want %s", p.Payload, p.Topic, body)
		case most == 0 && left != nil:
			t.Errorf("%s: %d s remain, none was set", body, *left)
		case most > 0 && (left == nil || *left < least || *left > most):
			t.Errorf("%s: %v s remain, want %d to %d", body, left, least, most)
		}
	}
	send("at once", "60000")
	check("at once", 58, 60)
	send("for ever", "")
	check("for ever", 0, 0)
	harness.Must(t, c.Disconnect(&paho.Disconnect{}))
	send("short", "1000")
	send("long", "60000")
	send("last", "")
	wait(t, 2100*time.Millisecond)
	_, got = sessionV5(t, b.MQTT, "reader", false)
	check("long", 40, 58)
	check("last", 0, 0)
}

// TestMessageExpiryToExpiration: what is published over MQTT 5 with a Message Expiry
// Interval comes over AMQP with the milliseconds that remain, and is dead-lettered as
// expired when they are over.
func TestMessageExpiryToExpiration(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	_, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	harness.Must(t, err)
	harness.Must(t, ch.QueueBind("q", "a.b", "amq.topic", false, nil))
	harness.Declare(t, ch, "dead")
	c, _ := sessionV5(t, b.MQTT, "writer", true)
	send := func(body string, seconds uint32) {
		t.Helper()
		p := &paho.Publish{Topic: "a/b", QoS: 1, Payload: []byte(body), Properties: &paho.PublishProperties{}}
		if seconds > 0 {
			p.Properties.MessageExpiry = &seconds
		}
		_, err := c.Publish(within(t), p)
		harness.Must(t, err)
	}
	check := func(body string, least, most int) {
		t.Helper()
		d := get(t, ch, "q")
		harness.Must(t, d.Ack(false))
		left, _ := strconv.Atoi(d.Expiration)
		if string(d.Body) != body || left < least || left > most || (d.Expiration == "") != (most == 0) {
			t.Errorf("%s: %q ms remain, want %s with %d to %d", d.Body, d.Expiration, body, least, most)
		}
	}
	send("at once", 60)
	check("at once", 50_000, 60_000)
	send("short", 1)
	send("long", 60)
	send("last", 0)
	wait(t, 1100*time.Millisecond)
	check("long", 40_000, 58_900)
	check("last", 0, 0)
	d := get(t, ch, "dead")
	if string(d.Body) != "short" || d.Headers["x-first-death-reason"] != "expired" || d.Expiration != "" {
		t.Errorf("%s, %v, expiration %q", d.Body, d.Headers, d.Expiration)
	}
}

// TestExpirationAcrossHops: over MQTT to AMQP, from there over AMQP to MQTT, the
// time goes on.
func TestExpirationAcrossHops(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Must(t, ch.Confirm(false))
	harness.Declare(t, ch, "q", "in.#")
	c, got := sessionV5(t, b.MQTT, "both", true)
	_, err := c.Subscribe(within(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "out/#", QoS: 1}}})
	harness.Must(t, err)
	seconds := uint32(100)
	_, err = c.Publish(within(t), &paho.Publish{Topic: "in/x", QoS: 1, Payload: []byte("m"), Properties: &paho.PublishProperties{MessageExpiry: &seconds}})
	harness.Must(t, err)
	wait(t, 2*time.Second)
	d := get(t, ch, "q")
	harness.Confirmed(t, ch, "amq.topic", "out.x", amqp.Publishing{Body: d.Body, Expiration: d.Expiration})
	p := harness.Receive(t, got)
	if left := p.Properties.MessageExpiry; left == nil || *left > 98 || *left < 80 {
		t.Errorf("%v s remain of 100, after 2", left)
	}
}
