package mixed

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestDeadLetterAcrossProtocols: what an AMQP member refuses, what an MQTT 5
// member refuses with a reason code, and what comes back too often all end in the
// same queue, with their history, and it reads the same over AMQP and Kafka.
func TestDeadLetterAcrossProtocols(t *testing.T) {
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	_, err := ch.QueueDeclare("work", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": int64(1), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
	})
	harness.Must(t, err)
	harness.Declare(t, ch, "dead")
	harness.Must(t, ch.Confirm(false))

	harness.Confirmed(t, ch, "", "work", amqp.Publishing{Body: []byte("nacked"), Headers: amqp.Table{"n": int32(1)}})
	get(t, ch, "work").Nack(false, false)

	harness.Confirmed(t, ch, "", "work", amqp.Publishing{Body: []byte("limit")})
	for range 2 {
		get(t, ch, "work").Reject(true)
	}
	harness.Wait(t, harness.Patience, "two dead letters", func() bool { return ready(t, ch, "dead") == 2 })

	refuseMQTT5(t, b.MQTT, "work", func() {
		p := b.DialMQTT(t, "publisher")
		harness.Done(t, p.Publish("work", 1, false, "refused"))
	})
	harness.Wait(t, harness.Patience, "three dead letters", func() bool { return ready(t, ch, "dead") == 3 })
	if n := ready(t, ch, "work"); n != 0 {
		t.Errorf("%d messages are left", n)
	}

	want := []struct{ body, reason, exchange, key string }{
		{"nacked", "rejected", "", "work"}, {"limit", "delivery_limit", "", "work"}, {"refused", "rejected", "amq.topic", "work"},
	}
	for _, w := range want {
		d := get(t, ch, "dead")
		deaths, _ := d.Headers["x-death"].([]any)
		if string(d.Body) != w.body || len(deaths) != 1 || d.RoutingKey != "dead" {
			t.Fatalf("%s: body %q key %q, deaths %v", w.body, d.Body, d.RoutingKey, d.Headers)
		}
		x := deaths[0].(amqp.Table)
		if x["reason"] != w.reason || x["queue"] != "work" || x["count"] != int64(1) || x["exchange"] != w.exchange ||
			fmt.Sprint(x["routing-keys"]) != "["+w.key+"]" || d.Headers["x-first-death-reason"] != w.reason || d.Headers["x-last-death-queue"] != "work" {
			t.Errorf("%s: %v", w.body, d.Headers)
		}
		if _, ok := x["time"].(time.Time); !ok {
			t.Errorf("%s: time is %T", w.body, x["time"])
		}
	}

	k := b.DialKafka(t, kgo.ConsumeTopics("dead"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	records, err := harness.Records(t.Context(), k, len(want))
	harness.Must(t, err)
	for i, w := range want {
		var deaths []struct {
			Queue, Reason string
			Count         int
			Keys          []string `json:"routing-keys"`
		}
		for _, h := range records[i].Headers {
			if h.Key == "x-death" {
				harness.Must(t, json.Unmarshal(h.Value, &deaths))
			}
		}
		if string(records[i].Value) != w.body || len(deaths) != 1 || deaths[0].Reason != w.reason || deaths[0].Queue != "work" || deaths[0].Count != 1 {
			t.Errorf("%s over Kafka: %s %+v", w.body, records[i].Value, deaths)
		}
	}
}

func get(t *testing.T, ch *amqp.Channel, queue string) amqp.Delivery {
	t.Helper()
	var d amqp.Delivery
	harness.Wait(t, harness.Patience, "a message in "+queue, func() bool {
		var ok bool
		var err error
		d, ok, err = ch.Get(queue, false)
		harness.Must(t, err)
		return ok
	})
	return d
}

func ready(t *testing.T, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	harness.Must(t, err)
	return q.Messages
}

// refuseMQTT5 joins a queue over MQTT 5 and answers the first message with reason
// code 0x80, written by hand: the client library cannot.
func refuseMQTT5(t *testing.T, addr, queue string, joined func()) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	harness.Must(t, err)
	defer c.Close()
	harness.Must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	in := bufio.NewReader(c)
	packet := func(kind byte, body []byte) {
		_, err := c.Write(append([]byte{kind, byte(len(body))}, body...))
		harness.Must(t, err)
	}
	text := func(s string) []byte { return append([]byte{0, byte(len(s))}, s...) }
	connect := append(text("MQTT"), 5, 2, 0, 60, 0)
	packet(0x10, append(connect, text("refuser")...))
	read(t, in, 0x20)
	packet(0x82, append(append([]byte{0, 1, 0}, text("$queue/"+queue)...), 1))
	read(t, in, 0x90)
	joined()
	body := read(t, in, 0x30)
	id := body[2+int(body[1]) : 4+int(body[1])]
	packet(0x40, []byte{id[0], id[1], 0x80})
	packet(0xc0, nil) // answered when the PUBACK has been taken in
	read(t, in, 0xd0)
}

// read returns the body of the next packet, which must be of a kind.
func read(t *testing.T, in *bufio.Reader, kind byte) []byte {
	t.Helper()
	head, err := in.ReadByte()
	harness.Must(t, err)
	size, shift := 0, 0
	for {
		n, err := in.ReadByte()
		harness.Must(t, err)
		size |= int(n&0x7f) << shift
		if shift += 7; n < 0x80 {
			break
		}
	}
	body := make([]byte, size)
	_, err = io.ReadFull(in, body)
	harness.Must(t, err)
	if head&0xf0 != kind {
		t.Fatalf("packet 0x%02x, want 0x%02x", head, kind)
	}
	return body
}
