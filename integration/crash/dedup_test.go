package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// retrier publishes messages with ids, and again after a crash what it is not sure of.
type retrier struct {
	next      int
	unsure    []string // not confirmed
	confirmed []string
}

// publish runs until the connection or ctx ends. It begins with what it is not sure of,
// and with some of what it could be.
func (r *retrier) publish(ctx context.Context, b *harness.Broker) {
	conn, ch, _, err := b.OpenAMQP()
	if err != nil {
		return
	}
	defer conn.Close()
	if ch.Confirm(false) != nil {
		return
	}
	type pending struct {
		id  string
		ack *amqp.DeferredConfirmation
	}
	var line []pending
	settle := func(most int) {
		for len(line) > most {
			p := line[0]
			line = line[1:]
			if ok, err := p.ack.WaitContext(ctx); ok && err == nil {
				r.confirmed = append(r.confirmed, p.id)
			} else {
				r.unsure = append(r.unsure, p.id)
			}
		}
	}
	defer settle(0)
	send := func(id string) bool {
		ack, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", "work", false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Body: []byte(id), Headers: amqp.Table{"x-deduplication-id": id},
		})
		if err != nil {
			r.unsure = append(r.unsure, id)
			return false
		}
		line = append(line, pending{id, ack})
		settle(outstanding)
		return true
	}
	again := append(r.unsure, r.confirmed[max(0, len(r.confirmed)-2*outstanding):]...)
	r.unsure = nil
	for i, id := range again {
		if !send(id) {
			r.unsure = append(r.unsure, again[i+1:]...)
			return
		}
	}
	for ctx.Err() == nil {
		r.next++
		if !send(fmt.Sprint(r.next)) {
			return
		}
	}
}

// TestRetriesAreStoredOnce: a publisher that gives its messages ids, and publishes again
// after each kill -9 what it has no confirm of, has each of them stored once.
func TestRetriesAreStoredOnce(t *testing.T) {
	s := seed()
	t.Logf("seed %d (TRIVIUM_SEED)", s)
	rng := rand.New(rand.NewPCG(s, 2))
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "work")
	r := &retrier{}
	unsure, n := 0, max(rounds()/4, 1)
	for round := range n + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.publish(ctx, b) }()
		<-time.After(time.Duration(300+rng.IntN(1200)) * time.Millisecond)
		if round < n {
			b.Kill()
		}
		cancel()
		<-done
		unsure += len(r.unsure)
		if round < n {
			b.Run()
		}
	}
	log := readAll(t, b, "work")
	missing, twice := 0, 0
	for _, id := range r.confirmed {
		if log[id] == 0 {
			missing++
		}
	}
	for _, n := range log {
		if n > 1 {
			twice++
		}
	}
	if missing > 0 || twice > 0 {
		t.Errorf("%d missing, %d stored twice", missing, twice)
	}
	t.Logf("%d published, %d times unsure, %d in the log", r.next, unsure, len(log))
}
