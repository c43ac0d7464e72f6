package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// mixed is how long a cluster of two versions runs under load with one leader.
const mixed = 2 * time.Second

// behind is how many records of bulk go by while a node is away: the log that it lacks is
// cut, and it gets a checkpoint of the other version.
const behind = 400

// TestMixedVersions: three nodes of an earlier version are upgraded one by one under load.
// While versions are mixed each of them leads; one node goes back to the earlier one, and
// gets a checkpoint that the present one has made. Clients only connect again: nothing is
// declared anew, nothing that was confirmed is lost, and in the end all nodes hold the same.
func TestMixedVersions(t *testing.T) {
	full(t)
	previous, commit := harness.Previous(t, "PREVIOUS")
	present := harness.Binary(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3, Binary: previous}, 21)
	a.settings("before")
	first := a.follower()

	a.change(first, present)
	a.mixed(2)
	a.settings("earlier leads")
	a.l.moves(healed)

	a.lead(first)
	a.hold(mixed)
	a.settings("present leads")
	a.l.moves(healed)

	a.back(first, previous, present, commit)
	for _, n := range a.nodes() {
		a.change(n, present)
		a.settings(fmt.Sprint("upgraded ", n.ID))
		a.l.moves(healed)
	}
	a.judge()
}

// tried is how long a node that is asked to lead may take until it is asked again.
const tried = 3 * time.Second

// lead has a node serve, again if another one is elected meanwhile, as on a busy machine,
// or because this one has just started and may not vote yet.
func (a *arena) lead(n *harness.Node) {
	a.t.Helper()
	harness.Wait(a.t, healed, fmt.Sprintf("node %d serves", n.ID), func() bool {
		leader, err := a.c.Leader(healed)
		if err == nil && leader != n {
			_ = n.Lead()
			leader, err = a.c.NextLeader(leader, tried)
		}
		return err == nil && leader == n
	})
}

// change stops a node, after what it leads has been handed over, and starts it with
// another binary.
func (a *arena) change(n *harness.Node, binary string) {
	a.t.Helper()
	a.halt(n)
	n.Binary = binary
	a.must(n.Run(), "start node %d with %s", n.ID, binary)
	a.resume(n)
}

// halt drains a node and stops it.
func (a *arena) halt(n *harness.Node) {
	a.t.Helper()
	a.must(n.Drain(), "drain node %d", n.ID)
	_, err := a.c.NextLeader(n, healed)
	a.must(err, "drain node %d", n.ID)
	if code, err := n.Stop(); code != 0 || err != nil {
		a.t.Errorf("node %d ended with code %d, %v", n.ID, code, err)
	}
}

// resume lets a node that has been drained lead again.
func (a *arena) resume(n *harness.Node) {
	a.t.Helper()
	a.whole()
	a.must(n.Undrain(), "undo the drain of node %d", n.ID)
}

// mixed waits until the cluster says that it is mixed, with so many nodes of the earlier
// version, and lets it run like that.
func (a *arena) mixed(earlier int) {
	a.t.Helper()
	harness.Wait(a.t, healed, "versions are mixed", func() bool {
		s, err := a.nodes()[0].Status()
		versions := map[string]int{}
		for _, m := range s.Nodes {
			versions[m.Version]++
		}
		return err == nil && len(versions) == 2 && versions[harness.PreviousVersion] == earlier
	})
	a.hold(mixed)
}

// back has a node go back to the earlier version, after it was away for so long that it
// gets a checkpoint that the present one has made. A version that does not read what is
// on the disk has to say so; then the node goes on with the present one.
func (a *arena) back(n *harness.Node, previous, present, commit string) {
	a.t.Helper()
	leader := a.neither(n, n)
	a.change(leader, present) // so that it makes what the earlier one reads
	a.halt(n)
	a.lead(leader)
	produceBulk(a.t, a.others(n), 0, behind)
	n.Binary = previous
	if err := n.Run(); err != nil {
		if !strings.Contains(err.Error(), "version") || strings.Contains(err.Error(), "panic") {
			a.t.Errorf("commit %.12s neither starts nor says that it does not know a version: %v", commit, err)
		}
		a.t.Logf("commit %.12s refuses what the present one has written: %.300v", commit, err)
		n.Binary = present
		a.must(n.Run(), "start node %d again", n.ID)
	}
	a.resume(n)
	a.l.moves(healed)
	if log, err := os.ReadFile(n.Logs); err != nil || strings.Contains(string(log), "panic:") {
		a.t.Errorf("node %d has panicked, %v", n.ID, err)
	}
	a.lead(n)
	a.hold(mixed)
	a.l.moves(healed)
}

// others are the nodes but for one.
func (a *arena) others(but *harness.Node) (list []*harness.Node) {
	for _, n := range a.nodes() {
		if n != but {
			list = append(list, n)
		}
	}
	return list
}

// settings makes use of much that the catalog and the log have entries for: queues with
// limits, times and dead letters, bindings, records that die, purges and deletions. A
// connection may be lost on the way, as clients of nodes of two versions may be asked to
// come again; then it begins anew under other names.
func (a *arena) settings(name string) {
	a.t.Helper()
	var err error
	for try := range 3 {
		if err = a.trySettings(fmt.Sprint(name, " ", try)); err == nil {
			return
		}
		a.t.Logf("%s: %v", name, err)
	}
	a.t.Errorf("%s: %v", name, err)
}

func (a *arena) trySettings(name string) error {
	c, err := dialAMQP(a.leader())
	if err != nil {
		return err
	}
	defer c.close()
	q, dead, exchange := "settings "+name, "dead "+name, "exchange "+name
	limits := amqp.Table{"x-max-length": 50, "x-message-ttl": 60_000, "x-retention": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
	_, err1 := c.ch.QueueDeclare(dead, true, false, false, false, nil)
	_, err2 := c.ch.QueueDeclare(q, true, false, false, false, limits)
	err = errors.Join(c.ch.Confirm(false), err1, err2, c.ch.ExchangeDeclare(exchange, "topic", true, false, false, false, nil),
		c.ch.QueueBind(q, "a.#", exchange, false, nil))
	for i := 0; err == nil && i < 100; i++ { // half of them die
		var confirm *amqp.DeferredConfirmation
		confirm, err = c.ch.PublishWithDeferredConfirm(exchange, "a.b", false, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: amqp.Persistent})
		if err == nil && !confirm.Wait() {
			err = errors.New("a publish is not confirmed")
		}
	}
	if err != nil {
		return err
	}
	harness.Wait(a.t, healed, name+": dead letters", func() bool {
		var d amqp.Queue
		d, err = c.ch.QueueDeclarePassive(dead, true, false, false, false, nil)
		return err != nil || d.Messages == 50
	})
	for i := 0; err == nil && i < 10; i++ {
		_, _, err = c.ch.Get(q, true)
	}
	if err != nil {
		return err
	}
	n, err := c.ch.QueuePurge(q, false)
	if err == nil && n != 40 {
		a.t.Errorf("%s: %d messages are purged", name, n)
	}
	_, err1 = c.ch.QueueDelete(dead, false, false, false)
	return errors.Join(err, err1)
}
