package cluster

import (
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

	a.serveFrom(first)
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
	a.serveFrom(leader)
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
	a.serveFrom(n)
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
// limits, times and dead letters, bindings, records that die, purges and deletions.
func (a *arena) settings(name string) {
	a.t.Helper()
	c, err := dialAMQP(a.leader())
	if err != nil {
		a.t.Errorf("%s: %v", name, err)
		return
	}
	defer c.close()
	a.must(c.ch.Confirm(false), "%s: confirms", name)
	q, dead := "settings "+name, "dead "+name
	declare := func(queue string, args amqp.Table) {
		a.t.Helper()
		_, err := c.ch.QueueDeclare(queue, true, false, false, false, args)
		a.must(err, "%s: declare %s", name, queue)
	}
	declare(dead, nil)
	declare(q, amqp.Table{"x-max-length": 50, "x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
		"x-retention": 0})
	a.must(c.ch.ExchangeDeclare("exchange "+name, "topic", true, false, false, false, nil), "%s: exchange", name)
	a.must(c.ch.QueueBind(q, "a.#", "exchange "+name, false, nil), "%s: bind", name)
	for range 100 { // half of them die
		confirm, err := c.ch.PublishWithDeferredConfirm("exchange "+name, "a.b", false, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: amqp.Persistent})
		if err != nil || !confirm.Wait() {
			a.t.Errorf("%s: publish: %v", name, err)
			return
		}
	}
	harness.Wait(a.t, healed, name+": dead letters", func() bool {
		d, err := c.ch.QueueDeclarePassive(dead, true, false, false, false, nil)
		return err != nil || d.Messages == 50
	})
	for range 10 {
		_, ok, err := c.ch.Get(q, true)
		if err != nil || !ok {
			a.t.Errorf("%s: get: %v, %v", name, ok, err)
		}
	}
	if n, err := c.ch.QueuePurge(q, false); n != 40 || err != nil {
		a.t.Errorf("%s: %d messages are purged, %v", name, n, err)
	}
	_, err = c.ch.QueueDelete(dead, false, false, false)
	a.must(err, "%s: delete", name)
}
