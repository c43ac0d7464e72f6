package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

const (
	// planned is how many planned moves TestCallsOverMoves makes.
	planned = 6
	// answerTime is how long an answer may take, a move included.
	answerTime = 10 * time.Second
)

// calls are clients of all nodes that ask each other. Whatever they use is in the memory
// of the node that serves only: the queues of those who answer, and those for answers.
type calls struct {
	t       *testing.T
	asked   sync.Map     // ids of the requests that have come to who answers them
	done    atomic.Int64 // calls that were answered
	waiting sync.WaitGroup
}

// serve answers what comes to a queue that only this connection uses.
func (k *calls) serve(n *harness.Node, queue string) {
	k.t.Helper()
	c := k.dial(n)
	_, err := c.ch.QueueDeclare(queue, false, true, true, false, nil)
	harness.Must(k.t, err)
	requests, err := c.ch.Consume(queue, "", true, true, false, false, nil)
	harness.Must(k.t, err)
	go func() {
		for r := range requests {
			k.asked.Store(r.CorrelationId, true)
			if c.ch.PublishWithContext(context.Background(), "", r.ReplyTo, false, false, amqp.Publishing{CorrelationId: r.CorrelationId}) != nil {
				return
			}
		}
	}()
}

// dial opens a connection that is not to be closed before the test ends.
func (k *calls) dial(n *harness.Node) *connection {
	k.t.Helper()
	c, err := dialAMQP(n)
	harness.Must(k.t, err)
	k.t.Cleanup(func() {
		select {
		case e := <-c.closed:
			k.t.Errorf("node %d: a connection was closed: %v", n.ID, e)
		default:
		}
		c.close()
	})
	return c
}

// ask calls one queue after the other, one call at a time, until ctx ends.
func (k *calls) ask(ctx context.Context, n *harness.Node, name string, queues []string) {
	k.t.Helper()
	c := k.dial(n)
	q, err := c.ch.QueueDeclare("", false, true, true, false, nil)
	harness.Must(k.t, err)
	answers, err := c.ch.Consume(q.Name, "", true, true, false, false, nil)
	harness.Must(k.t, err)
	k.waiting.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			to, id := queues[i%len(queues)], fmt.Sprint(name, "-", i)
			if err := c.ch.PublishWithContext(ctx, "", to, false, false, amqp.Publishing{CorrelationId: id, ReplyTo: q.Name}); err != nil {
				if ctx.Err() == nil {
					k.t.Errorf("%s: %v", id, err)
				}
				return
			}
			if !k.answered(answers, id) {
				_, came := k.asked.Load(id)
				k.t.Errorf("%s of node %d to %s has no answer (it has come there: %v)", id, n.ID, to, came)
			}
		}
	})
}

// answered waits for the answer to a call.
func (k *calls) answered(answers <-chan amqp.Delivery, id string) bool {
	late := time.NewTimer(answerTime)
	defer late.Stop()
	for {
		select {
		case a, open := <-answers:
			if !open {
				return false
			}
			if a.CorrelationId == id {
				k.done.Add(1)
				return true
			}
		case <-late.C:
			return false
		}
	}
}

// start has clients of some nodes call each other until ctx ends.
func (k *calls) start(ctx context.Context, nodes []*harness.Node) {
	k.t.Helper()
	var queues []string
	for _, n := range nodes {
		queues = append(queues, fmt.Sprint("calls-", n.ID))
		k.serve(n, queues[len(queues)-1])
	}
	for _, n := range nodes {
		for i := range 4 {
			k.ask(ctx, n, fmt.Sprint(n.ID, "-", i), queues)
		}
	}
	k.moves()
}

// moves waits until more calls are answered.
func (k *calls) moves() {
	k.t.Helper()
	before := k.done.Load()
	harness.Wait(k.t, healed, "calls are answered", func() bool { return k.done.Load() > before+100 })
}

// TestCallsOverMoves: clients of all nodes call each other through queues in memory only
// while nodes take over from each other as planned. Every call is answered.
func TestCallsOverMoves(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	k := &calls{t: t}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	k.start(ctx, c.Nodes)
	for range planned {
		last, err := c.Leader(healed)
		harness.Must(t, err)
		begin := time.Now()
		harness.Must(t, c.Nodes[last.ID%len(c.Nodes)].Lead())
		_, err = c.NextLeader(last, healed)
		harness.Must(t, err)
		k.moves()
		t.Logf("from node %d: calls are answered after %v", last.ID, time.Since(begin).Round(time.Millisecond))
		harness.Must(t, c.Whole(healed))
	}
	stop()
	k.waiting.Wait()
	t.Logf("%d calls were answered", k.done.Load())
}

// TestCallsOverRestarts: clients of two nodes call each other, as in TestCallsOverMoves,
// while the third one, which serves, is stopped and started. Every call is answered.
func TestCallsOverRestarts(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	first := c.Nodes[0]
	k := &calls{t: t}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	k.start(ctx, c.Nodes[1:])
	for range planned / 2 {
		if code, err := first.Stop(); code != 0 || err != nil {
			t.Errorf("the node ended with code %d, %v", code, err)
		}
		next, err := c.NextLeader(first, healed)
		harness.Must(t, err)
		k.moves()
		harness.Must(t, first.Run())
		harness.Must(t, c.Whole(healed))
		harness.Must(t, first.Lead())
		_, err = c.NextLeader(next, healed)
		harness.Must(t, err)
		k.moves()
	}
	stop()
	k.waiting.Wait()
	t.Logf("%d calls were answered", k.done.Load())
}
