package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// errGathering refuses publishes while a facade gathers.
var errGathering = &kernel.Error{Code: kernel.CodePressure, Detail: "the clients of other nodes are not back yet"}

// gathering is under way.
type gathering struct {
	over chan struct{} // closed at its end
	end  context.CancelFunc
}

// Gather has publishes refused with CodePressure, and Alarms say so (Leader), until wait
// returns, which runs on a goroutine of the broker, with a ctx that ends after limit and
// with the broker. It is for a facade whose clients come from an earlier one: what one of
// them publishes would miss the queues, in memory only, of those that are not back yet.
// Batches for a partition, whose producers would be slow to try again, wait instead, and
// so do declarations of queues that their connection has not declared before: they would
// take the name of one that is not back yet. Who asks for a queue that is missing is
// answered when it ends. Nothing else waits. Retire ends it: what waits has to get its
// outcome. Call it once, before the first client connects.
func (b *Broker) Gather(limit time.Duration, wait func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	g := &gathering{make(chan struct{}), cancel}
	b.alarms.gathered.Store(g)
	b.alarms.change(func(now *Alarms) {
		now.Leader = Alarm{On: true, Since: time.Now(), Reason: errGathering.Detail}
	})
	b.watcher.Go(func() {
		defer cancel()
		wait(ctx)
		b.alarms.change(func(now *Alarms) { now.Leader = Alarm{} })
		b.alarms.gathered.Store(nil)
		close(g.over)
	})
}

// Gathered waits until Gather has ended, or ctx ends: for publishes that are not tried
// again.
func (b *Broker) Gathered(ctx context.Context) { b.gathered(ctx.Done()) }

// Gathered is Broker.Gathered.
func (c *Conn) Gathered(ctx context.Context) { c.b.Gathered(ctx) }

// gathered waits until Gather has ended, or stop is closed.
func (b *Broker) gathered(stop <-chan struct{}) {
	g := b.alarms.gathered.Load()
	if g == nil {
		return
	}
	select {
	case <-g.over:
	case <-stop:
	}
}

// gathers reports whether Gather has not ended yet. It costs an atomic load.
func (a *alarms) gathers() bool { return a.now.Load().Leader.On }
