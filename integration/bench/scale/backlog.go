package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// withNode runs a scenario on a new node, which is removed after it.
func withNode(o *options, run func(*node) error) error {
	n, err := newNode(o)
	if err != nil {
		return err
	}
	defer n.remove()
	if _, err := n.start(); err != nil {
		return err
	}
	return run(n)
}

// mqttBacklog: many small messages wait for a session. They are below its limit
// in bytes, 256 MiB, with what is stored beside the payload.
func mqttBacklog(o *options) error {
	count := min(o.messages, 1_000_000)
	return withNode(o, func(n *node) error {
		sub, err := dialMQTT(n.mqtt, "reader", false, false)
		if err != nil {
			return err
		}
		if err := sub.subscribe("backlog/#"); err != nil {
			return err
		}
		_ = sub.Close()
		pub, err := dialMQTT(n.mqtt, "writer", true, false)
		if err != nil {
			return err
		}
		begin, payload := time.Now(), make([]byte, 100)
		if _, err := pub.publish(count, false, func(int) (string, []byte) { return "backlog/a", payload }); err != nil {
			return err
		}
		_ = pub.Close()
		say("MQTT backlog: publish", "%d, %.0f/s", count, float64(count)/time.Since(begin).Seconds())
		n.phase("MQTT backlog: writing")
		if err := n.restarts("MQTT backlog"); err != nil {
			return err
		}
		n.phase("MQTT backlog: waiting")
		if sub, err = dialMQTT(n.mqtt, "reader", false, false); err != nil {
			return err
		}
		defer sub.Close()
		begin = time.Now()
		_ = sub.SetDeadline(begin.Add(10 * time.Minute))
		if err := sub.drain(count); err != nil {
			return err
		}
		say("MQTT backlog: read", "%.0f/s", float64(count)/time.Since(begin).Seconds())
		n.phase("MQTT backlog: draining")
		return nil
	})
}

// kafkaBacklog: many small records in one topic.
func kafkaBacklog(o *options) error {
	return withNode(o, func(n *node) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		c, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.AllowAutoTopicCreation(), kgo.MaxBufferedRecords(20_000))
		if err != nil {
			return err
		}
		begin, failed := time.Now(), make(chan error, 1)
		for range o.messages {
			c.Produce(ctx, &kgo.Record{Topic: "backlog", Value: make([]byte, 100)}, func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
		err = c.Flush(ctx)
		c.Close()
		if err != nil {
			return err
		}
		select {
		case err := <-failed:
			return err
		default:
		}
		say("Kafka backlog: produce", "%d, %.0f/s", o.messages, float64(o.messages)/time.Since(begin).Seconds())
		n.phase("Kafka backlog: writing")
		if err := n.restarts("Kafka backlog"); err != nil {
			return err
		}
		n.phase("Kafka backlog: waiting")
		if c, err = kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.ConsumeTopics("backlog"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())); err != nil {
			return err
		}
		defer c.Close()
		begin = time.Now()
		for got := 0; got < o.messages; {
			f := c.PollFetches(ctx)
			if err := f.Err0(); err != nil {
				return fmt.Errorf("after %d records: %w", got, err)
			}
			got += f.NumRecords()
		}
		say("Kafka backlog: read", "%.0f/s", float64(o.messages)/time.Since(begin).Seconds())
		n.phase("Kafka backlog: reading")
		return nil
	})
}
