// Package history records what the clients of a test saw of a cluster, and judges
// it: nothing confirmed is lost, nothing is invented, nothing comes twice that was
// certain, logs keep order, and what was settled stays settled. It knows no
// protocol and talks to nobody.
package history

import (
	"sync"
	"time"
)

// Outcome is what a publisher knows about one attempt.
type Outcome uint8

const (
	Unknown Outcome = iota // no answer: stored or not
	OK                     // confirmed
	Refused                // certainly not stored
)

// Attempt is one publish of one message.
type Attempt struct {
	Producer string
	Epoch    int // grows with each connection of the producer
	Seq      int // order on that connection
	Begin    time.Time
	End      time.Time // when the outcome was known, or given up
	Outcome  Outcome
}

// message is everything about one payload.
type message struct {
	attempts []*Attempt
	held     []*Holding
}

// Holding is one delivery of a message to a consumer until it is over.
type Holding struct {
	Group, Member string
	Marked        bool // as redelivered
	Begin         time.Time
	Settled       time.Time // when the acceptance was sent; zero: never
	Over          time.Time // when its connection ended; zero: not yet
}

// Topic is the history of one topic. Its methods may be called concurrently.
type Topic struct {
	Name string

	mu       sync.Mutex
	messages map[string]*message
	log      []string // payloads by offset, as replayed at the end
	replayed bool
}

// NewTopic returns an empty history.
func NewTopic(name string) *Topic { return &Topic{Name: name, messages: map[string]*message{}} }

func (t *Topic) message(payload string) *message {
	m := t.messages[payload]
	if m == nil {
		m = &message{}
		t.messages[payload] = m
	}
	return m
}

// Publish notes that an attempt begins. The function returned notes its outcome,
// once; an attempt without one is Unknown.
func (t *Topic) Publish(payload, producer string, epoch, seq int) func(Outcome) {
	a := &Attempt{Producer: producer, Epoch: epoch, Seq: seq, Begin: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.message(payload)
	m.attempts = append(m.attempts, a)
	return func(o Outcome) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if a.End.IsZero() {
			a.Outcome, a.End = o, time.Now()
		}
	}
}

// Deliver notes a delivery and returns what its consumer tells of it later.
func (t *Topic) Deliver(payload, group, member string, marked bool) *Delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := &Holding{Group: group, Member: member, Marked: marked, Begin: time.Now()}
	m := t.message(payload)
	m.held = append(m.held, h)
	return &Delivery{topic: t, holding: h}
}

// Delivery is a message at its consumer.
type Delivery struct {
	topic   *Topic
	holding *Holding
}

// Settle notes that the acceptance has been sent.
func (d *Delivery) Settle() { d.note(&d.holding.Settled) }

// End notes that the consumer's connection is over.
func (d *Delivery) End() { d.note(&d.holding.Over) }

func (d *Delivery) note(at *time.Time) {
	d.topic.mu.Lock()
	defer d.topic.mu.Unlock()
	if at.IsZero() {
		*at = time.Now()
	}
}

// Replayed takes what the log holds in the end, from its first offset on.
func (t *Topic) Replayed(log []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log, t.replayed = log, true
}

// Counts are totals for a summary; Unknown are attempts given up.
type Counts struct{ Messages, Confirmed, Unknown, Refused, Deliveries, Settled, Logged int }

// Counts returns totals.
func (t *Topic) Counts() (c Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Logged = len(t.log)
	for _, m := range t.messages {
		if len(m.attempts) > 0 {
			c.Messages++
		}
		for _, a := range m.attempts {
			switch a.Outcome {
			case OK:
				c.Confirmed++
			case Refused:
				c.Refused++
			default:
				if !a.End.IsZero() {
					c.Unknown++
				}
			}
		}
		c.Deliveries += len(m.held)
		for _, h := range m.held {
			if !h.Settled.IsZero() {
				c.Settled++
			}
		}
	}
	return c
}

// Undelivered returns confirmed payloads that no member of a group has accepted.
func (t *Topic) Undelivered(group string) (payloads []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for payload, m := range t.messages {
		if m.confirmed() == nil {
			continue
		}
		accepted := false
		for _, h := range m.held {
			accepted = accepted || h.Group == group && !h.Settled.IsZero()
		}
		if !accepted {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// confirmed returns the first attempt that was confirmed.
func (m *message) confirmed() *Attempt {
	for _, a := range m.attempts {
		if a.Outcome == OK {
			return a
		}
	}
	return nil
}
