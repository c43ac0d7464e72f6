package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// nemesis breaks something for a while, and mends it.
type nemesis struct {
	name string
	run  func(*arena)
}

// ofProcesses are kills, pauses and restarts.
var ofProcesses = []nemesis{
	{"kill the leader", func(a *arena) { a.kill(a.leader()) }},
	{"kill a follower", func(a *arena) { a.kill(a.follower()) }},
	{"kill all", func(a *arena) { a.kill(a.nodes()...) }},
	{"kill a majority", func(a *arena) { a.kill(a.leader(), a.follower()) }},
	{"restart one by one", (*arena).roll},
	{"pause the leader", func(a *arena) { a.pauseNode(a.leader(), 5*time.Second) }},
	{"pause a follower", func(a *arena) { a.pauseNode(a.follower(), 5*time.Second) }},
	{"pause the leader often", func(a *arena) {
		for range 4 {
			a.pauseNode(a.leader(), 300*time.Millisecond)
		}
	}},
	{"drain the leader", (*arena).drain},
}

// ofTime take long, or nodes for good; they are for TestChaos.
var ofTime = []nemesis{
	{"pause the leader long", func(a *arena) { a.pauseNode(a.leader(), 60*time.Second) }},
	{"replace a node", (*arena).replace},
}

// ofBits change a bit of what a node has on its disk while it is down; they are for
// TestChaos, each has a test of its own.
var ofBits = []nemesis{
	{"a bit of a follower's log", func(a *arena) { a.flipLog(a.follower()) }},
	{"a bit of the leader's log", func(a *arena) { a.flipLog(a.leader()) }},
	{"bits of a follower's segments", func(a *arena) { a.flipSegments(a.follower()) }},
}

// replace kills a node, removes it and adds another one, if the network has room.
func (a *arena) replace() {
	if len(a.c.Nodes) == 3+harness.SpareNodes {
		return
	}
	lost := a.nodes()[a.rng.IntN(3)]
	lost.Kill()
	lost.Removed = true
	a.hold(time.Second)
	a.must(a.nodes()[0].Forget(lost), "remove node %d", lost.ID)
	a.l.replace(lost, a.c.Add())
}

// ofLinks cut, delay and lose packets between nodes; clients reach all of them.
var ofLinks = []nemesis{
	{"cut the leader off", func(a *arena) { a.cutOff(a.leader(), true, true) }},
	{"cut a follower off", func(a *arena) { a.cutOff(a.follower(), true, true) }},
	{"leader is not heard", func(a *arena) { a.cutOff(a.leader(), true, false) }},
	{"leader hears nobody", func(a *arena) { a.cutOff(a.leader(), false, true) }},
	{"follower is not heard", func(a *arena) { a.cutOff(a.follower(), true, false) }},
	{"follower hears nobody", func(a *arena) { a.cutOff(a.follower(), false, true) }},
	{"ring: one link is cut", (*arena).ring},
	{"all are cut", func(a *arena) {
		a.links(func(from, to int) harness.Link { return harness.Link{Cut: true} })
	}},
	{"links come and go", (*arena).flap},
	{"slow links", func(a *arena) {
		a.links(func(from, to int) harness.Link { return harness.Link{Delay: 30 * time.Millisecond} })
	}},
	{"lossy links", func(a *arena) {
		a.links(func(from, to int) harness.Link { return harness.Link{Loss: 0.03} })
	}},
}

// kill kills nodes at once and starts them again after a while.
func (a *arena) kill(nodes ...*harness.Node) {
	nodes = slices.Compact(nodes)
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(n.Kill)
	}
	all.Wait()
	a.hold(2 * time.Second)
	a.must(a.c.RunAll(nodes...), "start after a kill")
}

// roll stops and starts the nodes in turn, as for an upgrade.
func (a *arena) roll() {
	for _, n := range a.nodes() {
		code, err := n.Stop()
		a.must(err, "stop node %d", n.ID)
		if code != 0 {
			a.t.Errorf("node %d ended with %d", n.ID, code)
		}
		a.must(n.Run(), "start node %d", n.ID)
		a.whole()
	}
}

func (a *arena) pauseNode(n *harness.Node, d time.Duration) {
	a.must(n.Pause(), "pause node %d", n.ID)
	a.hold(d)
	a.must(n.Continue(), "continue node %d", n.ID)
}

func (a *arena) drain() {
	n := a.leader()
	a.must(n.Drain(), "drain node %d", n.ID)
	_, err := a.c.NextLeader(n, healed)
	a.must(err, "after the drain")
	a.hold(2 * time.Second)
	a.must(n.Undrain(), "undo the drain of node %d", n.ID)
}

// links sets all links between nodes for a while.
func (a *arena) links(link func(from, to int) harness.Link) {
	for _, from := range a.nodes() {
		for _, to := range a.nodes() {
			if from != to {
				a.c.Net.Set(from.ID, to.ID, link(from.ID, to.ID))
			}
		}
	}
	a.hold(5 * time.Second)
	a.c.Net.Heal()
}

// cutOff loses what a node sends to the others, what they send to it, or both.
func (a *arena) cutOff(n *harness.Node, sends, receives bool) {
	a.links(func(from, to int) harness.Link {
		return harness.Link{Cut: sends && from == n.ID || receives && to == n.ID}
	})
}

// ring cuts one link, so that each node still reaches a majority, but not the same.
func (a *arena) ring() {
	x := a.leader()
	y := a.follower()
	a.links(func(from, to int) harness.Link {
		return harness.Link{Cut: from == x.ID && to == y.ID || from == y.ID && to == x.ID}
	})
}

// flap cuts random links one way, again and again.
func (a *arena) flap() {
	nodes := a.nodes()
	for range 10 {
		from, to := nodes[a.rng.IntN(len(nodes))], nodes[a.rng.IntN(len(nodes))]
		a.c.Net.Set(from.ID, to.ID, harness.Link{Cut: true})
		a.hold(400 * time.Millisecond)
		if a.rng.IntN(2) == 0 {
			a.c.Net.Heal()
		}
	}
	a.c.Net.Heal()
}
