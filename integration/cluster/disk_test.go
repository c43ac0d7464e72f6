package cluster

import (
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// ofDisks break files and clocks; they need builds with faults.
var ofDisks = []nemesis{
	{"slow syncs at the leader", func(a *arena) {
		a.broken(a.leader(), harness.Rule{Op: "sync", Name: "*.wal", Delay: 400 * time.Millisecond})
	}},
	{"syncs of seconds at the leader", func(a *arena) {
		a.outdone(harness.Rule{Op: "sync", Name: "*.wal", Delay: 2 * time.Second})
	}},
	// Clients of that node hear nothing until its disk goes on; what they had settled comes
	// again then. That has to be within grace, of which the judge makes allowance.
	{"a sync hangs at the leader", func(a *arena) {
		a.outdone(harness.Rule{Op: "sync", Name: "*.wal", Delay: grace - 3*time.Second, Times: 1})
	}},
	{"slow syncs at a follower", func(a *arena) {
		a.broken(a.follower(), harness.Rule{Op: "sync", Name: "*.wal", Delay: 2 * time.Second})
	}},
	{"a sync fails at the leader", func(a *arena) { a.failed(a.leader()) }},
	{"a sync fails at a follower", func(a *arena) { a.failed(a.follower()) }},
	{"full disk at the leader", func(a *arena) { a.full(a.leader()) }},
	{"full disk at a follower", func(a *arena) { a.full(a.follower()) }},
	{"power loss of all", func(a *arena) { a.kill(a.nodes()...) }},
	{"power loss of the leader", func(a *arena) { a.kill(a.leader()) }},
	{"leader's clock ahead", func(a *arena) { a.clock(a.leader(), time.Hour) }},
	{"leader's clock behind", func(a *arena) { a.clock(a.leader(), -time.Hour) }},
	{"follower's clock ahead", func(a *arena) { a.clock(a.follower(), time.Hour) }},
}

// broken adds a fault for a while.
func (a *arena) broken(n *harness.Node, r harness.Rule) {
	a.must(n.Break(r), "break node %d", n.ID)
	a.hold(4 * time.Second)
	a.must(n.Mend(), "mend node %d", n.ID)
}

// outdone adds a fault of the leader's disk that others, if there are any, are to lead in its
// place for.
func (a *arena) outdone(r harness.Rule) {
	n := a.leader()
	if len(a.nodes()) == 1 {
		a.broken(n, r)
		return
	}
	a.must(n.Break(r), "break node %d", n.ID)
	_, err := a.c.NextLeader(n, healed)
	a.must(err, "in place of a leader whose disk is slow")
	a.hold(2 * time.Second)
	a.must(n.Mend(), "mend node %d", n.ID)
}

// failed lets one sync of the log fail: the node must not go on as if it had not.
// It is started again as a supervisor would.
func (a *arena) failed(n *harness.Node) {
	a.must(n.Break(harness.Rule{Op: "sync", Name: "*.wal", Times: 1, Error: "EIO"}), "break node %d", n.ID)
	select {
	case <-n.Ended():
	case <-time.After(healed):
		a.t.Errorf("node %d goes on although a sync has failed", n.ID)
	}
	a.hold(2 * time.Second)
	n.Kill()
	a.must(n.Run(), "start node %d after a sync had failed", n.ID)
}

func (a *arena) full(n *harness.Node) {
	a.must(n.Fill(), "fill the disk of node %d", n.ID)
	a.hold(4 * time.Second)
	a.must(n.Mend(), "mend node %d", n.ID)
}

func (a *arena) clock(n *harness.Node, ahead time.Duration) {
	a.must(n.Step(ahead), "set the clock of node %d", n.ID)
	a.hold(4 * time.Second)
	a.must(n.Step(0), "set the clock of node %d back", n.ID)
}
