package main

import (
	"fmt"
	"time"
)

// manyRetained: one retained message on each of very many topics.
func manyRetained(o *options) error {
	n, err := newNode(o)
	if err != nil {
		return err
	}
	defer n.remove()
	if _, err := n.start(); err != nil {
		return err
	}
	if err := retain(n, o.retained); err != nil {
		return err
	}
	n.phase("retained: writing")
	return n.restarts("retained")
}

func retain(n *node, count int) error {
	c, err := dialMQTT(n.mqtt, "retainer", true, false)
	if err != nil {
		return err
	}
	defer c.Close()
	payload := make([]byte, 100)
	begin := time.Now()
	slowest, err := c.publish(count, true, func(i int) (string, []byte) {
		return fmt.Sprintf("plant/%d/line/%d/device/%d", i/10000, i/100%100, i), payload
	})
	if err != nil {
		return err
	}
	took := time.Since(begin)
	say("retained: publish", "%d in %.1f s, %.0f/s, slowest thousand %d ms", count, took.Seconds(), float64(count)/took.Seconds(), slowest.Milliseconds())
	return nil
}
