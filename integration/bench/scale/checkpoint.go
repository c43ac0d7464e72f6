package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// checkpoints: what publishers wait for at most while checkpoints with many
// sessions and retained messages are made beside them.
func checkpoints(o *options) error {
	return withNode(o, func(n *node) error {
		for i := range o.sessions {
			c, err := dialMQTT(n.mqtt, fmt.Sprintf("session-%05d", i), false, true)
			if err != nil {
				return err
			}
			filters := make([]string, 10)
			for k := range filters {
				filters[k] = fmt.Sprintf("home/%d/device/%d", i, k)
			}
			err = c.subscribe(filters...)
			_ = c.Close()
			if err != nil {
				return err
			}
		}
		if err := retain(n, o.retained); err != nil {
			return err
		}
		probe, err := dialMQTT(n.mqtt, "probe", true, false)
		if err != nil {
			return err
		}
		defer probe.Close()
		load, err := dialMQTT(n.mqtt, "load", true, false)
		if err != nil {
			return err
		}
		defer load.Close()
		sub, err := dialMQTT(n.mqtt, "drain", false, false)
		if err != nil {
			return err
		}
		defer sub.Close()
		if err := sub.subscribe("load"); err != nil {
			return err
		}
		const bytes, size = 300 << 20, 10 << 10 // some four seals
		var done atomic.Bool
		var work sync.WaitGroup
		work.Go(func() { _ = sub.drain(bytes / size) })
		payload := make([]byte, size)
		work.Go(func() {
			defer done.Store(true)
			if _, err := load.publish(bytes/size, false, func(int) (string, []byte) { return "load", payload }); err != nil {
				fmt.Println(err)
			}
		})
		var slowest time.Duration
		for !done.Load() {
			took, err := probe.publish(1, false, func(int) (string, []byte) { return "home/1/device/1", payload[:100] })
			if err != nil {
				return err
			}
			slowest = max(slowest, took)
		}
		say("checkpoint: slowest confirm beside", "%d ms, %d sessions, %d retained", slowest.Milliseconds(), o.sessions, o.retained)
		work.Wait()
		n.phase("checkpoint: memory")
		return n.restarts("checkpoint")
	})
}
