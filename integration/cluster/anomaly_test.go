package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// The tests of this file are named after anomalies that others have found in other
// systems; docs/testing.md has the list.

// TestJ1PowerLossOfAll: all nodes lose their power at once, again and again, and with
// it what they have not synced. Nothing that was confirmed is among it.
func TestJ1PowerLossOfAll(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3, Faults: true, Lose: true}, 11)
	for range 3 {
		a.strike(nemesis{"power loss of all", func(a *arena) { a.kill(a.nodes()...) }})
	}
	a.judge()
}

// TestJ5CrashAndPartition: one node loses its power while another one cannot reach
// the third; then that one comes back and the links change.
func TestJ5CrashAndPartition(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3, Network: true, Faults: true, Lose: true}, 12)
	for range 2 {
		a.strike(nemesis{"power loss in a partition", func(a *arena) {
			leader := a.leader()
			lost := a.follower()
			third := a.neither(leader, lost)
			lost.Kill()
			a.c.Net.Both(leader.ID, third.ID, harness.Link{Cut: true})
			a.hold(2 * time.Second)
			a.must(lost.Run(), "start")
			a.hold(2 * time.Second)
			a.c.Net.Heal()
			a.c.Net.Both(lost.ID, leader.ID, harness.Link{Cut: true})
			a.hold(2 * time.Second)
			a.c.Net.Heal()
		}})
	}
	a.judge()
}

// TestJ11LastReplicaStanding: the followers go one after the other, the leader stays
// alone and loses its power. It has confirmed nothing that only it had, and the
// followers, back without it, have all that was confirmed.
func TestJ11LastReplicaStanding(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3, Faults: true, Lose: true}, 13)
	a.strike(nemesis{"the last one standing falls", func(a *arena) {
		leader := a.leader()
		var others []*harness.Node
		for _, n := range a.c.Nodes {
			if n != leader {
				n.Kill()
				others = append(others, n)
			}
		}
		a.hold(3 * time.Second) // its lease ends
		before := a.l.work.Counts().Confirmed
		a.hold(2 * time.Second)
		if now := a.l.work.Counts().Confirmed; now > before {
			a.t.Errorf("one node of three has confirmed %d messages", now-before)
		}
		leader.Kill()
		a.must(a.c.RunAll(others...), "start the followers")
		a.l.moves(healed)
		a.must(leader.Run(), "start the leader")
	}})
	a.judge()
}

// TestJ14SomebodyLeads: nodes that are started in any order, some of them killed in
// the middle of it, have a leader in the end, each time.
func TestJ14SomebodyLeads(t *testing.T) {
	full(t)
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), rng: rand.New(rand.NewPCG(14, 0))}
	a.whole()
	for range 5 {
		for _, n := range a.c.Nodes {
			n.Kill()
		}
		order := slices.Clone(a.c.Nodes)
		a.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		a.must(a.c.RunAll(order[:2]...), "start two")
		order[a.rng.IntN(2)].Kill()
		a.must(order[2].Run(), "start the third")
		for _, n := range order[:2] {
			n.Kill() // one of them again
			a.must(n.Run(), "start again")
		}
		a.whole()
	}
}

// TestJ16DeclareIsSeenEverywhere: what was declared by way of one node is there for
// clients of all others as soon as that has been answered, and gone likewise.
func TestJ16DeclareIsSeenEverywhere(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	var conns []*connection
	for _, n := range c.Nodes {
		conn, err := dialAMQP(n)
		harness.Must(t, err)
		defer conn.close()
		conns = append(conns, conn)
	}
	for i := range 50 {
		from := conns[i%3]
		name := harness.Name("seen")
		harness.Declare(t, from.ch, name, name)
		for _, to := range conns {
			_, err := to.ch.QueueDeclarePassive(name, true, false, false, false, nil)
			harness.Must(t, err)
		}
		harness.Must(t, conns[(i+1)%3].ch.Publish("amq.topic", name, true, false, amqp.Publishing{Body: []byte(name)}))
		harness.Wait(t, harness.Patience, "the message is there", func() bool {
			d, ok, err := conns[(i+2)%3].ch.Get(name, true)
			harness.Must(t, err)
			return ok && string(d.Body) == name
		})
		if _, err := conns[(i+1)%3].ch.QueueDelete(name, false, false, false); err != nil {
			t.Fatal(err)
		}
		if q, err := from.ch.QueueDelete(name, false, false, false); err != nil || q != 0 {
			t.Fatal(q, err)
		}
	}
}

// TestRow42PoisonAcrossNodes: a message that every consumer gives back is dead after
// as many returns as the queue allows, although the leader changes in between: the
// count is in the log.
func TestRow42PoisonAcrossNodes(t *testing.T) {
	full(t)
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), rng: rand.New(rand.NewPCG(42, 0))}
	a.whole()
	conn, err := dialAMQP(a.c.Nodes[0])
	harness.Must(t, err)
	_, err = conn.ch.QueueDeclare("poison", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 6, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
	})
	harness.Must(t, err)
	harness.Declare(t, conn.ch, "dead")
	harness.Must(t, conn.ch.Confirm(false))
	harness.Confirmed(t, conn.ch, "", "poison", amqp.Publishing{Body: []byte("bad"), DeliveryMode: amqp.Persistent})
	conn.close()
	given := 0
	for round := range 3 {
		given += a.giveBack("poison", 2)
		if round == 1 {
			pause(t.Context(), 200*time.Millisecond) // returns wait 10 ms for company on their way to the log
			leader := a.leader()
			leader.Kill()
			a.must(leader.Run(), "start")
			a.whole()
		}
	}
	given += a.giveBack("poison", 10)
	if given != 7 {
		t.Errorf("delivered %d times, want 7", given)
	}
	conn, err = dialAMQP(a.follower())
	harness.Must(t, err)
	defer conn.close()
	harness.Wait(t, harness.Patience, "the dead letter", func() bool {
		d, ok, err := conn.ch.Get("dead", true)
		harness.Must(t, err)
		return ok && string(d.Body) == "bad"
	})
}

// giveBack takes a message and gives it back, up to n times, over one connection to
// any node, and returns how often it came.
func (a *arena) giveBack(queue string, n int) (given int) {
	a.t.Helper()
	conn, err := dialAMQP(a.c.Nodes[a.rng.IntN(3)])
	harness.Must(a.t, err)
	defer conn.close()
	for ; given < n; given++ {
		d, ok, err := conn.ch.Get(queue, false)
		harness.Must(a.t, err)
		if !ok {
			return given
		}
		harness.Must(a.t, d.Reject(true))
		_, err = conn.ch.QueueDeclarePassive(queue, true, false, false, false, nil) // it is back before the next
		harness.Must(a.t, err)
	}
	return given
}
