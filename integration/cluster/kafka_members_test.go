package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
)

// unmoved has a member fail the test when it is told to give up partitions while it is
// watched.
func unmoved(t *testing.T, watched *atomic.Bool) []kgo.Opt {
	gone := func(how string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, what map[string][]int32) {
			if watched.Load() {
				t.Errorf("a member has %s %v", how, what)
			}
		}
	}
	return []kgo.Opt{kgo.OnPartitionsRevoked(gone("to give up")), kgo.OnPartitionsLost(gone("lost")), kgo.SessionTimeout(30 * time.Second), harness.Refused()}
}

// reached waits until the nodes answer the client, which may not have noticed yet that it has lost its
// connections to them.
func (k *kafkaNodes) reached(nodes ...*harness.Node) {
	k.t.Helper()
	for _, n := range nodes {
		harness.Wait(k.t, healed, "the node answers", func() bool {
			_, err := k.at(n).Request(k.ctx, kmsg.NewPtrMetadataRequest())
			return err == nil
		})
	}
}

// TestKafkaMembersStay: members of a group go on in their generation, with the partitions that
// they have, and commit, whatever becomes of the node that coordinates it, and of the one that
// serves: they are killed, come back, are drained. A member that dies together with the
// coordinator is missed when its session is over.
func TestKafkaMembersStay(t *testing.T) {
	full(t)
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	s := newStream(k, "stream", 6)
	s.once = true
	const group = "readers"
	ctx, stop := context.WithCancel(k.ctx)
	defer stop()
	reading, end := context.WithCancel(k.ctx)
	defer end()
	var writing, reads sync.WaitGroup
	var members []*kgo.Client
	var watched atomic.Bool
	for range 3 {
		m := s.member(group, unmoved(t, &watched)...)
		members = append(members, m)
		reads.Go(func() { s.read(reading, m) })
	}
	s.shared(group, 3)
	producer := k.client(k.c.Nodes, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
	writing.Go(func() { s.write(ctx, producer) })
	s.moves()
	s.keeps(group)
	begun := generations(members)
	watched.Store(true)
	goesOn := func(what string, happens func()) {
		t.Helper()
		begin := time.Now()
		happens()
		s.keeps(group)
		commits := time.Since(begin)
		s.moves()
		t.Logf("%s: it commits again after %v, all is read after %v", what, commits.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		if now := generations(members); now != begun {
			t.Errorf("%s: the group is at %s, was at %s", what, now, begun)
		}
	}
	back := func(n *harness.Node) func() {
		return func() {
			harness.Must(t, n.Run())
			harness.Must(t, k.c.Whole(healed))
			k.reached(k.c.Nodes...)
			harness.Wait(t, healed, "all nodes coordinate groups", func() bool { return k.coordinate(k.c.Nodes...) })
		}
	}
	for _, serves := range []bool{false, true} {
		dies := k.coordinator(group)
		leader, err := k.c.Leader(healed)
		harness.Must(t, err)
		if (leader == dies) != serves {
			to := dies
			if !serves {
				to = k.others(dies)[0]
			}
			harness.Must(t, to.Lead())
			_, err = k.c.NextLeader(leader, healed)
			harness.Must(t, err)
		}
		goesOn("the coordinator is killed", dies.Kill)
		goesOn("it is back", back(dies))
	}
	drained := k.coordinator(group)
	goesOn("the coordinator is drained", func() {
		harness.Must(t, drained.Drain())
		harness.Wait(t, healed, "the others coordinate groups", func() bool { return k.coordinate(k.others(drained)...) })
	})
	goesOn("it coordinates again", func() {
		harness.Must(t, drained.Undrain())
		harness.Wait(t, healed, "all nodes coordinate groups", func() bool { return k.coordinate(k.c.Nodes...) })
	})
	stop()
	writing.Wait()
	s.complete()
	watched.Store(false)
	end()
	reads.Wait()
}

// TestKafkaMemberDiesWithTheCoordinator: the group has its place in it until the session is
// over, and then the others have its partitions.
func TestKafkaMemberDiesWithTheCoordinator(t *testing.T) {
	full(t)
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	s := newStream(k, "stream", 6)
	const group = "readers"
	reading, end := context.WithCancel(k.ctx)
	defer end()
	var reads sync.WaitGroup
	stays := s.member(group)
	dies := s.member(group, kgo.InstanceID("dies")) // so that it does not say when it leaves
	reads.Go(func() { s.read(reading, stays) })
	reads.Go(func() {
		for !dies.PollFetches(reading).IsClientClosed() && reading.Err() == nil {
			dies.AllowRebalance()
		}
	})
	s.shared(group, 2)
	coordinator := k.coordinator(group)
	coordinator.Kill()
	begin := time.Now()
	dies.Close()
	s.shared(group, 1)
	if took := time.Since(begin); took < 5*time.Second {
		t.Errorf("its place is taken after %v", took)
	} else {
		t.Logf("its place is taken after %v", took.Round(time.Millisecond))
	}
	harness.Must(t, coordinator.Run())
	end()
	reads.Wait()
}
