package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
	c       *harness.Cluster
	asked   sync.Map     // ids of the requests that have come to who answers them
	done    atomic.Int64 // calls that were answered
	terms   int          // how often a node was to begin to serve so far
	direct  bool         // answers come by direct reply-to, not through queues of those who ask
	stop    context.CancelFunc
	asking  context.Context
	waiting sync.WaitGroup
	over    chan struct{} // closed when nobody asks any more

	mu    sync.Mutex
	wrong []string // what was lost
}

// newCalls starts a cluster.
func newCalls(t *testing.T) *calls {
	t.Helper()
	k := &calls{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), terms: 1, over: make(chan struct{})}
	harness.Must(t, k.c.Whole(healed))
	k.asking, k.stop = context.WithCancel(context.Background())
	t.Cleanup(k.stop)
	return k
}

// blame notes what was lost.
func (k *calls) blame(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wrong = append(k.wrong, fmt.Sprintf(format, args...))
}

// unplanned reports whether a node has begun to serve that was not told to: a machine that
// is too busy for heartbeats makes nodes elect another one, and what is in memory goes.
func (k *calls) unplanned() bool {
	begun := 0
	for _, n := range k.c.Nodes {
		log, err := os.ReadFile(n.Logs)
		harness.Must(k.t, err)
		begun += bytes.Count(log, []byte("this node serves now"))
	}
	return begun > k.terms
}

// judge ends the calls and says what was lost.
func (k *calls) judge() {
	k.t.Helper()
	k.stop()
	k.waiting.Wait()
	close(k.over)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.wrong) > 0 && k.unplanned() {
		k.t.Skipf("there was an election; %d losses, such as %s", len(k.wrong), k.wrong[0])
	}
	for _, w := range k.wrong {
		k.t.Error(w)
	}
	k.t.Logf("%d calls were answered", k.done.Load())
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
	k.t.Cleanup(c.close)
	go func() {
		select {
		case e := <-c.closed:
			k.blame("node %d: a connection was closed: %v", n.ID, e)
		case <-k.over:
		}
	}()
	return c
}

// ask calls one queue after the other, one call at a time, until judge.
func (k *calls) ask(n *harness.Node, name string, queues []string) {
	k.t.Helper()
	c := k.dial(n)
	back := "amq.rabbitmq.reply-to"
	if !k.direct {
		q, err := c.ch.QueueDeclare("", false, true, true, false, nil)
		harness.Must(k.t, err)
		back = q.Name
	}
	answers, err := c.ch.Consume(back, "", true, true, false, false, nil)
	harness.Must(k.t, err)
	k.waiting.Go(func() {
		for i := 0; k.asking.Err() == nil; i++ {
			to, id := queues[i%len(queues)], fmt.Sprint(name, "-", i)
			if err := c.ch.PublishWithContext(k.asking, "", to, false, false, amqp.Publishing{CorrelationId: id, ReplyTo: back}); err != nil {
				if k.asking.Err() == nil {
					k.blame("%s: %v", id, err)
				}
				return
			}
			if !k.answered(answers, id) {
				_, came := k.asked.Load(id)
				k.blame("%s of node %d to %s has no answer (it has come there: %v)", id, n.ID, to, came)
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
			k.blame("%s came once more, or late", a.CorrelationId)
		case <-late.C:
			return false
		}
	}
}

// start has clients of some nodes call each other.
func (k *calls) start(nodes []*harness.Node) {
	k.t.Helper()
	var queues []string
	for _, n := range nodes {
		queues = append(queues, fmt.Sprint("calls-", n.ID))
		k.serve(n, queues[len(queues)-1])
	}
	for _, n := range nodes {
		for i := range 4 {
			k.ask(n, fmt.Sprint(n.ID, "-", i), queues)
		}
	}
	k.moves()
}

// moves waits until more calls are answered.
func (k *calls) moves() {
	k.t.Helper()
	before, begin := k.done.Load(), time.Now()
	harness.Wait(k.t, healed, "calls are answered", func() bool {
		return k.done.Load() > before+100 || time.Since(begin) > healed/2 && k.unplanned()
	})
}

// lead has a node serve in the place of another one.
func (k *calls) lead(n, last *harness.Node) {
	k.t.Helper()
	k.terms++
	harness.Must(k.t, n.Lead())
	k.follows(last)
}

// follows waits until another node than the last one serves, and calls are answered.
func (k *calls) follows(last *harness.Node) *harness.Node {
	k.t.Helper()
	begin := time.Now()
	next, err := k.c.NextLeader(last, healed)
	harness.Must(k.t, err)
	k.moves()
	k.t.Logf("from node %d to %d: calls are answered after %v", last.ID, next.ID, time.Since(begin).Round(time.Millisecond))
	return next
}

// TestCallsOverMoves: clients of all nodes call each other through queues in memory only
// while nodes take over from each other as planned. Every call is answered.
func TestCallsOverMoves(t *testing.T) {
	k := newCalls(t)
	k.start(k.c.Nodes)
	for range planned {
		last, err := k.c.Leader(healed)
		harness.Must(t, err)
		k.lead(k.c.Nodes[last.ID%len(k.c.Nodes)], last)
		harness.Must(t, k.c.Whole(healed))
	}
	k.judge()
}

// TestRepliesOverMoves: as TestCallsOverMoves, with direct reply-to. Every call is
// answered, once.
func TestRepliesOverMoves(t *testing.T) {
	k := newCalls(t)
	k.direct = true
	k.start(k.c.Nodes)
	for range planned / 2 {
		last, err := k.c.Leader(healed)
		harness.Must(t, err)
		k.lead(k.c.Nodes[last.ID%len(k.c.Nodes)], last)
		harness.Must(t, k.c.Whole(healed))
	}
	k.judge()
}

// TestCallsOverRestarts: clients of two nodes call each other, as in TestCallsOverMoves,
// while the third one, which serves, is stopped and started. Every call is answered.
func TestCallsOverRestarts(t *testing.T) {
	full(t)
	k := newCalls(t)
	first := k.c.Nodes[0]
	k.start(k.c.Nodes[1:])
	for range planned / 2 {
		k.terms++
		if code, err := first.Stop(); code != 0 || err != nil {
			t.Errorf("the node ended with code %d, %v", code, err)
		}
		next := k.follows(first)
		harness.Must(t, first.Run())
		harness.Must(t, k.c.Whole(healed))
		k.lead(first, next)
	}
	k.judge()
}
