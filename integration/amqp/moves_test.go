package amqp

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel/edge"
	front "github.com/trivium-mq/trivium/protocols/amqp"
)

// stage is a node whose facade comes and goes behind an AMQP server that stays.
type stage struct {
	*harness.Stage
	t    *testing.T
	addr string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t}
	s.Stage, s.addr = harness.NewStage(t, func(door *edge.Edge) harness.Server {
		return front.NewServer(front.Config{Edge: door, Logger: zerolog.Nop(), BlockedBuffer: 64 << 10})
	})
	return s
}

func (s *stage) dial() *amqp.Connection {
	s.t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + s.addr)
	harness.Must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestMovesFailNoPublish: the facade moves twenty times under a client that publishes
// and consumes without a pause; its connection stays, every publish is confirmed, and
// what it consumes with a prefetch is all there.
func TestMovesFailNoPublish(t *testing.T) {
	s := newStage(t)
	c := s.dial()
	closed := c.NotifyClose(make(chan *amqp.Error, 1))
	pub, con := channel(t, c), channel(t, c)
	harness.Declare(t, pub, "q")
	harness.Must(t, pub.Confirm(false))
	confirms := pub.NotifyPublish(make(chan amqp.Confirmation, 1<<20))
	harness.Must(t, con.Qos(5, 0, false))
	deliveries, err := con.Consume("q", "", false, false, false, false, nil)
	harness.Must(t, err)
	over := make(chan struct{})
	published := make(chan int, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				published <- i
				return
			default:
			}
			if err := pub.Publish("", "q", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Append(nil, i)}); err != nil {
				t.Errorf("%d: %v", i, err)
				published <- i
				return
			}
		}
	}()
	seen := make(chan map[string]bool, 1)
	wanted := make(chan int, 1)
	go func() {
		bodies, unacked, want := map[string]bool{}, 0, -1
		for want < 0 || len(bodies) < want {
			select {
			case d := <-deliveries:
				bodies[string(d.Body)] = true
				if unacked++; unacked == 5 {
					if err := d.Ack(true); err != nil {
						t.Error(err)
					}
					unacked = 0
				}
			case want = <-wanted:
			case <-time.After(harness.Patience):
				t.Errorf("%d of %d were consumed", len(bodies), want)
				seen <- bodies
				return
			}
		}
		seen <- bodies
	}()
	for range 20 {
		s.Rest()
		s.Serve()
	}
	close(over)
	n := <-published
	for i := range n {
		select {
		case confirm := <-confirms:
			if !confirm.Ack {
				t.Fatalf("%d of %d was refused", confirm.DeliveryTag, n)
			}
		case reason := <-closed:
			t.Fatalf("the connection has ended: %v", reason)
		case <-time.After(harness.Patience):
			t.Fatalf("%d of %d were confirmed", i, n)
		}
	}
	wanted <- n
	if got := len(<-seen); got != n {
		t.Errorf("%d of %d were consumed", got, n)
	}
	t.Logf("%d messages", n)
}

// TestNobodyServesAMQP: while no node serves a client keeps its connection: it is told
// with connection.blocked once it publishes, what it publishes is confirmed later, and
// what it asks is answered later.
func TestNobodyServesAMQP(t *testing.T) {
	s := newStage(t)
	c := s.dial()
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 10))
	ch, other := channel(t, c), channel(t, s.dial())
	harness.Declare(t, ch, "q")
	harness.Must(t, ch.Confirm(false))
	s.Rest()
	confirm, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: []byte("1")})
	harness.Must(t, err)
	if b := <-blocked; !b.Active || b.Reason != "low on nodes" {
		t.Errorf("%+v", b)
	}
	declared := make(chan error, 1)
	go func() {
		_, err := other.QueueDeclare("later", true, false, false, false, nil)
		declared <- err
	}()
	s.Serve()
	if !confirm.Wait() {
		t.Error("the publish was refused")
	}
	harness.Must(t, <-declared)
	if b := <-blocked; b.Active {
		t.Errorf("%+v", b)
	}
	d, ok, err := ch.Get("q", true)
	if err != nil || !ok || string(d.Body) != "1" {
		t.Errorf("%q, %v, %v", d.Body, ok, err)
	}
}

// TestNoAckOverMoves: a consumer without acknowledgements, basic.get and a prefetch of
// the channel go on at the next facade.
func TestNoAckOverMoves(t *testing.T) {
	s := newStage(t)
	c := s.dial()
	ch, shared := channel(t, c), channel(t, c)
	for _, q := range []string{"noack", "get", "a", "b"} {
		harness.Declare(t, ch, q)
	}
	noack, err := ch.Consume("noack", "", true, false, false, false, nil)
	harness.Must(t, err)
	harness.Must(t, shared.Qos(3, 0, true))
	a, err := shared.Consume("a", "a", false, false, false, false, nil)
	harness.Must(t, err)
	b, err := shared.Consume("b", "b", false, false, false, false, nil)
	harness.Must(t, err)
	for round := range 3 {
		body := fmt.Append(nil, round)
		for _, q := range []string{"noack", "get", "a", "b"} {
			harness.Must(t, ch.Publish("", q, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}))
		}
		for name, from := range map[string]<-chan amqp.Delivery{"noack": noack, "a": a, "b": b} {
			select {
			case d := <-from:
				if string(d.Body) != string(body) {
					t.Errorf("%s: %s in round %d", name, d.Body, round)
				}
				if name != "noack" {
					harness.Must(t, d.Ack(false))
				}
			case <-time.After(harness.Patience):
				t.Fatalf("%s: nothing comes", name)
			}
		}
		d, ok, err := ch.Get("get", false)
		if err != nil || !ok || string(d.Body) != string(body) {
			t.Errorf("get: %q, %v, %v", d.Body, ok, err)
		}
		harness.Must(t, d.Ack(false))
		// In order behind the acknowledgements, which the next facade may otherwise not have.
		_, err = shared.QueueDeclarePassive("a", true, false, false, false, nil)
		harness.Must(t, err)
		s.Rest()
		s.Serve()
	}
}
