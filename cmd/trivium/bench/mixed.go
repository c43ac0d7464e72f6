package bench

import (
	"context"
	"time"
)

// mixed publishes over MQTT at QoS 1 (Target2) and consumes and acks over AMQP
// (Target) from a durable queue bound to amq.topic. Latency is end to end.
func mixed(ctx context.Context, o Options) (Result, error) {
	o.Outstanding = min(o.Outstanding, packetIDs-1)
	c, err := dialAMQP(o.Target, "", "")
	if err != nil {
		return Result{}, err
	}
	defer c.close()
	if err := c.declare(o.Name, o.QueueType); err != nil {
		return Result{}, err
	}
	if err := c.bind(o.Name, "amq.topic", o.Name); err != nil {
		return Result{}, err
	}
	if err := c.consume(o.Name, o.Prefetch); err != nil {
		return Result{}, err
	}
	var latency histogram
	l := newLedger(o.Publishers)
	return publishMQTT(ctx, o, o.Target2, l, &latency, func(stop *arrivals) error {
		return c.readDeliveries(max(o.Prefetch/4, 1), func(p []byte) (bool, error) {
			pub, seq, sent, err := parse(p)
			if err != nil {
				return false, err
			}
			latency.add(time.Duration(now() - sent))
			return !stop.arrived(l.receive(pub, seq)), nil
		})
	}, c.close)
}
