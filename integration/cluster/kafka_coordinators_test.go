package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
)

// commitAt commits an offset of partition 0 in no member's name, by way of a node.
func (k *kafkaNodes) commitAt(n *harness.Node, group, topic string, id [16]byte, offset int64) int16 {
	k.t.Helper()
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Group, q.Generation = group, -1
	qt, qp := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	qt.Topic, qt.TopicID, qp.Offset = topic, id, offset
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	return askKafka[*kmsg.OffsetCommitResponse](k, n, q).Topics[0].Partitions[0].ErrorCode
}

// committedAt is what is committed of partition 0, by way of a node.
func (k *kafkaNodes) committedAt(n *harness.Node, group, topic string, id [16]byte) (offset int64) {
	k.t.Helper()
	q := kmsg.NewPtrOffsetFetchRequest()
	qg, qt := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	qt.Topic, qt.TopicID, qt.Partitions = topic, id, []int32{0}
	qg.Group, qg.Topics = group, append(qg.Topics, qt)
	q.Groups = append(q.Groups, qg)
	g := askKafka[*kmsg.OffsetFetchResponse](k, n, q).Groups[0]
	if g.ErrorCode != 0 || len(g.Topics) != 1 || g.Topics[0].Partitions[0].ErrorCode != 0 {
		k.t.Errorf("node %d: offsets of %s: %+v", n.ID, group, g)
		return -1
	}
	return g.Topics[0].Partitions[0].Offset
}

// misdirected asks a node everything that is a coordinator's to answer, and returns the
// codes, by request.
func (k *kafkaNodes) misdirected(n *harness.Node, group, topic string, id [16]byte) map[string]int16 {
	k.t.Helper()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = group, "consumer", 10000, 10000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0}
	join.Protocols = append(join.Protocols, p)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = group, "nobody", 1
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = group, "nobody", 1
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = group
	leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: "nobody"})
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{group}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{group}
	return map[string]int16{
		"join":      askKafka[*kmsg.JoinGroupResponse](k, n, join).ErrorCode,
		"sync":      askKafka[*kmsg.SyncGroupResponse](k, n, sync).ErrorCode,
		"heartbeat": askKafka[*kmsg.HeartbeatResponse](k, n, beat).ErrorCode,
		"leave":     askKafka[*kmsg.LeaveGroupResponse](k, n, leave).ErrorCode,
		"describe":  askKafka[*kmsg.DescribeGroupsResponse](k, n, describe).Groups[0].ErrorCode,
		"delete":    askKafka[*kmsg.DeleteGroupsResponse](k, n, remove).Groups[0].ErrorCode,
		"commit":    k.commitAt(n, group, topic, id, 1),
	}
}

// TestKafkaCoordinators: what is about a group is answered by the node that coordinates
// it, and by no other one; what is committed there can be read at all.
func TestKafkaCoordinators(t *testing.T) {
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	id := k.topic(k.c.Nodes[0], "t", 1)
	for i, group := range named(9) {
		coordinator := k.coordinator(group)
		for _, n := range k.others(coordinator) {
			for request, code := range k.misdirected(n, group, "t", id) {
				if code != kerr.NotCoordinator.Code {
					t.Errorf("node %d, %s of %s, which node %d coordinates: %v", n.ID, request, group, coordinator.ID, kerr.ErrorForCode(code))
				}
			}
		}
		if code := k.commitAt(coordinator, group, "t", id, int64(100+i)); code != 0 {
			t.Errorf("node %d: commit of %s: %v", coordinator.ID, group, kerr.ErrorForCode(code))
		}
		for _, n := range k.c.Nodes {
			if offset := k.committedAt(n, group, "t", id); offset != int64(100+i) {
				t.Errorf("node %d: %s has committed %d, not %d", n.ID, group, offset, 100+i)
			}
		}
	}
}

