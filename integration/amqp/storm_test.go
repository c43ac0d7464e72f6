package amqp

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// Consumers whose connections are cut again and again, in the middle of
// deliveries, lose nothing: every confirmed message is acked by somebody.
func TestConnectionsCut(t *testing.T) {
	const total, workers = 5000, 6
	ch := newChannel(t)
	q := newQueue(t, ch)
	must(t, ch.Confirm(false))
	var mu sync.Mutex
	acked := make(map[uint32]bool, total)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for ctx.Err() == nil {
				cutConsumer(t, q, func(n uint32) {
					mu.Lock()
					defer mu.Unlock()
					acked[n] = true
				})
			}
		})
	}
	for i := range total {
		c, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp091.Publishing{Body: binary.BigEndian.AppendUint32(nil, uint32(i))})
		must(t, err)
		if i%100 == 99 && !c.Wait() {
			t.Fatal("not confirmed")
		}
	}
	until(t, "every message to be acked", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) == total
	})
	cancel()
	all.Wait()
}

// cutConsumer consumes for a while, acks what it gets, and then cuts its
// connection with deliveries under way. An ack counts once the server has
// answered something sent after it.
func cutConsumer(t *testing.T, q string, acked func(uint32)) {
	c, ch, socket, err := shared.OpenAMQP()
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	defer socket.Close()
	err = ch.Qos(50, 0, false)
	var deliveries <-chan amqp091.Delivery
	if err == nil {
		deliveries, err = ch.Consume(q, "", false, false, false, false, nil)
	}
	if err != nil {
		t.Error(err)
		return
	}
	var got []uint32
	for len(got) < 200 {
		select {
		case d := <-deliveries:
			if err := d.Ack(false); err != nil {
				t.Error(err)
				return
			}
			got = append(got, binary.BigEndian.Uint32(d.Body))
			continue
		case <-time.After(50 * time.Millisecond):
		}
		break
	}
	if _, err := ch.QueueDeclarePassive(q, true, false, false, false, nil); err != nil {
		t.Error(err)
		return
	}
	for _, n := range got {
		acked(n)
	}
}

// A client that stopped reading does not hold up the end of the node.
func TestShutdownOfStuckClients(t *testing.T) {
	ownOnly(t)
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "q")
	must(t, ch.Confirm(false))
	for range 200 {
		confirmed(t, ch, "", "q", amqp091.Publishing{Body: make([]byte, 100_000)})
	}
	l := leanDial(t, b.AMQP)
	l.call(1, consumeAll("q")) // and no byte is read any more
	until(t, "deliveries", func() bool { return count(t, ch, "q") < 200 })
	began := time.Now()
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
}
