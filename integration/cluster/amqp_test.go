package cluster

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/cluster/history"
)

// window is how many publishes of a connection wait for their confirm.
const window = 50

// retry is how long clients wait before they connect again.
const retry = 100 * time.Millisecond

// publishAMQP publishes with confirms, on one connection after the other. What was
// not confirmed is published again.
func (l *load) publishAMQP(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		conn, err := dialAMQP(c.node())
		if err == nil {
			if err = conn.ch.Confirm(false); err == nil {
				c.epoch++
				l.publishOn(ctx, c, conn)
			}
			conn.close()
		}
		if err != nil {
			pause(ctx, retry)
		}
	}
}

type inFlight struct {
	payload string
	confirm *amqp.DeferredConfirmation
	outcome func(history.Outcome)
}

// publishOn publishes until the connection ends, or long enough.
func (l *load) publishOn(ctx context.Context, c *client, conn *connection) {
	again := c.pending
	c.pending = nil
	flights, settled := make(chan inFlight, window), make(chan []string, 1)
	go func() {
		var unsure []string
		for f := range flights {
			<-f.confirm.Done() // also when the connection ends
			if f.confirm.Acked() {
				f.outcome(history.OK)
				c.done.Add(1)
				continue
			}
			f.outcome(history.Unknown)
			unsure = append(unsure, f.payload)
		}
		settled <- unsure
	}()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 200 + c.rng.IntN(2000); n > 0 && ctx.Err() == nil && !conn.conn.IsClosed(); n-- {
		<-tick.C
		var payload string
		if len(again) > 0 {
			payload, again = again[0], again[1:]
		} else {
			payload = c.payload()
		}
		outcome := l.work.Publish(payload, c.name, c.epoch, n2seq(n))
		confirm, err := conn.ch.PublishWithDeferredConfirm("", "work", false, false, amqp.Publishing{Body: []byte(payload), DeliveryMode: amqp.Persistent})
		if err != nil {
			outcome(history.Unknown) // some of it may be on its way
			again = append(again, payload)
			break
		}
		flights <- inFlight{payload, confirm, outcome}
	}
	close(flights)
	wait := time.AfterFunc(10*time.Second, conn.close) // a node that neither confirms nor ends
	unsure := <-settled
	wait.Stop()
	c.pending = append(unsure, again...)
	if len(c.pending) > 0 {
		pause(ctx, retry)
	}
}

// n2seq makes a number that grows of one that falls.
func n2seq(n int) int { return -n }

// consumerAMQP consumes with acknowledgements; now and then it gives something back.
func (l *load) consumerAMQP(topic *history.Topic, group, queue string) func(context.Context, *client) {
	return func(ctx context.Context, c *client) {
		for ctx.Err() == nil {
			conn, err := dialAMQP(c.node())
			if err == nil {
				c.epoch++
				err = l.consumeOn(ctx, c, conn, topic, group, queue)
				conn.close()
			}
			if err != nil {
				pause(ctx, retry)
			}
		}
	}
}

func (l *load) consumeOn(ctx context.Context, c *client, conn *connection, topic *history.Topic, group, queue string) error {
	if err := conn.ch.Qos(20, 0, false); err != nil {
		return err
	}
	deliveries, err := conn.ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	var held []*history.Delivery
	over := func() {
		for _, d := range held {
			d.End()
		}
	}
	defer over()
	member, long := memberName(c), time.NewTimer(c.lifetime())
	defer long.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-long.C:
			conn.close() // with messages in hand, which come back
			return nil
		case d, ok := <-deliveries:
			if !ok {
				return amqp.ErrClosed
			}
			h := topic.Deliver(string(d.Body), group, member, d.Redelivered)
			if c.rng.IntN(100) == 0 {
				h.End()
				if err := d.Nack(false, true); err != nil {
					return err
				}
				continue
			}
			held = append(held, h)
			h.Settle()
			if err := d.Ack(false); err != nil {
				return err
			}
			c.done.Add(1)
		}
	}
}
