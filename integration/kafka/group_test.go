package kafka

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Members come and go while records flow; no committed record is lost, and
// what is seen twice is only what was not committed.
func TestGroupRebalance(t *testing.T) {
	ctx, adm := limited(t), admin(t, shared)
	const partitions, count = 6, 600
	_, err := adm.CreateTopic(ctx, partitions, 1, nil, "flow")
	must(t, err)
	var mu sync.Mutex
	seen := map[string]int{}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var members sync.WaitGroup
	join := func() *kgo.Client {
		cl := shared.DialKafka(t, kgo.ConsumerGroup("flow"), kgo.ConsumeTopics("flow"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.HeartbeatInterval(50*time.Millisecond), kgo.SessionTimeout(6*time.Second), kgo.BlockRebalanceOnPoll(), kgo.DisableAutoCommit())
		members.Go(func() {
			for running.Err() == nil && !closed(cl) {
				fetches := cl.PollFetches(running)
				mu.Lock()
				fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
				mu.Unlock()
				_ = cl.CommitUncommittedOffsets(running) // a failure means seen twice, which is allowed
				cl.AllowRebalance()
			}
		})
		return cl
	}
	assigned := func(want int) {
		until(t, fmt.Sprintf("%d members share the partitions", want), func() bool {
			gs, err := adm.DescribeGroups(ctx, "flow")
			g := gs["flow"]
			return err == nil && g.State == "Stable" && len(g.Members) == want && len(g.AssignedPartitions()["flow"]) == partitions
		})
	}
	producer := shared.DialKafka(t, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	send := func(from, to int) {
		var records []*kgo.Record
		for i := from; i < to; i++ {
			records = append(records, &kgo.Record{Topic: "flow", Value: fmt.Append(nil, i)})
		}
		produce(ctx, t, producer, records...)
	}
	a := join()
	assigned(1)
	send(0, 200)
	join()
	assigned(2)
	send(200, 400)
	join()
	assigned(3)
	a.CloseAllowingRebalance()
	send(400, count)
	assigned(2)
	until(t, "every record is seen", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == count
	})
	until(t, "everything is committed", func() bool {
		lag, err := adm.Lag(ctx, "flow")
		return err == nil && lag["flow"].Lag.Total() == 0
	})
	stop()
	members.Wait()
}

func closed(cl *kgo.Client) bool {
	select {
	case <-cl.Context().Done():
		return true
	default:
		return false
	}
}

// A static member that comes back within its session gets its partitions
// again without a rebalance.
func TestStaticMember(t *testing.T) {
	ctx, adm := limited(t), admin(t, shared)
	_, err := adm.CreateTopic(ctx, 2, 1, nil, "static")
	must(t, err)
	member := func(instance string) *kgo.Client {
		cl := shared.DialKafka(t, kgo.ConsumerGroup("static"), kgo.ConsumeTopics("static"), kgo.InstanceID(instance),
			kgo.HeartbeatInterval(50*time.Millisecond), kgo.SessionTimeout(10*time.Second))
		go func() {
			for !closed(cl) {
				cl.PollFetches(ctx)
			}
		}()
		return cl
	}
	stable := func() (ids map[string]string) {
		until(t, "two static members are stable", func() bool {
			gs, err := adm.DescribeGroups(ctx, "static")
			ids = map[string]string{}
			g := gs["static"]
			for _, m := range g.Members {
				if m.InstanceID != nil {
					ids[*m.InstanceID] = m.MemberID
				}
			}
			return err == nil && g.State == "Stable" && len(ids) == 2 && len(g.AssignedPartitions()["static"]) == 2
		})
		return ids
	}
	one, two := member("one"), member("two")
	defer one.Close()
	before := stable()
	two.Close() // a static member does not say goodbye
	again := member("two")
	defer again.Close()
	until(t, "it has a new member id", func() bool { return stable()["two"] != before["two"] })
	if after := stable(); after["one"] != before["one"] {
		t.Errorf("members before %v, after %v", before, after)
	}
}
