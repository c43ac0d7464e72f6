package cluster

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// waiter publishes one message after the other, and says since when it waits for an answer.
type waiter struct {
	c     *connection
	queue string
	since atomic.Int64 // Unix nanoseconds
	had   atomic.Int64 // answers
}

func (w *waiter) run(ctx context.Context, t *testing.T) {
	for ctx.Err() == nil {
		w.since.Store(time.Now().UnixNano())
		one, err := w.c.ch.PublishWithDeferredConfirm("", w.queue, false, false, amqp.Publishing{Body: []byte("m"), DeliveryMode: amqp.Persistent})
		if err != nil {
			t.Errorf("publish: %v", err)
			return
		}
		if _, err = one.WaitContext(ctx); err != nil { // an ack or a nack is as good
			return
		}
		w.had.Add(1)
	}
}

// TestResumedNodeAnswers: the node that serves stops for seconds while others elect
// another one, and goes on. What its clients had published has its answer soon after, and
// does not wait for the next change of the leader: an entry that was proposed before and
// is missing when one of the next leader is applied will never come.
func TestResumedNodeAnswers(t *testing.T) {
	full(t)
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), rng: rand.New(rand.NewPCG(17, 1))}
	a.whole()
	for range 3 {
		a.answersAfterPause(a.leader())
	}
}

// answersAfterPause stops a node under load and lets it go on.
func (a *arena) answersAfterPause(n *harness.Node) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	var running sync.WaitGroup
	list := make([]*waiter, 6)
	for i := range list {
		at := n
		if i >= 3 { // somebody gives the next leader something to do
			at = a.others(n)[0]
		}
		list[i] = &waiter{c: staying(a.t, at), queue: harness.Name("resumed")}
		harness.Declare(a.t, list[i].c.ch, list[i].queue)
		harness.Must(a.t, list[i].c.ch.Confirm(false))
		running.Go(func() { list[i].run(ctx, a.t) })
	}
	harness.Wait(a.t, harness.Patience, "load", func() bool {
		return !slices.ContainsFunc(list, func(w *waiter) bool { return w.had.Load() < 100 })
	})
	harness.Must(a.t, n.Pause())
	a.hold(5 * time.Second)
	harness.Must(a.t, n.Continue())
	gone := time.Now()
	harness.Wait(a.t, 5*time.Second, "an answer for all that was published before", func() bool {
		return !slices.ContainsFunc(list, func(w *waiter) bool { return w.since.Load() < gone.UnixNano() })
	})
	a.t.Logf("all has its answer %v after the node went on", time.Since(gone).Round(time.Millisecond))
	cancel()
	running.Wait()
	a.whole()
}
