package placement

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// numbersIn counts the records of a partition by their numbers.
func numbersIn(t *testing.T, g *Group, id PartitionID) map[uint64]int {
	t.Helper()
	p, err := g.Partition(id)
	must(t, err)
	count := make(map[uint64]int)
	var it record.Iter
	for at, end := p.Bounds(); at < end; {
		b, err := p.Read(at, 1<<20, nil)
		must(t, err)
		for len(b) > 0 {
			batch, rest, err := record.Split(b)
			must(t, err)
			must(t, it.Reset(batch, nil))
			for it.Next() {
				count[numberOf(it.View())]++
			}
			must(t, it.Err())
			at, b = record.LastOffset(batch)+1, rest
		}
	}
	return count
}

// TestOutcomesWhenTheLeaderChanges: what was confirmed is there once, what was refused
// is not there, whatever was on its way when the leadership went; what may be either is
// answered so.
func TestOutcomesWhenTheLeaderChanges(t *testing.T) {
	c := newCluster(t, Limits{SealBytes: 4 << 20})
	defer c.close()
	lead := c.leader()
	parts, _ := queue(t, c.nodes[lead], 1, 1, kernel.RetainDay)
	answered := newAnswers()
	next := uint64(0)
	for round := range 8 {
		g := c.nodes[lead]
		set := g.Targets(parts...)
		stop, stopped := make(chan struct{}), make(chan struct{})
		from := next
		go func() {
			defer close(stopped)
			tick := time.NewTicker(time.Millisecond) // else there are millions
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				burst := 50
				if leads, _ := g.Raft().Leader(); !leads {
					burst = 1
				}
				for range burst {
					if g.Wait(stop) == nil && g.Append(set, numbered(next), answered, next) == nil {
						next++
					}
				}
			}
		}()
		waitFor(t, "publishes", func() bool {
			answered.mu.Lock()
			defer answered.mu.Unlock()
			return len(answered.results) > int(from)+20
		})
		others := []int{(lead + 1) % 3, (lead + 2) % 3}
		if round%2 == 0 {
			must(t, g.Raft().TransferLeadershipTo(soon(t), c.peers[others[round/2%2]].ID))
			lead = c.leader(others...)
		} else {
			c.net.Isolate(c.peers[lead].ID)
			old := lead
			lead = c.leader(others...)
			c.net.Rejoin(c.peers[old].ID)
		}
		close(stop)
		<-stopped
		publish(t, c.nodes[lead], c.nodes[lead].Targets(parts...), 1<<32+uint64(round), 1<<32+uint64(round)+1) // shows what came before
	}
	results := answered.wait(t, int(next))
	c.sameState(lead, (lead+1)%3, (lead+2)%3)
	there := numbersIn(t, c.nodes[lead], parts[0])
	outcomes := make(map[string]int)
	for n := range next {
		err := results[n].Err
		switch {
		case err == nil && there[n] != 1:
			t.Fatalf("record %d was confirmed and is there %d times", n, there[n])
		case kernel.CodeOf(err) == kernel.CodeUnavailable && there[n] != 0:
			t.Fatalf("record %d was refused and is there %d times", n, there[n])
		case err != nil && kernel.CodeOf(err) != kernel.CodeUnavailable && kernel.CodeOf(err) != kernel.CodeUnknown:
			t.Fatalf("record %d: %v", n, err)
		case there[n] > 1:
			t.Fatalf("record %d is there %d times", n, there[n])
		}
		outcomes[fmt.Sprint(kernel.CodeOf(err))]++
	}
	t.Log(outcomes)
}

// TestStaleTail is the livelock of hashicorp/raft #697: a leader that was cut off has a
// tail that nobody else got, and is sent a checkpoint inside of it.
func TestStaleTail(t *testing.T) {
	c := newCluster(t, Limits{SealBytes: 16 << 10})
	defer c.close()
	old := c.leader()
	g := c.nodes[old]
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 50)
	others := []int{(old + 1) % 3, (old + 2) % 3}
	c.waitApplied(old, others[0], others[1])

	// Entries that nobody else gets, more than the others make meanwhile.
	common := g.Raft().AppliedIndex()
	c.net.Isolate(c.peers[old].ID)
	for i := range 400 {
		g.prop.log.Propose(nonsense(i), func(error) {})
	}
	lead := c.leader(others...)
	n := c.nodes[lead]
	records := uint64(100)
	for made := n.Metrics().Checkpoints.Load(); n.Metrics().Checkpoints.Load() < made+3; records += 50 {
		a := newAnswers()
		for k := range uint64(50) {
			must(t, n.Append(n.Targets(parts...), wideNumbered(records+k), a, k))
		}
		a.wait(t, 50)
		sealsDone(t, n)
	}
	last, err := c.wals[old].Group(1).LastIndex()
	must(t, err)
	first, err := c.wals[lead].Group(1).FirstIndex()
	must(t, err)
	at := n.machine.shown.Load().OldestNeededIndex() - 1
	if last <= at || first <= common+1 {
		t.Fatalf("the tail is %d to %d, the checkpoint is at %d, the log begins at %d: the test tests nothing", common+1, last, at, first)
	}
	c.net.Rejoin(c.peers[old].ID)
	lead = c.leader()
	publish(t, c.nodes[lead], c.nodes[lead].Targets(parts...), 1<<32, 1<<32+10)
	c.sameState(lead, (lead+1)%3, (lead+2)%3)
	// It counts for the majority again.
	other := (lead + 1) % 3
	if other == old {
		other = (lead + 2) % 3
	}
	c.net.Isolate(c.peers[other].ID)
	publish(t, c.nodes[lead], c.nodes[lead].Targets(parts...), 1<<32+10, 1<<32+20)
	c.net.Rejoin(c.peers[other].ID)
	c.sameState(lead, (lead+1)%3, (lead+2)%3)
}

// nonsense is an entry that must never be applied.
func nonsense(i int) []byte { return []byte(fmt.Sprint("nonsense", i)) }

// wideNumbered is numbered with a large value.
func wideNumbered(n uint64) *kernel.Record {
	r := numbered(n)
	r.Value = append(r.Value, make([]byte, 2000)...)
	return r
}
