package cluster

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestProcesses: kills, pauses, restarts and a drain, each once.
func TestProcesses(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, 1)
	for _, n := range ofProcesses {
		a.strike(n)
	}
	a.judge()
}

// TestLinks: partitions of all kinds, slow and lossy links, each once.
func TestLinks(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3, Network: true}, 2)
	for _, n := range ofLinks {
		a.strike(n)
	}
	a.judge()
}

// TestDisks: disks that fail, are slow, full or lose what was not synced, and clocks
// that are wrong, each once.
func TestDisks(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3, Faults: true, Lose: true}, 3)
	for _, n := range ofDisks {
		a.strike(n)
	}
	a.judge()
}

// TestBits: a bit of the log and of the segments of a node has changed, under load.
func TestBits(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, 9)
	produceBulk(t, a.c.Nodes, 0, 400) // enough for segments
	for _, n := range ofBits {
		a.strike(n)
	}
	readBulk(t, a.leader(), 400)
	a.judge()
}

// TestChaos: all nemeses in random order for TRIVIUM_CHAOS minutes, in rounds of
// five minutes with a new cluster each; every second one loses with a kill what
// was not synced.
func TestChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("TRIVIUM_CHAOS"), 64)
	if err != nil {
		t.Skip("make chaos runs this")
	}
	begin, s := time.Now(), seed(t)
	all := slices.Concat(ofProcesses, ofLinks, ofDisks, ofTime, ofBits)
	for round := uint64(0); time.Since(begin) < time.Duration(minutes*float64(time.Minute)); round++ {
		if !t.Run(strconv.FormatUint(s+round, 10), func(t *testing.T) {
			t.Logf("replay with TRIVIUM_SEED=%d", s+round)
			a := newArena(t, harness.ClusterConfig{Nodes: 3, Network: true, Faults: true, Lose: (s+round)%2 == 1}, s+round)
			rng, end := rand.New(rand.NewPCG(s+round, 7)), time.Now().Add(5*time.Minute)
			for time.Now().Before(end) && !t.Failed() {
				a.strike(all[rng.IntN(len(all))])
			}
			a.judge()
		}) {
			return
		}
	}
}
