package mixed

import (
	"context"
	"net"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

const dedupID = "x-deduplication-id"

// identifiedMQTT publishes messages with ids over MQTT 5 and waits for their
// acknowledgements.
func identifiedMQTT(t *testing.T, addr, topic string, qos byte, ids ...string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	harness.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c := paho.NewClient(paho.ClientConfig{Conn: conn})
	_, err = c.Connect(ctx, &paho.Connect{ClientID: harness.Name("writer"), CleanStart: true, KeepAlive: 60})
	harness.Must(t, err)
	for _, id := range ids {
		p := &paho.Publish{Topic: topic, QoS: qos, Payload: []byte("mqtt " + id), Properties: &paho.PublishProperties{}}
		p.Properties.User.Add(dedupID, id)
		res, err := c.Publish(ctx, p)
		harness.Must(t, err)
		if res.ReasonCode != 0 {
			t.Errorf("id %s with QoS %d: reason 0x%02x", id, qos, res.ReasonCode)
		}
	}
	harness.Must(t, c.Disconnect(&paho.Disconnect{}))
}

// TestDeduplicationAcrossProtocols: a message that is published again with its id, over
// AMQP or MQTT, by whomever, is confirmed and not stored again; also after a kill -9 and
// after a stop.
func TestDeduplicationAcrossProtocols(t *testing.T) {
	b := harness.Start(t)
	again := func() *amqp.Channel {
		t.Helper()
		_, ch := b.DialAMQP(t)
		harness.Must(t, ch.Confirm(false))
		harness.Declare(t, ch, "work")
		for _, id := range []any{int32(42), "42", int64(42), "a"} {
			harness.Confirmed(t, ch, "", "work", amqp.Publishing{Body: []byte("amqp"), Headers: amqp.Table{dedupID: id}})
		}
		for qos := byte(1); qos <= 2; qos++ {
			identifiedMQTT(t, b.MQTT, "work", qos, "42", "m", "m", "a")
		}
		harness.Confirmed(t, ch, "", "work", amqp.Publishing{Body: []byte("amqp"), Headers: amqp.Table{dedupID: "m"}})
		if n := ready(t, ch, "work"); n != 3 {
			t.Fatalf("%d messages, want 3", n)
		}
		return ch
	}
	again()
	b.Kill()
	b.Run()
	again()
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	b.Run()
	ch := again()
	for _, want := range []struct {
		body string
		id   any
	}{{"amqp", int32(42)}, {"amqp", "a"}, {"mqtt m", "m"}} {
		if d := get(t, ch, "work"); string(d.Body) != want.body || d.Headers[dedupID] != want.id {
			t.Errorf("%q with headers %v, want %+v", d.Body, d.Headers, want)
		}
	}
	harness.Confirmed(t, ch, "", "work", amqp.Publishing{Body: []byte("amqp"), Headers: amqp.Table{dedupID: "m"}})
	for range 2 { // what has no id is no repeat
		harness.Confirmed(t, ch, "", "work", amqp.Publishing{Body: []byte("amqp")})
	}
	if n := ready(t, ch, "work"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
}

// TestDeduplicationWindow: x-deduplication-window 0 is off; what is no time is refused.
func TestDeduplicationWindow(t *testing.T) {
	b := harness.Start(t)
	conn, ch := b.DialAMQP(t)
	harness.Must(t, ch.Confirm(false))
	_, err := ch.QueueDeclare("off", true, false, false, false, amqp.Table{"x-deduplication-window": int32(0)})
	harness.Must(t, err)
	for range 2 {
		harness.Confirmed(t, ch, "", "off", amqp.Publishing{Headers: amqp.Table{dedupID: "a"}})
	}
	if n := ready(t, ch, "off"); n != 2 {
		t.Errorf("%d messages, want 2", n)
	}
	for _, wrong := range []any{int32(-1), "5m"} {
		ch, err := conn.Channel()
		harness.Must(t, err)
		_, err = ch.QueueDeclare("wrong", true, false, false, false, amqp.Table{"x-deduplication-window": wrong})
		if e, ok := err.(*amqp.Error); !ok || e.Code != amqp.PreconditionFailed {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}
