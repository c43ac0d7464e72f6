package amqp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// Two consumers share 20,000 confirmed messages: each is settled once, and each
// consumer sees its own in order.
func TestSharedBacklog(t *testing.T) {
	const total = 20_000
	_, ch := shared.DialAMQP(t)
	q := newQueue(t, ch)
	var mu sync.Mutex
	seen := make(map[uint32]int, total)
	var done sync.WaitGroup
	done.Add(total)
	for range 2 {
		cch := newChannel(t)
		must(t, cch.Qos(100, 0, false))
		deliveries, err := cch.Consume(q, "", false, false, false, false, nil)
		must(t, err)
		go func() {
			last := -1
			for d := range deliveries {
				n := binary.BigEndian.Uint32(d.Body)
				if int(n) < last {
					t.Errorf("%d after %d", n, last)
				}
				last = int(n)
				mu.Lock()
				seen[n]++
				mu.Unlock()
				if d.Ack(false) != nil {
					return
				}
				done.Done()
			}
		}()
	}
	must(t, ch.Confirm(false))
	confirms := ch.NotifyPublish(make(chan amqp091.Confirmation, total))
	for i := range total {
		must(t, ch.PublishWithContext(t.Context(), "", q, false, false, amqp091.Publishing{Body: binary.BigEndian.AppendUint32(nil, uint32(i))}))
	}
	for i := range total {
		if f := harness.Receive(t, confirms); !f.Ack || f.DeliveryTag != uint64(i+1) {
			t.Fatalf("confirm %d: %+v", i, f)
		}
	}
	done.Wait()
	if len(seen) != total {
		t.Errorf("%d different ones", len(seen))
	}
	until(t, "an empty queue", func() bool { return count(t, ch, q) == 0 })
}

func fill(t *testing.T, ch *amqp091.Channel, q string, n int) {
	t.Helper()
	must(t, ch.Confirm(false))
	for i := range n {
		confirmed(t, ch, "", q, amqp091.Publishing{Body: []byte{byte(i)}})
	}
}

// What comes back goes to its place, by whatever way it came back.
func TestGivenBackInPlace(t *testing.T) {
	for how, back := range map[string]func(c *amqp091.Connection, ch *amqp091.Channel, first, last amqp091.Delivery) error{
		"nack multiple": func(_ *amqp091.Connection, _ *amqp091.Channel, _, last amqp091.Delivery) error {
			return last.Nack(true, true)
		},
		"recover": func(_ *amqp091.Connection, ch *amqp091.Channel, _, _ amqp091.Delivery) error {
			return recoverAll(ch, true)
		},
		"channel":    func(_ *amqp091.Connection, ch *amqp091.Channel, _, _ amqp091.Delivery) error { return ch.Close() },
		"connection": func(c *amqp091.Connection, _ *amqp091.Channel, _, _ amqp091.Delivery) error { return c.Close() },
	} {
		t.Run(how, func(t *testing.T) {
			own := newChannel(t)
			q := newQueue(t, own)
			fill(t, own, q, 6)
			c, ch := shared.DialAMQP(t)
			must(t, ch.Qos(4, 0, false))
			deliveries, err := ch.Consume(q, "c", false, false, false, false, nil)
			must(t, err)
			var held []amqp091.Delivery
			for range 4 {
				held = append(held, harness.Receive(t, deliveries))
			}
			must(t, held[1].Ack(false))
			harness.Receive(t, deliveries) // 4 takes its place
			must(t, ch.Cancel("c", false))
			must(t, back(c, ch, held[0], amqp091.Delivery{DeliveryTag: 5, Acknowledger: ch}))
			until(t, "five to be ready", func() bool { return count(t, own, q) == 5 })
			for _, want := range []byte{0, 2, 3, 4, 5} {
				m, ok, err := own.Get(q, true)
				if err != nil || !ok || m.Body[0] != want || m.Redelivered != (want != 5) {
					t.Errorf("%v %v, want %d; %v", m.Body, m.Redelivered, want, err)
				}
			}
		})
	}
}

func TestRejectedDoesNotComeBack(t *testing.T) {
	ch := newChannel(t)
	q := newQueue(t, ch)
	fill(t, ch, q, 3)
	for i := range 3 {
		m, ok, err := ch.Get(q, false)
		if err != nil || !ok || int(m.MessageCount) != 2-i {
			t.Fatalf("%+v, %v", m, err)
		}
		must(t, m.Reject(false))
	}
	if _, ok, err := ch.Get(q, true); ok || err != nil {
		t.Error("a refused one came back", err)
	}
}

func TestPrefetchIsPerConsumer(t *testing.T) {
	ch := newChannel(t)
	q := newQueue(t, ch)
	fill(t, ch, q, 50)
	var feeds []<-chan amqp091.Delivery
	for _, n := range []int{1, 7} {
		must(t, ch.Qos(n, 0, false)) // holds for consumers to come
		d, err := ch.Consume(q, "", false, false, false, false, nil)
		must(t, err)
		feeds = append(feeds, d)
	}
	until(t, "both to be full", func() bool { return count(t, ch, q) == 42 })
	d := harness.Receive(t, feeds[0])
	must(t, d.Ack(false))
	until(t, "one more", func() bool { return count(t, ch, q) == 41 })
}

