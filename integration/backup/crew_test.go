package backup

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// Names of what the crew uses.
const (
	queue    = "queue"
	topic    = "topic"
	session  = "session"
	readers  = "readers"
	retained = 40 // names, below retained/
	filler   = 2 << 10
)

// crew publishes numbered messages over all protocols, one after the other in each,
// and knows how many of them are confirmed.
type crew struct {
	amqp, mqtt, kafka atomic.Int64

	stop chan struct{}
	work sync.WaitGroup
}

// body is message i.
func body(i int64) []byte { return fmt.Appendf(nil, "%d %s", i, strings.Repeat(".", filler)) }

// number is that of a message.
func number(b []byte) int64 {
	text, _, _ := strings.Cut(string(b), " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// prepare declares what the crew publishes to: a queue, a topic, and an MQTT session
// that is away.
func prepare(t *testing.T, at harness.Addresses) {
	t.Helper()
	_, ch := at.DialAMQP(t)
	_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
	must(t, err)
	c := at.DialMQTT(t, session, func(o *mqtt.ClientOptions) { o.SetCleanSession(false) })
	harness.Done(t, c.Subscribe("away/#", 1, func(mqtt.Client, mqtt.Message) {}))
	c.Disconnect(100)
}

// enlist starts a crew.
func enlist(t *testing.T, at harness.Addresses) *crew {
	t.Helper()
	c := &crew{stop: make(chan struct{})}
	_, ch := at.DialAMQP(t)
	must(t, ch.Confirm(false))
	m := at.DialMQTT(t, harness.Name("publisher"))
	k := at.DialKafka(t, kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	c.publish(t, &c.amqp, func(i int64) error {
		conf, err := ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body(i)})
		if err != nil {
			return err
		}
		if !conf.Wait() {
			return fmt.Errorf("message %d was refused", i)
		}
		return nil
	})
	c.publish(t, &c.mqtt, func(i int64) error {
		for name, keep := range map[string]bool{"away/x": false, fmt.Sprintf("retained/%d", i%retained): true} {
			tok := m.Publish(name, 1, keep, body(i))
			if !tok.WaitTimeout(harness.Patience) || tok.Error() != nil {
				return fmt.Errorf("publish %d to %s: %w", i, name, tok.Error())
			}
		}
		return nil
	})
	c.publish(t, &c.kafka, func(i int64) error {
		return k.ProduceSync(context.Background(), &kgo.Record{Value: body(i)}).FirstErr()
	})
	t.Cleanup(c.dismiss)
	return c
}

// publish calls send with the next number, again and again.
func (c *crew) publish(t *testing.T, confirmed *atomic.Int64, send func(int64) error) {
	c.work.Go(func() {
		for i := int64(0); ; i++ {
			select {
			case <-c.stop:
				return
			default:
			}
			if err := send(i); err != nil {
				t.Errorf("message %d: %v", i, err)
				return
			}
			confirmed.Store(i + 1)
		}
	})
}

// dismiss ends the work. Idempotent.
func (c *crew) dismiss() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.work.Wait()
}

// counts are how many messages are confirmed.
type counts struct{ amqp, mqtt, kafka int64 }

func (c *crew) confirmed() counts { return counts{c.amqp.Load(), c.mqtt.Load(), c.kafka.Load()} }

// reach waits until so many more messages are confirmed in each protocol.
func (c *crew) reach(t *testing.T, more int64) counts {
	t.Helper()
	was := c.confirmed()
	harness.Wait(t, 3*harness.Patience, "messages are confirmed", func() bool {
		now := c.confirmed()
		return now.amqp >= was.amqp+more && now.mqtt >= was.mqtt+more && now.kafka >= was.kafka+more
	})
	return c.confirmed()
}
