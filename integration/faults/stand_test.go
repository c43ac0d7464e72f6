// Package faults feeds a node what no honest client sends, and clients that no
// longer listen: one test for each such row of the list in docs/testing.md.
// Every row is tried on the real binary, beside a pair of clients that publishes
// with confirms and consumes all the time.
package faults

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

var must = harness.Must

const (
	kept     = "kept" // queue with what was confirmed before the fault
	keptSize = 20
	// calmly is the longest that the pair beside may wait for a message: long,
	// because the machine that runs the tests has other work.
	calmly = 5 * time.Second
	fewest = 10 // messages of the pair beside a short test
)

// stand is a node with messages that were confirmed, and a pair of clients.
type stand struct {
	*harness.Broker
	t *testing.T
}

// newStand starts a node. At the end of the test it checks that the pair was
// served all the time, that the node grew by no more than so many bytes at any
// moment, that it did not complain of itself, and that all that was confirmed
// is still there after a kill.
func newStand(t *testing.T, growth int64, args ...string) *stand {
	t.Helper()
	s := &stand{Broker: harness.Start(t, args...), t: t}
	_, ch := s.DialAMQP(t)
	harness.Declare(t, ch, kept)
	must(t, ch.Confirm(false))
	for i := range keptSize {
		harness.Confirmed(t, ch, "", kept, amqp.Publishing{DeliveryMode: 2, Body: []byte(strconv.Itoa(i))})
	}
	p := newPair(t, s.Addresses)
	s.ForgetPeak()
	before, _, measured := s.Memory()
	t.Cleanup(func() {
		_, peak, _ := s.Memory()
		p.finish(t)
		if grown := peak - before; measured {
			t.Logf("%d KiB of memory, at most %d KiB more; %d messages beside, the slowest after %v", before>>10, grown>>10, p.n, p.slowest)
			if grown > growth {
				t.Errorf("memory grew by %d bytes, more than %d", grown, growth)
			}
		}
		s.complains()
		s.Kill()
		s.Run()
		s.still(kept, keptSize)
	})
	return s
}

// complains: the faults of clients are no errors of the node's.
func (s *stand) complains() {
	s.t.Helper()
	if out := s.Output(); strings.Contains(out, "panic") || strings.Contains(out, " ERR ") {
		s.t.Errorf("the node complains:\n%s", out)
	}
}

// still checks what a queue holds: the numbers below n in order.
func (s *stand) still(queue string, n int) {
	s.t.Helper()
	_, ch := s.DialAMQP(s.t)
	for i := range n {
		d, ok, err := ch.Get(queue, true)
		if err != nil || !ok || string(d.Body) != strconv.Itoa(i) {
			s.t.Fatalf("%s: message %d is %q, %v, %v", queue, i, d.Body, ok, err)
		}
	}
	if d, ok, err := ch.Get(queue, true); err != nil || ok {
		s.t.Fatalf("%s: one message more: %q, %v", queue, d.Body, err)
	}
}

// count is how many messages are ready.
func (s *stand) count(queue string) int {
	s.t.Helper()
	_, ch := s.DialAMQP(s.t)
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(s.t, err)
	return q.Messages
}

// pair publishes a message, waits for its confirm and for its delivery, and so
// on. Its counts are valid after finish.
type pair struct {
	stop, done chan struct{}
	err        error
	n          int
	slowest    time.Duration
}

func newPair(t *testing.T, at harness.Addresses) *pair {
	t.Helper()
	const queue = "beside"
	_, out := at.DialAMQP(t)
	harness.Declare(t, out, queue)
	must(t, out.Confirm(false))
	_, in := at.DialAMQP(t)
	deliveries, err := in.Consume(queue, "", false, false, false, false, nil)
	must(t, err)
	p := &pair{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ; p.err == nil; p.n++ {
			select {
			case <-p.stop:
				if p.n >= fewest {
					return
				}
				<-tick.C
			case <-tick.C:
			}
			began := time.Now()
			p.err = p.turn(out, queue, deliveries)
			p.slowest = max(p.slowest, time.Since(began))
		}
	}()
	return p
}

func (p *pair) turn(out *amqp.Channel, queue string, deliveries <-chan amqp.Delivery) error {
	c, err := out.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte(strconv.Itoa(p.n))})
	if err != nil {
		return err
	}
	late := time.NewTimer(2 * harness.Patience)
	defer late.Stop()
	select {
	case <-c.Done():
		if !c.Acked() {
			return errors.New("not confirmed")
		}
	case <-late.C:
		return errors.New("no confirm came")
	}
	select {
	case d := <-deliveries:
		if string(d.Body) != strconv.Itoa(p.n) || d.Redelivered {
			return fmt.Errorf("delivery %q, redelivered %v", d.Body, d.Redelivered)
		}
		return d.Ack(false)
	case <-late.C:
		return errors.New("no delivery came")
	}
}

func (p *pair) finish(t *testing.T) {
	t.Helper()
	close(p.stop)
	<-p.done
	if p.err != nil {
		t.Errorf("the pair beside: message %d: %v", p.n, p.err)
	}
	if p.slowest > calmly {
		t.Errorf("the pair beside waited %v", p.slowest)
	}
}