// stream is numbers that an idempotent producer writes to partitions, and those who read
// them: each partition has a row of its own.
type stream struct {
	k     *kafkaNodes
	topic string
	wrote []atomic.Int64 // by partition: how many are acknowledged

	mu   sync.Mutex
	next []int64 // by partition: the number that is to come
	kept []int64 // by partition: what was committed at some time
	back int     // how many came that had come before
	once bool    // what has come before may not come again: no member leaves the group
}

func newStream(k *kafkaNodes, topic string, partitions int32) *stream {
	k.t.Helper()
	k.topic(k.c.Nodes[0], topic, partitions)
	return &stream{k: k, topic: topic, wrote: make([]atomic.Int64, partitions), next: make([]int64, partitions), kept: make([]int64, partitions)}
}

// write produces until ctx ends, and waits for what is under way.
func (s *stream) write(ctx context.Context, producer *kgo.Client) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		partition := i % len(s.wrote)
		r := &kgo.Record{Topic: s.topic, Partition: int32(partition), Value: fmt.Append(nil, i/len(s.wrote))}
		producer.Produce(context.Background(), r, func(r *kgo.Record, err error) {
			if err != nil {
				s.k.t.Errorf("partition %d, %s: %v", partition, r.Value, err)
				return
			}
			if n := s.wrote[partition].Add(1); r.Offset != n-1 || string(r.Value) != fmt.Sprint(n-1) {
				s.k.t.Errorf("partition %d: %s is the record at %d, not %d", partition, r.Value, r.Offset, n-1)
			}
		})
		<-tick.C
	}
	within, cancel := context.WithTimeout(context.Background(), 2*healed)
	defer cancel()
	if err := producer.Flush(within); err != nil {
		s.k.t.Errorf("what is under way has no outcome: %v", err)
	}
}

// read polls until ctx ends.
func (s *stream) read(ctx context.Context, reader *kgo.Client) {
	for ctx.Err() == nil {
		fetches := reader.PollFetches(ctx)
		fetches.EachRecord(s.came)
		reader.AllowRebalance()
		fetches.EachError(func(topic string, partition int32, err error) {
			if _, left := errors.AsType[*kgo.ErrGroupSession](err); ctx.Err() == nil && (s.once || !left) {
				s.k.t.Errorf("read %s %d: %v", topic, partition, err)
			}
		})
	}
}

// came notes a record: its number is the next one, or one that has come before to a
// member whose commits were late.
func (s *stream) came(r *kgo.Record) {
	var n int64
	if _, err := fmt.Sscan(string(r.Value), &n); err != nil || n != r.Offset {
		s.k.t.Errorf("partition %d: %q at %d", r.Partition, r.Value, r.Offset)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch next := &s.next[r.Partition]; {
	case n == *next:
		*next++
	case n < s.kept[r.Partition]:
		s.k.t.Errorf("partition %d: %d came again, which was committed: up to %d", r.Partition, n, s.kept[r.Partition])
	case n < *next && !s.once:
		s.back++
	default:
		s.k.t.Errorf("partition %d: %d came, not %d", r.Partition, n, *next)
	}
}

// keeps waits until a group has committed something of every partition: nobody may read
// that again.
func (s *stream) keeps(group string) {
	s.k.t.Helper()
	harness.Wait(s.k.t, healed, "offsets are committed", func() bool {
		offsets, err := s.k.adm.FetchOffsets(s.k.ctx, group)
		if err != nil || offsets.Error() != nil {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.kept {
			o, _ := offsets.Lookup(s.topic, int32(i))
			if o.At < max(s.kept[i], 1) {
				return false
			}
			s.kept[i] = o.At
		}
		return true
	})
}

// all is how many have come.
func (s *stream) all() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, next := range s.next {
		n += next
	}
	return n
}

// moves waits until more has come of every partition.
func (s *stream) moves() {
	s.k.t.Helper()
	s.mu.Lock()
	before := slices.Clone(s.next)
	s.mu.Unlock()
	harness.Wait(s.k.t, healed, "every partition is written and read", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, next := range s.next {
			if next < before[i]+20 {
				return false
			}
		}
		return true
	})
}

