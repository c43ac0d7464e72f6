package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestMembersOutliveTheBroker: the broker is killed, and started again; and stopped, and started
// again. Members of groups go on with the partitions that they have, in their generation: franz-go,
// librdkafka and kafkajs.
func TestMembersOutliveTheBroker(t *testing.T) {
	harness.NeedPython(t, "confluent_kafka")
	harness.NeedNode(t, "kafkajs")
	b := harness.Start(t)
	ctx, adm := limited(t), admin(t, b.Addresses)
	const topic, partitions = "lasting", 3
	_, err := adm.CreateTopic(ctx, partitions, 1, nil, topic)
	must(t, err)
	var clients sync.WaitGroup
	for group, argv := range map[string][]string{
		"confluent": {harness.Python, "confluent_restart.py", b.Kafka, topic, fmt.Sprint(partitions)},
		"kafkajs":   {"node", "kafkajs_restart.js", b.Kafka, topic, fmt.Sprint(partitions)},
	} {
		clients.Go(func() {
			if out := harness.Client(t, patience, argv...); !strings.HasPrefix(out, "ok ") {
				t.Errorf("%s says %q", group, out)
			}
		})
	}
	m := newLasting(t, b, topic)
	reading, end := context.WithCancel(ctx)
	defer end()
	clients.Go(func() { m.read(reading) })
	names := []string{"confluent", "franz-go", "kafkajs"}
	ids := func() map[string]string {
		out := map[string]string{}
		groups, err := adm.DescribeGroups(ctx, names...)
		for _, g := range groups {
			if err == nil && g.Err == nil && g.State == "Stable" && len(g.Members) == 1 && len(g.AssignedPartitions()[topic]) == partitions {
				out[g.Group] = g.Members[0].MemberID
			}
		}
		return out
	}
	until(t, "all groups work", func() bool { return len(ids()) == len(names) })
	begun := ids()
	_, generation := m.cl.GroupMetadata()
	m.watched.Store(true)
	for round, ends := range []func(){b.Kill, func() { b.Stop() }} {
		writes(t, b, topic, partitions, fmt.Sprint(round))
		ends()
		b.Run()
		until(t, "all groups are there", func() bool { return len(ids()) == len(names) })
		writes(t, b, topic, partitions, "again")
		until(t, "all groups commit", func() bool { return committed(ctx, adm, names, topic, int64(2*round+2)) })
		if now := ids(); fmt.Sprint(now) != fmt.Sprint(begun) {
			t.Errorf("round %d: the members are %v, were %v", round, now, begun)
		}
	}
	if _, now := m.cl.GroupMetadata(); now != generation {
		t.Errorf("generation %d, was %d", now, generation)
	}
	m.watched.Store(false)
	for _, group := range names {
		if responses, err := adm.DeleteGroups(ctx, group); err != nil || responses[group].Err == nil {
			t.Errorf("%s is deleted while it has members: %v", group, err)
		}
	}
	writes(t, b, topic, partitions, "end")
	until(t, "all is committed", func() bool { return committed(ctx, adm, []string{"franz-go"}, topic, 5) })
	end()
	clients.Wait()
}

// lasting is a member that reads.
type lasting struct {
	cl      *kgo.Client
	watched atomic.Bool // it may lose nothing
}

func newLasting(t *testing.T, b *harness.Broker, topic string) *lasting {
	m := &lasting{}
	gone := func(_ context.Context, _ *kgo.Client, what map[string][]int32) {
		if m.watched.Load() && len(what) > 0 {
			t.Errorf("franz-go has lost %v", what)
		}
	}
	m.cl = b.DialKafka(t, kgo.ConsumerGroup("franz-go"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(45*time.Second), kgo.AutoCommitInterval(200*time.Millisecond),
		kgo.OnPartitionsLost(gone), kgo.OnPartitionsRevoked(gone), harness.Refused())
	return m
}

func (m *lasting) read(ctx context.Context) {
	for ctx.Err() == nil {
		m.cl.PollFetches(ctx)
	}
}

// writes has one record more in each partition, by a client that is connected anew.
func writes(t *testing.T, b *harness.Broker, topic string, partitions int32, value string) {
	t.Helper()
	cl := b.DialKafka(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	for i := range partitions {
		produce(limited(t), t, cl, &kgo.Record{Topic: topic, Partition: i, Value: []byte(value)})
	}
}

// committed reports whether groups have committed that offset of all partitions.
func committed(ctx context.Context, adm *kadm.Client, groups []string, topic string, at int64) bool {
	return !slices.ContainsFunc(groups, func(group string) bool {
		offsets, err := adm.FetchOffsets(ctx, group)
		if err != nil || offsets.Error() != nil || len(offsets[topic]) == 0 {
			return true
		}
		for _, o := range offsets[topic] {
			if o.At != at {
				return true
			}
		}
		return false
	})
}
