package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/cluster/history"
)

// dedupID is the header with the id by which a message that is published again is known.
const dedupID = "x-deduplication-id"

// repeats is how many publishes come before one that repeats what was confirmed.
const repeats = 20

// publishOnce publishes messages with ids, and each again under its id until it is
// confirmed, by way of any node, over AMQP or MQTT. It does not end before all are, so
// each has to be in the log exactly once.
func (l *load) publishOnce(ctx context.Context, c *client) {
	r := &repeater{load: l, client: c}
	for ctx.Err() == nil {
		r.connect(ctx, ctx)
	}
	last, cancel := context.WithTimeout(context.Background(), 2*healed)
	defer cancel()
	for len(c.pending) > 0 && last.Err() == nil {
		r.connect(ctx, last)
	}
	if len(c.pending) > 0 {
		l.t.Errorf("once: %s has %d messages that nobody confirms", c.name, len(c.pending))
	}
}

// repeater is a publisher that repeats itself.
type repeater struct {
	load   *load
	client *client
	sent   []string // that was confirmed, the newest ones
}

// connect publishes over one connection: new messages until fresh ends, and what is not
// confirmed until ctx does.
func (r *repeater) connect(fresh, ctx context.Context) {
	r.client.epoch++
	over := r.overAMQP
	if r.client.rng.IntN(4) == 0 {
		over = r.overMQTT
	}
	if err := over(fresh, ctx); err != nil || len(r.client.pending) > 0 {
		pause(ctx, retry)
	}
}

// payload chooses what is published next: first of all what is not confirmed. There is
// nothing any more once that is confirmed and fresh has ended.
func (r *repeater) payload(fresh context.Context) (string, bool) {
	c := r.client
	switch {
	case len(c.pending) > 0:
		payload := c.pending[0]
		c.pending = c.pending[1:]
		return payload, true
	case fresh.Err() != nil:
		return "", false
	case len(r.sent) > 0 && c.rng.IntN(repeats) == 0:
		return r.sent[c.rng.IntN(len(r.sent))], true
	}
	return c.payload(), true
}

// confirmed remembers some of what is confirmed, to be repeated now and then.
func (r *repeater) confirmed(payload string) {
	if r.client.done.Add(1); len(r.sent) < window {
		r.sent = append(r.sent, payload)
	} else {
		r.sent[r.client.rng.IntN(window)] = payload
	}
}

// idOf is the id of a message: that part of its payload which no other one has.
func idOf(payload string) string {
	id, _, _ := strings.Cut(payload, " ")
	return id
}

func (r *repeater) overAMQP(fresh, ctx context.Context) error {
	conn, err := dialAMQP(r.client.node())
	if err != nil {
		return err
	}
	defer conn.close()
	if err := conn.ch.Confirm(false); err != nil {
		return err
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var line []inFlight
	settle := func(most int) {
		for len(line) > most {
			f := line[0]
			line = line[1:]
			wait, cancel := context.WithTimeout(ctx, 10*time.Second)
			stored, err := f.confirm.WaitContext(wait)
			cancel()
			if err == nil && stored {
				f.outcome(history.OK)
				r.confirmed(f.payload)
				continue
			}
			f.outcome(history.Unknown)
			r.client.pending = append(r.client.pending, f.payload)
			if err != nil {
				conn.close() // a node that neither confirms nor ends
			}
		}
	}
	defer settle(0)
	for n := 100 + r.client.rng.IntN(1000); n > 0 && ctx.Err() == nil && !conn.conn.IsClosed(); n-- {
		<-tick.C
		payload, ok := r.payload(fresh)
		if !ok {
			return nil
		}
		outcome := r.load.once.Publish(payload, r.client.name, r.client.epoch, n2seq(n))
		confirm, err := conn.ch.PublishWithDeferredConfirm("", "once", false, false, amqp.Publishing{
			Body: []byte(payload), DeliveryMode: amqp.Persistent, Headers: amqp.Table{dedupID: idOf(payload)},
		})
		if err != nil {
			outcome(history.Unknown)
			r.client.pending = append(r.client.pending, payload)
			return err
		}
		line = append(line, inFlight{payload, confirm, outcome})
		settle(window)
	}
	return nil
}

func (r *repeater) overMQTT(fresh, ctx context.Context) error {
	m, broken, err := dialMQTT(ctx, r.client.node(), memberName(r.client), nil)
	if err != nil {
		return err
	}
	defer leave(m)
	for n := 20 + r.client.rng.IntN(200); n > 0 && ctx.Err() == nil && !isClosed(broken); n-- {
		payload, ok := r.payload(fresh)
		if !ok {
			return nil
		}
		p := &paho.Publish{Topic: "once", QoS: byte(1 + r.client.rng.IntN(2)), Payload: []byte(payload), Properties: &paho.PublishProperties{}}
		p.Properties.User.Add(dedupID, idOf(payload))
		outcome := r.load.once.Publish(payload, r.client.name, r.client.epoch, n2seq(n))
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		answer, err := m.Publish(try, p)
		cancel()
		if err == nil && answer.ReasonCode < 0x80 {
			outcome(history.OK)
			r.confirmed(payload)
		} else {
			outcome(history.Unknown)
			r.client.pending = append(r.client.pending, payload)
		}
		if err != nil {
			return err
		}
		pause(ctx, pace)
	}
	return nil
}
