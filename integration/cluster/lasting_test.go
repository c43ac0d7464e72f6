package cluster

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// lasting is a client of one node that never connects again: it publishes with
// confirms, consumes, and hears of events through a queue of its own.
type lasting struct {
	t      *testing.T
	node   *harness.Node
	conn   *amqp.Connection
	closed chan *amqp.Error
	doomed atomic.Bool // its node is killed

	pub       *amqp.Channel
	confirmed sync.Map // bodies
	nacked    atomic.Int64
	count     atomic.Int64 // confirmed
	seen      *sync.Map    // bodies consumed by all clients
	events    chan string
	own       string
}

func newLasting(t *testing.T, n *harness.Node, seen *sync.Map) *lasting {
	t.Helper()
	c, err := dialAMQP(n)
	harness.Must(t, err)
	k := &lasting{t: t, node: n, conn: c.conn, seen: seen, events: make(chan string, 100)}
	t.Cleanup(func() { _ = k.conn.Close() })
	k.closed = k.conn.NotifyClose(make(chan *amqp.Error, 1))
	k.pub, err = k.conn.Channel()
	harness.Must(t, err)
	harness.Must(t, k.pub.Confirm(false))
	_, err = k.pub.QueueDeclare("work", true, false, false, false, nil)
	harness.Must(t, err)
	k.consume()
	k.listen()
	return k
}

// consume takes from the queue that all share, ten at a time.
func (k *lasting) consume() {
	ch, err := k.conn.Channel()
	harness.Must(k.t, err)
	harness.Must(k.t, ch.Qos(10, 0, false))
	work, err := ch.Consume("work", "", false, false, false, false, nil)
	harness.Must(k.t, err)
	go func() {
		for d := range work {
			k.seen.Store(string(d.Body), true)
			if d.Ack(false) != nil {
				return
			}
		}
	}()
}

// listen makes a queue with a name of the server's making, which gets all events.
func (k *lasting) listen() {
	ch, err := k.conn.Channel()
	harness.Must(k.t, err)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	harness.Must(k.t, err)
	k.own = q.Name
	harness.Must(k.t, ch.QueueBind(q.Name, "", "amq.fanout", false, nil))
	events, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	harness.Must(k.t, err)
	go func() {
		for d := range events {
			k.events <- string(d.Body)
		}
	}()
}

// publish publishes until ctx ends, with a hundred messages under way, and waits for
// their outcomes.
func (k *lasting) publish(ctx context.Context) {
	var waiting sync.WaitGroup
	window := make(chan struct{}, 100)
	for i := 0; ctx.Err() == nil; i++ {
		window <- struct{}{}
		body := fmt.Sprintf("%d-%d", k.node.ID, i)
		confirm, err := k.pub.PublishWithDeferredConfirm("", "work", true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)})
		if err != nil {
			if !k.doomed.Load() {
				k.t.Errorf("node %d: publish: %v", k.node.ID, err)
			}
			break
		}
		waiting.Go(func() {
			defer func() { <-window }()
			within, cancel := context.WithTimeout(context.Background(), healed)
			defer cancel()
			switch ok, err := confirm.WaitContext(within); {
			case err == nil && ok:
				k.confirmed.Store(body, true)
				k.count.Add(1)
			case err == nil:
				k.nacked.Add(1)
			case !k.doomed.Load():
				k.t.Errorf("node %d: no outcome of %s: %v", k.node.ID, body, err)
			}
		})
	}
	waiting.Wait()
}

// moves waits until more is confirmed.
func (k *lasting) moves() {
	k.t.Helper()
	until := time.Now().Add(healed)
	for n := k.count.Load() + 50; k.count.Load() < n; pause(context.Background(), 10*time.Millisecond) {
		select {
		case reason := <-k.closed:
			k.t.Fatalf("node %d: the connection has ended: %v", k.node.ID, reason)
		default:
		}
		if time.Now().After(until) {
			k.t.Fatalf("node %d: nothing is confirmed any more", k.node.ID)
		}
	}
}

// hears waits for an event.
func (k *lasting) hears(event string) {
	k.t.Helper()
	for timeout := time.After(healed); ; {
		select {
		case got := <-k.events:
			if got == event {
				return
			}
		case <-timeout:
			k.t.Fatalf("node %d: %s has not reached %s", k.node.ID, event, k.own)
		}
	}
}