func TestCancelKeepsTheUnacked(t *testing.T) {
	ch := newChannel(t)
	q := newQueue(t, ch)
	fill(t, ch, q, 10)
	must(t, ch.Qos(3, 0, false))
	deliveries, err := ch.Consume(q, "c", false, false, false, false, nil)
	must(t, err)
	var held []amqp091.Delivery
	held = append(held, harness.Receive(t, deliveries))
	must(t, ch.Cancel("c", false))
	for d := range deliveries { // the library closes it after what came before cancel-ok
		held = append(held, d)
	}
	if len(held) != 3 || count(t, ch, q) != 7 {
		t.Fatalf("%d held, %d ready", len(held), count(t, ch, q))
	}
	if got, err := ch.QueueDeclarePassive(q, true, false, false, false, nil); err != nil || got.Consumers != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := newChannel(t).Consume(q, "other", true, true, false, false, nil); err != nil {
		t.Errorf("it still counts as a consumer: %v", err)
	}
	must(t, held[2].Ack(true)) // unacked ones are still the client's to settle
	must(t, ch.Cancel("c", false))
	q = newQueue(t, ch)
	if _, err := ch.Consume(q, "c", false, false, false, false, nil); err != nil {
		t.Errorf("the tag is not free: %v", err)
	}
}

func TestConsumerIsToldOfDeletedQueue(t *testing.T) {
	c, ch := shared.DialAMQP(t)
	q := newQueue(t, ch)
	fill(t, ch, q, 1)
	deliveries, err := ch.Consume(q, "tag", false, false, false, false, nil)
	must(t, err)
	d := harness.Receive(t, deliveries)
	cancels := ch.NotifyCancel(make(chan string, 1))
	_, err = channel(t, c).QueueDelete(q, false, false, false)
	must(t, err)
	if tag := harness.Receive(t, cancels); tag != "tag" {
		t.Error(tag)
	}
	must(t, d.Ack(false)) // of no effect, and no error
	newQueue(t, ch)
}

func TestAutoAckSettlesAtOnce(t *testing.T) {
	ch := newChannel(t)
	q := newQueue(t, ch)
	fill(t, ch, q, 100)
	deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
	must(t, err)
	for i := range 100 {
		if d := harness.Receive(t, deliveries); d.Body[0] != byte(i) {
			t.Fatalf("%d: %v", i, d.Body)
		}
	}
	must(t, ch.Close())
	if n := count(t, newChannel(t), q); n != 0 {
		t.Errorf("%d came back", n)
	}
}

// A group beside the queue's own reads the same records.
func TestShareAddress(t *testing.T) {
	ownOnly(t)
	ch := newChannel(t)
	q := newQueue(t, ch)
	address := "$share/audit/" + q
	audit, err := ch.Consume(address, "", false, false, false, false, nil)
	must(t, err)
	own, err := ch.Consume(q, "", false, false, false, false, nil)
	must(t, err)
	fill(t, ch, q, 3)
	for i := range 3 {
		a, o := harness.Receive(t, audit), harness.Receive(t, own)
		if a.Body[0] != byte(i) || o.Body[0] != byte(i) {
			t.Errorf("%v, %v", a.Body, o.Body)
		}
		must(t, a.Ack(false))
	}
}

func TestLargeMessages(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	q := newQueue(t, ch)
	deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
	must(t, err)
	for _, n := range []int{0, 131_064, 131_065, 5 << 20, 16 << 20} {
		body := bytes.Repeat([]byte{byte(n)}, n)
		closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
		c, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp091.Publishing{Body: body})
		must(t, err)
		if !c.Wait() {
			t.Fatalf("%d bytes are not confirmed: %v", n, <-closed)
		}
		d := harness.Receive(t, deliveries)
		if !bytes.Equal(d.Body, body) {
			t.Errorf("%d bytes came back as %d", n, len(d.Body))
		}
		must(t, d.Ack(false))
	}
}

func TestPropertiesComeBack(t *testing.T) {
	ch := newChannel(t)
	must(t, ch.Confirm(false))
	q := newQueue(t, ch)
	full := amqp091.Publishing{
		Headers:     args{"n": int64(5), "t": args{"x": []any{int32(1), "a"}}, "s": "é", "b": []byte{0xff}, "v": nil, "f": 1.5, "ts": time.Unix(5, 0)},
		ContentType: "a/b", ContentEncoding: "c", DeliveryMode: 2, Priority: 3, CorrelationId: "d", ReplyTo: "e", MessageId: "f",
		Timestamp: time.Unix(1_700_000_000, 0), Type: "g", UserId: "guest", AppId: "h", Body: []byte("body"),
	}
	for _, p := range []amqp091.Publishing{full, {}, {DeliveryMode: 1, Headers: args{"content-type": "mine", "x-kafka-key": "key"}}} {
		confirmed(t, ch, "", q, p)
		m, ok, err := ch.Get(q, true)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		back := amqp091.Publishing{
			Headers: m.Headers, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, DeliveryMode: m.DeliveryMode, Priority: m.Priority,
			CorrelationId: m.CorrelationId, ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageId: m.MessageId, Timestamp: m.Timestamp,
			Type: m.Type, UserId: m.UserId, AppId: m.AppId, Body: m.Body,
		}
		if len(p.Headers) == 0 {
			back.Headers = nil
		}
		if got, want := fmt.Sprintf("%+v", back), fmt.Sprintf("%+v", p); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
