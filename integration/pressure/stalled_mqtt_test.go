package pressure

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// dozers are MQTT subscribers that stop to read all at once.
type dozers struct {
	at   harness.Addresses
	gate sync.RWMutex
	ends sync.WaitGroup

	mu   sync.Mutex
	seen map[string]map[uint64]int // messages, by topic and number
}

// subscribe opens one connection and keeps it open, anew when it is cut off.
func (d *dozers) subscribe(ctx context.Context, id, filter string, ready func()) {
	for ctx.Err() == nil {
		lost := make(chan struct{})
		c, _, err := d.at.OpenMQTT(id, func(o *mqtt.ClientOptions) {
			o.SetKeepAlive(10 * time.Minute).SetConnectionLostHandler(func(mqtt.Client, error) { close(lost) })
			o.SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
				nc, err := net.Dial("tcp", d.at.MQTT)
				if err == nil {
					err = nc.(*net.TCPConn).SetReadBuffer(64 << 10)
				}
				return valve{nc, &d.gate}, err
			})
		})
		if err != nil {
			continue // the gate may be shut
		}
		c.Subscribe(filter, 1, d.note)
		ready()
		ready = func() {}
		select {
		case <-lost:
		case <-ctx.Done():
			c.Disconnect(0)
		}
	}
}

func (d *dozers) note(_ mqtt.Client, m mqtt.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.seen[m.Topic()] == nil {
		d.seen[m.Topic()] = make(map[uint64]int)
	}
	d.seen[m.Topic()][binary.BigEndian.Uint64(m.Payload())]++
}

func (d *dozers) got(topic string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seen[topic])
}

// TestStalledSubscribersOfLargeMessages: many MQTT clients that do not read take no
// more than the node's budget, whether what is large comes from a queue, from
// memory or from what is retained; everything in the queue arrives once they read.
func TestStalledSubscribersOfLargeMessages(t *testing.T) {
	const clients, messages, size, bound = 50, 40, 8 << 20, 1 << 30 // clients of each kind
	b := harness.Start(t, "--memory-limit", "1GiB")                 // an 8th of it is for what waits for MQTT clients
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "large")
	harness.Declare(t, ch, "small")
	harness.Must(t, ch.Confirm(false))
	body := bytes.Repeat([]byte{7}, size)
	publisher := b.DialMQTT(t, "publisher")
	for i := range 4 {
		harness.Done(t, publisher.Publish(fmt.Sprint("kept/", i), 1, true, body))
	}
	d := &dozers{at: b.Addresses, seen: make(map[string]map[uint64]int)}
	ctx, cancel := context.WithCancel(context.Background())
	defer d.ends.Wait()
	defer cancel()
	var ready sync.WaitGroup
	for i := range 2 * clients {
		ready.Add(1)
		d.ends.Go(func() { d.subscribe(ctx, fmt.Sprint("c", i), []string{"$queue/large", "live"}[i%2], ready.Done) })
	}
	ready.Wait()
	d.gate.Lock()
	shut := true
	defer func() {
		if shut {
			d.gate.Unlock()
		}
	}()
	for i := range clients { // they do not read from the start
		c, err := net.Dial("tcp", b.MQTT)
		harness.Must(t, err)
		defer c.Close()
		name := fmt.Sprintf("r%02d", i)
		_, err = c.Write(append([]byte("\x10\x0f\x00\x04MQTT\x04\x02\x00\x00\x00\x03"+name), "\x82\x0b\x00\x01\x00\x06kept/#\x01"...))
		harness.Must(t, err)
	}

	var peak int64
	for i := range messages {
		binary.BigEndian.PutUint64(body, uint64(i))
		harness.Confirmed(t, ch, "", "large", amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
		if i%8 == 0 {
			harness.Done(t, publisher.Publish("live", 1, false, body))
		}
		peak = max(peak, resident(t, b.PID()))
	}
	peak = max(peak, smallOnes(t, b), resident(t, b.PID()))
	t.Logf("at most %d MiB were resident while nobody read", peak>>20)
	if peak > bound {
		t.Errorf("%d MiB are resident while %d clients do not read", peak>>20, 3*clients)
	}
	d.gate.Unlock()
	shut = false
	begin := time.Now()
	harness.Wait(t, 6*harness.Patience, "all large messages", func() bool { return d.got("large") == messages })
	t.Logf("all large messages after %v", time.Since(begin))
}
