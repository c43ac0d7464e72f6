package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// healed is how long a cluster may take until it serves every client again, once
// nothing is broken any more.
const healed = 30 * time.Second

// full skips the test unless all nemeses are wanted.
func full(t testing.TB) {
	t.Helper()
	if os.Getenv("TRIVIUM_NEMESES") == "" && os.Getenv("TRIVIUM_CHAOS") == "" {
		t.Skip("make test-cluster or make chaos runs this")
	}
}

// arena is a cluster under load that nemeses work on.
type arena struct {
	t   *testing.T
	c   *harness.Cluster
	l   *load
	rng *rand.Rand
}

// newArena starts a cluster and its clients.
func newArena(t *testing.T, config harness.ClusterConfig, seed uint64) *arena {
	t.Helper()
	a := &arena{t: t, c: harness.StartCluster(t, config), rng: rand.New(rand.NewPCG(seed, 0))}
	a.whole()
	a.l = newLoad(t, a.c.Nodes, seed)
	a.l.prepare()
	a.l.start()
	a.l.moves(healed)
	return a
}

// whole waits until the cluster is whole: every node serves or passes clients on,
// and has all that was committed.
func (a *arena) whole() {
	a.t.Helper()
	if err := a.c.Whole(healed); err != nil {
		a.t.Error(err)
	}
}

// strike lets a nemesis work, and waits until all clients get on again. After the
// first that something is wrong with, others do nothing: they would hide it.
func (a *arena) strike(n nemesis) {
	a.t.Helper()
	if a.t.Failed() {
		a.t.Logf("%-24s not run", n.name)
		return
	}
	begin, before := time.Now(), a.l.work.Counts()
	n.run(a)
	broken := time.Since(begin)
	a.whole()
	a.l.moves(healed)
	after := a.l.work.Counts()
	a.t.Logf("%-24s %6.1f s, healed after %4.1f s; %d confirmed, %d unknown", n.name, broken.Seconds(),
		(time.Since(begin) - broken).Seconds(), after.Confirmed-before.Confirmed, after.Unknown-before.Unknown)
}

// judge ends the load and checks everything.
func (a *arena) judge() {
	a.t.Helper()
	a.l.settle(60 * time.Second)
	a.l.check()
	if err := a.c.SameChecksums(healed); err != nil {
		a.t.Error(err)
	}
}

// nodes are those that have not been removed.
func (a *arena) nodes() []*harness.Node {
	return slices.DeleteFunc(slices.Clone(a.c.Nodes), func(n *harness.Node) bool { return n.Removed })
}

// hold lets time pass: at least d, at most half as long again.
func (a *arena) hold(d time.Duration) {
	pause(context.Background(), d+time.Duration(a.rng.Int64N(int64(d)/2)))
}

// leader is the node that serves; the first one if nobody says so in time.
func (a *arena) leader() *harness.Node {
	a.t.Helper()
	n, err := a.c.Leader(healed)
	if err != nil {
		a.t.Error(err)
		return a.nodes()[0]
	}
	return n
}

// follower is one that does not serve.
func (a *arena) follower() *harness.Node {
	leader := a.leader()
	others := slices.DeleteFunc(a.nodes(), func(n *harness.Node) bool { return n == leader })
	return others[a.rng.IntN(len(others))]
}

// must fails the test, and goes on: the judge still has its say.
func (a *arena) must(err error, what string, args ...any) {
	a.t.Helper()
	if err != nil {
		a.t.Errorf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}
