package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// parting is a way in which a consumer is parted from the node that serves, while its
// connection to its own node lives on.
type parting struct {
	name string
	at   func(*arena) *harness.Node // where the consumer is
	part func(*arena, *harness.Node)
	join func(*arena, *harness.Node)
}

// hangs stops the process of a node, and lets it go on.
func hangs(name string, at func(*arena) *harness.Node) parting {
	return parting{
		name, at,
		func(a *arena, n *harness.Node) { a.must(n.Pause(), "pause node %d", n.ID) },
		func(a *arena, n *harness.Node) { a.must(n.Continue(), "continue node %d", n.ID) },
	}
}

// cut cuts a node off from the others, but not from its clients.
func cut(name string, at func(*arena) *harness.Node) parting {
	return parting{
		name, at,
		func(a *arena, n *harness.Node) {
			for _, other := range a.others(n) {
				a.c.Net.Both(n.ID, other.ID, harness.Link{Cut: true})
			}
		},
		func(a *arena, _ *harness.Node) { a.c.Net.Heal() },
	}
}

// TestStaleHolderSettlesNothing: a consumer holds two records, and is parted from the
// node that serves; another one, by way of another node, gets what it held. What the
// first one settles then, while it is parted and afterwards, changes nothing: the second
// one gives both back, and both come again.
func TestStaleHolderSettlesNothing(t *testing.T) {
	full(t)
	for _, p := range []parting{
		hangs("the leader hangs", (*arena).leader),
		hangs("a follower hangs", (*arena).follower),
		{
			"the leader hands over", (*arena).leader,
			func(a *arena, n *harness.Node) { a.lead(a.others(n)[0]) },
			func(*arena, *harness.Node) {},
		},
	} {
		stale(t, harness.ClusterConfig{Nodes: 3}, p)
	}
}

// TestStaleHolderCutOff is the same with nodes that are cut off: they go on to serve
// their clients as far as they can.
func TestStaleHolderCutOff(t *testing.T) {
	full(t)
	for _, p := range []parting{cut("the leader is cut off", (*arena).leader), cut("a follower is cut off", (*arena).follower)} {
		stale(t, harness.ClusterConfig{Nodes: 3, Network: true}, p)
	}
}

func stale(t *testing.T, config harness.ClusterConfig, p parting) {
	t.Run(p.name, func(t *testing.T) {
		a := &arena{t: t, c: harness.StartCluster(t, config), rng: rand.New(rand.NewPCG(13, 1))}
		a.whole()
		for _, exclusive := range []bool{true, false} {
			a.staleHolder(p, exclusive)
		}
	})
}

// staying opens a connection that outlasts a node that hangs.
func staying(t *testing.T, n *harness.Node) *connection {
	t.Helper()
	conn, err := amqp.DialConfig("amqp://"+harness.ClusterUser+":"+harness.ClusterPassword+"@"+n.AMQP+"/", amqp.Config{
		Heartbeat: time.Minute, Dial: amqp.DefaultDial(healed),
	})
	harness.Must(t, err)
	c := &connection{conn: conn, closed: conn.NotifyClose(make(chan *amqp.Error, 1))}
	t.Cleanup(c.close)
	c.ch, err = conn.Channel()
	harness.Must(t, err)
	harness.Must(t, c.ch.Qos(2, 0, false))
	return c
}

// staleHolder plays it once. A consumer that is not exclusive is there together with
// the second one, and may itself get again what that one gives back.
func (a *arena) staleHolder(p parting, exclusive bool) {
	a.t.Helper()
	queue := harness.Name("stale")
	n := p.at(a)
	first, second := staying(a.t, n), staying(a.t, a.others(n)[1])
	harness.Declare(a.t, second.ch, queue)
	harness.Must(a.t, second.ch.Confirm(false))
	mine, err := first.ch.Consume(queue, "", false, exclusive, false, false, nil)
	harness.Must(a.t, err)
	for i := range 2 {
		harness.Confirmed(a.t, second.ch, "", queue, amqp.Publishing{Body: fmt.Append(nil, i), DeliveryMode: amqp.Persistent})
	}
	old := []amqp.Delivery{harness.Receive(a.t, mine), harness.Receive(a.t, mine)}
	var theirs <-chan amqp.Delivery
	if !exclusive {
		theirs = a.takesOver(second, queue, false)
	}
	begin := time.Now()
	p.part(a, n)
	if exclusive {
		theirs = a.takesOver(second, queue, true)
	}
	held := []amqp.Delivery{harness.Receive(a.t, theirs), harness.Receive(a.t, theirs)}
	took := time.Since(begin)
	harness.Must(a.t, old[0].Ack(false))
	p.join(a, n)
	a.whole()
	harness.Must(a.t, old[1].Ack(false))
	if _, err := first.ch.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
		a.t.Errorf("the channel of the first one has gone: %v", err) // else its settlements have been seen
	}
	for _, d := range held {
		harness.Must(a.t, d.Nack(false, true))
	}
	if exclusive {
		mine = nil // closed, as its consumer was cancelled
	}
	a.comeAgain(mine, theirs)
	harness.Wait(a.t, harness.Patience, "all is settled", func() bool {
		q, err := second.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && q.Messages == 0
	})
	first.close()
	second.close()
	a.lead(a.others(a.leader())[0])
	third := staying(a.t, a.leader())
	defer third.close()
	if d, ok, err := third.ch.Get(queue, false); ok || err != nil {
		a.t.Errorf("settled, and still there: %q, %v", d.Body, err)
	}
	a.t.Logf("exclusive: %v; the second one has what the first one held after %v", exclusive, took.Round(time.Millisecond))
}

// takesOver makes a client a consumer, as soon as it may be.
func (a *arena) takesOver(c *connection, queue string, exclusive bool) (d <-chan amqp.Delivery) {
	a.t.Helper()
	harness.Wait(a.t, healed, "the second one consumes", func() (ok bool) {
		var err error
		if c.ch, err = c.conn.Channel(); err == nil {
			err = c.ch.Qos(2, 0, false)
		}
		harness.Must(a.t, err)
		d, err = c.ch.Consume(queue, "", false, exclusive, false, false, nil)
		if err != nil && !answered(err, amqp.AccessRefused) {
			a.t.Fatal(err)
		}
		if err != nil {
			pause(a.t.Context(), retry)
		}
		return err == nil
	})
	return d
}

// comeAgain takes what was given back, by whichever consumer gets it, and settles it.
func (a *arena) comeAgain(mine, theirs <-chan amqp.Delivery) {
	a.t.Helper()
	late := time.NewTimer(healed)
	defer late.Stop()
	came := map[string]bool{}
	for len(came) < 2 {
		var d amqp.Delivery
		select {
		case d = <-mine:
		case d = <-theirs:
		case <-late.C:
			a.t.Fatalf("what the second one has given back does not come again: of two only %v", came)
		}
		if d.Acknowledger == nil {
			a.t.Fatal("a consumer has ended")
		}
		if !d.Redelivered || came[string(d.Body)] {
			a.t.Errorf("%q came, marked as redelivered: %v, before: %v", d.Body, d.Redelivered, came)
		}
		came[string(d.Body)] = true
		harness.Must(a.t, d.Ack(false))
	}
}