// complete waits until all that was acknowledged has come.
func (s *stream) complete() {
	s.k.t.Helper()
	harness.Wait(s.k.t, healed, "all that was acknowledged has come", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.wrote {
			if s.next[i] < s.wrote[i].Load() {
				return false
			}
		}
		return true
	})
	s.k.t.Logf("%d records, %d came again", s.all(), s.back)
}

// member is a reader of a group.
func (s *stream) member(group string, opts ...kgo.Opt) *kgo.Client {
	s.k.t.Helper()
	return s.k.client(s.k.c.Nodes, append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(6 * time.Second), kgo.AutoCommitInterval(200 * time.Millisecond),
	}, opts...)...)
}

// shared waits until so many members share all partitions.
func (s *stream) shared(group string, members int) {
	s.k.t.Helper()
	harness.Wait(s.k.t, healed, fmt.Sprintf("%d members share the partitions", members), func() bool {
		groups, err := s.k.adm.DescribeGroups(s.k.ctx, group)
		g := groups[group]
		return err == nil && g.Err == nil && g.State == "Stable" && len(g.Members) == members && len(g.AssignedPartitions()[s.topic]) == len(s.wrote)
	})
}

// drained has a group move to another node and back.
func (s *stream) drained(group string, from *harness.Node) {
	s.k.t.Helper()
	settles := func(nodes []*harness.Node) {
		s.k.t.Helper()
		harness.Wait(s.k.t, healed, "so many nodes coordinate groups", func() bool { return s.k.coordinate(nodes...) })
		s.moves()
		s.shared(group, 3)
	}
	s.keeps(group)
	harness.Must(s.k.t, from.Drain())
	settles(s.k.others(from))
	s.keeps(group)
	harness.Must(s.k.t, from.Undrain())
	settles(s.k.c.Nodes)
}

// TestKafkaCoordinatorDies: a node that does not serve is killed, and another one
// coordinates its group within a while: it goes on from what it has committed, and nothing
// is lost. When the node is back all nodes coordinate groups again; and when it is drained
// the group moves, and back.
func TestKafkaCoordinatorDies(t *testing.T) {
	full(t)
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	s := newStream(k, "stream", 6)
	leader, err := k.c.Leader(healed)
	harness.Must(t, err)
	group := ""
	for _, g := range named(30) {
		if k.coordinator(g) != leader {
			group = g
			break
		}
	}
	dies := k.coordinator(group)
	ctx, stop := context.WithCancel(k.ctx)
	defer stop()
	reading, end := context.WithCancel(k.ctx)
	defer end()
	var writing, readers sync.WaitGroup
	producer := k.client(k.c.Nodes, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
	writing.Go(func() { s.write(ctx, producer) })
	for range 3 {
		m := s.member(group)
		readers.Go(func() { s.read(reading, m) })
	}
	s.shared(group, 3)
	s.moves()
	s.keeps(group)
	dies.Kill()
	begin := time.Now()
	left := k.others(dies)
	harness.Wait(t, 20*time.Second, "another node coordinates the group", func() bool {
		now := k.coordinators(left[0], group)
		return now[group] > 0 && now[group] != int32(dies.ID) && maps.Equal(now, k.coordinators(left[1], group))
	})
	found := time.Since(begin)
	s.moves()
	took := time.Since(begin)
	s.shared(group, 3)
	if took > 20*time.Second {
		t.Errorf("the group goes on after %v", took)
	}
	t.Logf("another coordinator after %v, the group goes on after %v", found.Round(time.Millisecond), took.Round(time.Millisecond))
	s.keeps(group)
	harness.Must(t, dies.Run())
	harness.Must(t, k.c.Whole(healed))
	harness.Wait(t, healed, "all nodes coordinate groups", func() bool { return k.coordinate(k.c.Nodes...) })
	if now := k.coordinator(group); now != dies {
		t.Errorf("node %d coordinates the group, not node %d as before", now.ID, dies.ID)
	}
	s.shared(group, 3)
	s.moves()
	s.drained(group, dies)
	stop()
	writing.Wait()
	s.complete()
	end()
	readers.Wait()
}
