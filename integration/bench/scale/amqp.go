package main

import (
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// openAMQP opens a connection and a channel.
func openAMQP(n *node) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial("amqp://guest:guest@" + n.amqp)
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	return conn, ch, err
}

// fill publishes count messages of 100 bytes with confirms.
func fill(n *node, queue string, count int) (rate float64, err error) {
	const outstanding = 10_000
	conn, ch, err := openAMQP(n)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := ch.Confirm(false); err != nil {
		return 0, err
	}
	acks := ch.NotifyPublish(make(chan amqp.Confirmation, outstanding))
	begin, open := time.Now(), 0
	p := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, 100)}
	take := func() error {
		c, ok := <-acks
		if !ok || !c.Ack {
			return fmt.Errorf("not confirmed: %v", c)
		}
		open--
		return nil
	}
	for range count {
		if open == outstanding {
			if err := take(); err != nil {
				return 0, err
			}
		}
		if err := ch.Publish("", queue, false, false, p); err != nil {
			return 0, err
		}
		open++
	}
	for open > 0 {
		if err := take(); err != nil {
			return 0, err
		}
	}
	return float64(count) / time.Since(begin).Seconds(), nil
}

// empty consumes count messages.
func empty(n *node, queue string, count int) (rate float64, err error) {
	conn, ch, err := openAMQP(n)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := ch.Qos(2000, 0, false); err != nil {
		return 0, err
	}
	in, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	for i := range count {
		select {
		case d, ok := <-in:
			if !ok {
				return 0, fmt.Errorf("the connection ended after %d messages", i)
			}
			if i%500 == 499 || i == count-1 {
				if err := d.Ack(true); err != nil {
					return 0, err
				}
			}
		case <-time.After(time.Minute):
			return 0, fmt.Errorf("only %d of %d messages came", i, count)
		}
	}
	return float64(count) / time.Since(begin).Seconds(), nil
}

func declare(ch *amqp.Channel, queue string) error {
	_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	return err
}

// amqpBacklog: many small messages wait in one durable queue.
func amqpBacklog(o *options) error {
	return withNode(o, func(n *node) error {
		conn, ch, err := openAMQP(n)
		if err != nil {
			return err
		}
		if err := declare(ch, "backlog"); err != nil {
			return err
		}
		_ = conn.Close()
		rate, err := fill(n, "backlog", o.messages)
		if err != nil {
			return err
		}
		say("AMQP backlog: publish", "%d, %.0f/s", o.messages, rate)
		n.phase("AMQP backlog: writing")
		if err := n.restarts("AMQP backlog"); err != nil {
			return err
		}
		n.phase("AMQP backlog: waiting")
		if rate, err = empty(n, "backlog", o.messages); err != nil {
			return err
		}
		say("AMQP backlog: consume", "%.0f/s", rate)
		n.phase("AMQP backlog: draining")
		return nil
	})
}

// manyQueues: durable queues that nothing happens in.
func manyQueues(o *options) error {
	return withNode(o, func(n *node) error {
		conn, ch, err := openAMQP(n)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := declare(ch, "busy"); err != nil {
			return err
		}
		alone, err := fill(n, "busy", 300_000)
		if err != nil {
			return err
		}
		rss, files, begin := n.status("VmRSS"), n.files(), time.Now()
		for i := range o.queues {
			if err := declare(ch, fmt.Sprintf("idle-%05d", i)); err != nil {
				return err
			}
		}
		say("queues: declare", "%d, %.0f/s", o.queues, float64(o.queues)/time.Since(begin).Seconds())
		for i := range o.queues {
			if err := ch.Publish("", fmt.Sprintf("idle-%05d", i), false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: make([]byte, 100)}); err != nil {
				return err
			}
		}
		beside, err := fill(n, "busy", 300_000)
		if err != nil {
			return err
		}
		say("queues: RSS, open files", "%d -> %d MiB, %d -> %d", rss>>20, n.status("VmRSS")>>20, files, n.files())
		say("queues: publish to one, alone and beside", "%.0f/s, %.0f/s", alone, beside)
		_ = conn.Close()
		if err := n.restarts("queues"); err != nil {
			return err
		}
		if _, err := empty(n, fmt.Sprintf("idle-%05d", o.queues-1), 1); err != nil {
			return err
		}
		say("queues: open files after the start", "%d", n.files())
		return nil
	})
}
