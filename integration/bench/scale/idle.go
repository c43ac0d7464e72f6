package main

import (
	"fmt"
	"time"
)

// idleConnections: MQTT connections that do nothing, every second one with a
// session that has a subscription.
func idleConnections(o *options) error {
	return withNode(o, func(n *node) error {
		conn, ch, err := openAMQP(n)
		if err != nil {
			return err
		}
		if err := declare(ch, "busy"); err != nil {
			return err
		}
		_ = conn.Close()
		alone, err := fill(n, "busy", 300_000)
		if err != nil {
			return err
		}
		rss, begin := n.status("VmRSS"), time.Now()
		conns := make([]*mqttConn, 0, o.idle)
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for i := range o.idle {
			c, err := dialMQTT(n.mqtt, fmt.Sprintf("idle-%05d", i), i%2 == 0, true)
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			conns = append(conns, c)
			if err := c.subscribe(fmt.Sprintf("idle/%d/+", i)); err != nil {
				return err
			}
		}
		took := time.Since(begin)
		time.Sleep(3 * time.Second) // garbage of connecting is collected
		more := n.status("VmRSS") - rss
		say("idle: connect and subscribe", "%d, %.0f/s", o.idle, float64(o.idle)/took.Seconds())
		say("idle: RSS", "%d MiB, %.1f KiB a connection", n.status("VmRSS")>>20, float64(more)/1024/float64(o.idle))
		cpu := n.cpu()
		time.Sleep(10 * time.Second) // what is measured is that nothing happens
		say("idle: CPU in 10 s", "%d ms", (n.cpu() - cpu).Milliseconds())
		beside, err := fill(n, "busy", 300_000)
		if err != nil {
			return err
		}
		say("idle: publish to a queue, alone and beside", "%.0f/s, %.0f/s", alone, beside)
		return nil
	})
}