// TestConnectionsOutlastTheLeader: AMQP clients of all nodes keep their connections,
// consumers and queues of their own when the node that serves is drained, with every
// publish confirmed; and when it is killed, those of the other nodes do.
func TestConnectionsOutlastTheLeader(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var seen sync.Map
	var publishing sync.WaitGroup
	var clients []*lasting
	for _, n := range c.Nodes {
		k := newLasting(t, n, &seen)
		clients = append(clients, k)
		publishing.Go(func() { k.publish(ctx) })
	}
	all := func(round int, clients []*lasting) {
		t.Helper()
		for _, k := range clients {
			k.moves()
		}
		for _, from := range clients {
			event := strconv.Itoa(round) + " by " + strconv.Itoa(from.node.ID)
			ch, err := from.conn.Channel()
			harness.Must(t, err)
			harness.Must(t, ch.Publish("amq.fanout", "", false, false, amqp.Publishing{Body: []byte(event)}))
			for _, k := range clients {
				k.hears(event)
			}
			harness.Must(t, ch.Close())
		}
	}
	all(0, clients)
	for round := 1; round <= 3; round++ {
		leader, err := c.Leader(healed)
		harness.Must(t, err)
		harness.Must(t, leader.Drain())
		_, err = c.NextLeader(leader, healed)
		harness.Must(t, err)
		all(round, clients)
		harness.Must(t, leader.Undrain())
	}
	for _, k := range clients {
		if n := k.nacked.Load(); n > 0 {
			t.Errorf("node %d: %d publishes were refused by drains", k.node.ID, n)
		}
	}
	leader, err := c.Leader(healed)
	harness.Must(t, err)
	var left []*lasting
	for _, k := range clients {
		if k.node == leader {
			k.doomed.Store(true)
		} else {
			left = append(left, k)
		}
	}
	leader.Kill()
	all(4, left)
	stop()
	publishing.Wait()
	unknown := int64(0)
	for _, k := range left {
		unknown += k.nacked.Load()
	}
	t.Logf("%d publishes had an unknown outcome when the node that served was killed", unknown)
	consumed(t, clients, &seen)
}

// consumed waits until all that was confirmed has been consumed.
func consumed(t *testing.T, clients []*lasting, seen *sync.Map) {
	t.Helper()
	until := time.Now().Add(healed)
	for _, k := range clients {
		total := 0
		k.confirmed.Range(func(body, _ any) bool {
			total++
			for {
				if _, ok := seen.Load(body); ok {
					return true
				}
				if time.Now().After(until) {
					t.Errorf("%s was confirmed, and is lost", body)
					return false
				}
				pause(context.Background(), 10*time.Millisecond)
			}
		})
		t.Logf("node %d: %d confirmed", k.node.ID, total)
	}
}

// TestNoMajorityBlocks: when two of three nodes are gone AMQP clients of the third are
// blocked, not closed; what they have published meanwhile is confirmed when one is back,
// and what was confirmed before is consumed then.
func TestNoMajorityBlocks(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	var seen sync.Map
	last := c.Nodes[0]
	k := newLasting(t, last, &seen)
	blocked := k.conn.NotifyBlocked(make(chan amqp.Blocking, 100))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var publishing sync.WaitGroup
	publishing.Go(func() { k.publish(ctx) })
	k.moves()
	for _, n := range c.Nodes[1:] {
		n.Kill()
	}
	for timeout := time.After(healed); ; {
		select {
		case b := <-blocked:
			if !b.Active {
				continue
			}
		case reason := <-k.closed:
			t.Fatalf("the connection has ended: %v", reason)
		case <-timeout:
			t.Fatal("the client is not told")
		}
		break
	}
	harness.Must(t, c.Nodes[1].Run())
	k.moves()
	harness.Must(t, c.Nodes[2].Run())
	k.moves()
	stop()
	publishing.Wait()
	consumed(t, []*lasting{k}, &seen)
}

// TestStopWithoutMajority: a node that waits for others, with a client that waits for an
// answer, ends when it is told to.
func TestStopWithoutMajority(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	last := c.Nodes[0]
	conn, err := dialAMQP(last)
	harness.Must(t, err)
	defer conn.close()
	blocked := conn.conn.NotifyBlocked(make(chan amqp.Blocking, 100))
	_, err = conn.ch.QueueDeclare("work", true, false, false, false, nil)
	harness.Must(t, err)
	harness.Must(t, conn.ch.Publish("", "work", false, false, amqp.Publishing{}))
	for _, n := range c.Nodes[1:] {
		n.Kill()
	}
	for timeout := time.After(healed); ; {
		select {
		case b := <-blocked:
			if !b.Active {
				continue
			}
		case <-timeout:
			t.Fatal("the client is not told that nobody serves")
		}
		break
	}
	asked := make(chan error, 1)
	go func() {
		_, err := conn.ch.QueueDeclarePassive("work", true, false, false, false, nil)
		asked <- err
	}()
	begin := time.Now()
	if code, err := last.Stop(); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := <-asked; err == nil {
		t.Error("there was an answer")
	}
}
