package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// errGathering refuses publishes while a facade gathers.
var errGathering = &kernel.Error{Code: kernel.CodePressure, Detail: "the clients of other nodes are not back yet"}

// Gather has publishes refused with CodePressure, and Alarms say so (Leader), until wait
// returns, which runs on a goroutine of the broker, with a ctx that ends after limit and
// with the broker. It is for a facade whose clients come from an earlier one: what one of
// them publishes would miss the queues, in memory only, of those that are not back yet.
// Nothing else waits. Call it once, before the first client connects.
func (b *Broker) Gather(limit time.Duration, wait func(ctx context.Context)) {
	over := make(chan struct{})
	b.alarms.gathered.Store(&over)
	b.alarms.change(func(now *Alarms) {
		now.Leader = Alarm{On: true, Since: time.Now(), Reason: errGathering.Detail}
	})
	b.watcher.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, limit)
		defer cancel()
		wait(ctx)
		b.alarms.change(func(now *Alarms) { now.Leader = Alarm{} })
		b.alarms.gathered.Store(nil)
		close(over)
	})
}

// Gathered waits until Gather has ended, or ctx ends: for publishes that are not tried
// again.
func (b *Broker) Gathered(ctx context.Context) {
	over := b.alarms.gathered.Load()
	if over == nil {
		return
	}
	select {
	case <-*over:
	case <-ctx.Done():
	}
}

// Gathered is Broker.Gathered.
func (c *Conn) Gathered(ctx context.Context) { c.b.Gathered(ctx) }

// gathers reports whether Gather has not ended yet. It costs an atomic load.
func (a *alarms) gathers() bool { return a.now.Load().Leader.On }
