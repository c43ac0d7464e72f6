package crash

import (
	"context"
	"fmt"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

const outstanding = 500

// prepare declares what the clients use.
func prepare(t *testing.T, b *harness.Broker) {
	t.Helper()
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "work")
	harness.Declare(t, ch, "sensors", "sensor.#")
	_, err := kadm.NewClient(b.DialKafka(t)).CreateTopic(t.Context(), 1, 1, nil, "events")
	harness.Must(t, err)
}

// sent is a message that waits for its confirm: done is closed when it is known,
// and ok then tells whether it is one.
type sent struct {
	body string
	at   time.Time
	done <-chan struct{}
	ok   func() bool
}

// window notes in a history which of the messages sent are confirmed, and lets
// no more than outstanding wait.
type window struct {
	sent  chan sent
	ended chan struct{}
}

func newWindow(ctx context.Context, h *history) window {
	w := window{sent: make(chan sent, outstanding), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for s := range w.sent {
			select {
			case <-s.done:
				if s.ok() {
					h.confirm(s.body)
				}
			case <-ctx.Done():
			}
			h.wait(time.Since(s.at))
		}
	}()
	return w
}

// close waits for the confirms of all that was sent, or the end of the context.
func (w window) close() {
	close(w.sent)
	<-w.ended
}

// publishAMQP publishes persistent messages with confirms until the connection
// or ctx ends.
func publishAMQP(ctx context.Context, b *harness.Broker, h *history, round int) {
	conn, ch, _, err := b.OpenAMQP()
	if err != nil {
		return
	}
	defer conn.Close()
	if ch.Confirm(false) != nil {
		return
	}
	w := newWindow(ctx, h)
	defer w.close()
	for i := 0; ctx.Err() == nil; i++ {
		body := fmt.Sprintf("amqp-%d-%d", round, i)
		h.publish(body)
		begun := time.Now()
		ack, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", "work", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
		if err != nil {
			break
		}
		w.sent <- sent{body, begun, ack.Done(), ack.Acked}
	}
}

// consumeAMQP consumes and acks until the connection or ctx ends.
func consumeAMQP(ctx context.Context, b *harness.Broker, h *history) {
	conn, ch, _, err := b.OpenAMQP()
	if err != nil {
		return
	}
	defer conn.Close()
	if ch.Qos(200, 0, false) != nil {
		return
	}
	deliveries, err := ch.Consume("work", "", false, false, false, false, nil)
	if err != nil {
		return
	}
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			h.deliver(string(d.Body))
			if d.Ack(false) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// consumeRest consumes the queue to its end: what was confirmed and never acked
// must still come.
func consumeRest(t *testing.T, b *harness.Broker, h *history) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go consumeAMQP(ctx, b, h)
	harness.Wait(t, 60*time.Second, "every confirmed message has been delivered", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for body := range h.confirmed {
			if _, ok := h.acked[body]; !ok {
				return false
			}
		}
		return true
	})
}

func publishMQTT(ctx context.Context, b *harness.Broker, h *history, round int) {
	c, _, err := b.OpenMQTT("crash", func(o *mqtt.ClientOptions) {
		o.SetMessageChannelDepth(outstanding).SetWriteTimeout(time.Second)
	})
	if err != nil {
		return
	}
	defer c.Disconnect(0)
	w := newWindow(ctx, h)
	defer w.close()
	for i := 0; ctx.Err() == nil && c.IsConnected(); i++ {
		body := fmt.Sprintf("mqtt-%d-%d", round, i)
		h.publish(body)
		begun := time.Now()
		tok := c.Publish("sensor/1", 1, false, body)
		w.sent <- sent{body, begun, tok.Done(), func() bool { return tok.Error() == nil }}
	}
}

func publishKafka(ctx context.Context, b *harness.Broker, h *history, round int) {
	c, err := b.OpenKafka(kgo.MaxBufferedRecords(outstanding))
	if err != nil {
		return
	}
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		body := fmt.Sprintf("kafka-%d-%d", round, i)
		h.publish(body)
		c.Produce(ctx, &kgo.Record{Topic: "events", Value: []byte(body)}, func(_ *kgo.Record, err error) {
			if err == nil {
				h.confirm(body)
			}
		})
	}
}

func endOffset(t *testing.T, c *kgo.Client, topic string) int64 {
	t.Helper()
	ends, err := kadm.NewClient(c).ListEndOffsets(t.Context(), topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	end, _ := ends.Lookup(topic, 0)
	return end.Offset
}
