package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/storage/record"
)

// kafkaNodes is a cluster with a Kafka client that knows all of its nodes, and asks those
// that it is told to ask.
type kafkaNodes struct {
	t   *testing.T
	c   *harness.Cluster
	ctx context.Context
	cl  *kgo.Client
	adm *kadm.Client

	probe [16]byte // id of a topic of that name, if there is one
}

func startKafkaNodes(t *testing.T, config harness.ClusterConfig) *kafkaNodes {
	t.Helper()
	config.Args = append(config.Args, "--kafka-leaders", "spread") // the longer way
	k := &kafkaNodes{t: t, c: harness.StartCluster(t, config)}
	ctx, cancel := context.WithTimeout(context.Background(), 4*healed)
	t.Cleanup(cancel)
	k.ctx = ctx
	harness.Must(t, k.c.Whole(healed))
	k.cl = k.client(k.c.Nodes)
	k.adm = kadm.NewClient(k.cl)
	harness.Wait(t, healed, "groups are coordinated by all nodes", func() bool { return k.coordinate(k.c.Nodes...) })
	return k
}

// client is kafkaClient that ends with the test.
func (k *kafkaNodes) client(nodes []*harness.Node, opts ...kgo.Opt) *kgo.Client {
	k.t.Helper()
	c, err := kafkaClient(nodes, opts...)
	harness.Must(k.t, err)
	k.t.Cleanup(c.Close)
	return c
}

// at is the broker at a node.
func (k *kafkaNodes) at(n *harness.Node) *kgo.Broker { return k.cl.Broker(n.ID) }

// askKafka asks a broker, and nobody else, and fails the test unless it answers.
func askKafka[R kmsg.Response](k *kafkaNodes, n *harness.Node, q kmsg.Request) R {
	k.t.Helper()
	answer, err := k.at(n).Request(k.ctx, q)
	if err != nil {
		k.t.Fatalf("node %d: request %s: %v", n.ID, kmsg.NameForKey(q.Key()), err)
	}
	return answer.(R)
}

// named are groups of one row of names.
func named(count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprint("group-", i))
	}
	return names
}

// coordinators are the nodes that coordinate groups, as a node says.
func (k *kafkaNodes) coordinators(n *harness.Node, groups ...string) map[string]int32 {
	k.t.Helper()
	q := kmsg.NewPtrFindCoordinatorRequest()
	q.CoordinatorKeys = groups
	out := map[string]int32{}
	for _, c := range askKafka[*kmsg.FindCoordinatorResponse](k, n, q).Coordinators {
		if out[c.Key] = c.NodeID; c.ErrorCode != 0 {
			out[c.Key] = -int32(c.ErrorCode)
		}
	}
	return out
}

// coordinate reports whether the nodes, and no other ones, coordinate groups, and each of
// them says the same of all groups.
func (k *kafkaNodes) coordinate(nodes ...*harness.Node) bool {
	k.t.Helper()
	groups := named(30)
	first, some := k.coordinators(nodes[0], groups...), map[int32]bool{}
	for _, node := range first {
		some[node] = true
	}
	for _, n := range nodes {
		if !some[int32(n.ID)] || !maps.Equal(first, k.coordinators(n, groups...)) {
			return false
		}
	}
	return len(some) == len(nodes)
}

// coordinator is the node that coordinates a group.
func (k *kafkaNodes) coordinator(group string) *harness.Node {
	k.t.Helper()
	id := k.coordinators(k.c.Nodes[0], group)[group]
	if id < 1 || int(id) > len(k.c.Nodes) {
		k.t.Fatalf("%s is coordinated by %d", group, id)
	}
	return k.c.Nodes[id-1]
}

// others are all nodes but one.
func (k *kafkaNodes) others(n *harness.Node) []*harness.Node {
	return slices.DeleteFunc(slices.Clone(k.c.Nodes), func(o *harness.Node) bool { return o == n })
}

// topic makes a topic at a node and returns its id.
func (k *kafkaNodes) topic(n *harness.Node, name string, partitions int32) (id [16]byte) {
	k.t.Helper()
	q := kmsg.NewPtrCreateTopicsRequest()
	qt := kmsg.NewCreateTopicsRequestTopic()
	qt.Topic, qt.NumPartitions, qt.ReplicationFactor = name, partitions, -1
	q.Topics = append(q.Topics, qt)
	answer := askKafka[*kmsg.CreateTopicsResponse](k, n, q).Topics[0]
	if answer.ErrorCode != 0 {
		k.t.Fatalf("node %d: make %s: %v", n.ID, name, kerr.ErrorForCode(answer.ErrorCode))
	}
	return answer.TopicID
}

// produceAt stores a batch by way of a node.
func (k *kafkaNodes) produceAt(n *harness.Node, topic string, id [16]byte, partition int32, records ...record.Record) kmsg.ProduceResponseTopicPartition {
	k.t.Helper()
	var b record.Builder
	b.Reset()
	for i := range records {
		b.Append(&records[i])
	}
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = -1, 10000
	qt, qp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	qt.Topic, qt.TopicID, qp.Partition, qp.Records = topic, id, partition, b.Finish(nil)
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	return askKafka[*kmsg.ProduceResponse](k, n, q).Topics[0].Partitions[0]
}

// fetchWait is how long a fetch waits at the end of a log, in milliseconds.
const fetchWait = 200

// fetchAt reads once by way of a node.
func (k *kafkaNodes) fetchAt(n *harness.Node, topic string, id [16]byte, partition int32, offset int64) kgo.FetchPartition {
	k.t.Helper()
	q := kmsg.NewPtrFetchRequest()
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes = fetchWait, 1, 1<<20
	qt, qp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	qt.Topic, qt.TopicID, qp.Partition, qp.FetchOffset, qp.PartitionMaxBytes = topic, id, partition, offset, 1<<20
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	answer := askKafka[*kmsg.FetchResponse](k, n, q).Topics[0].Partitions[0]
	out, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: offset, Topic: topic, Partition: partition}, &answer, kgo.DefaultDecompressor(), nil)
	return out
}

// readAt reads from an offset to an end by way of a node: values by offset, one a line.
func (k *kafkaNodes) readAt(n *harness.Node, topic string, id [16]byte, partition int32, offset, end int64) []string {
	k.t.Helper()
	var lines []string
	for offset < end {
		p := k.fetchAt(n, topic, id, partition, offset)
		if p.Err != nil || len(p.Records) == 0 {
			k.t.Fatalf("node %d: %s from %d of %d: %d records, %v", n.ID, topic, offset, end, len(p.Records), p.Err)
		}
		for _, r := range p.Records {
			lines = append(lines, fmt.Sprintf("%d %d %s", r.Offset, r.Timestamp.UnixMilli(), r.Value))
		}
		offset = p.Records[len(p.Records)-1].Offset + 1
	}
	return lines
}

// offsetAt asks a node for an offset of a partition by a time, or one of Kafka's points.
func (k *kafkaNodes) offsetAt(n *harness.Node, topic string, partition int32, ts int64) (offset int64) {
	k.t.Helper()
	q := kmsg.NewPtrListOffsetsRequest()
	q.ReplicaID = -1
	qt, qp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	qt.Topic, qp.Partition, qp.Timestamp = topic, partition, ts
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	answer := askKafka[*kmsg.ListOffsetsResponse](k, n, q).Topics[0].Partitions[0]
	if answer.ErrorCode != 0 {
		k.t.Errorf("node %d: offset of %s at %d: %v", n.ID, topic, ts, kerr.ErrorForCode(answer.ErrorCode))
	}
	return answer.Offset
}

// Kafka's points in a log.
const (
	latest   = -1
	earliest = -2
	newest   = -3
)

// TestKafkaAtEveryNode: every node takes every request for every partition and says the
// same of all; partitions are led, and groups coordinated, by all nodes.
func TestKafkaAtEveryNode(t *testing.T) {
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	for _, test := range []struct {
		name string
		run  func(*kafkaNodes)
	}{
		{"leaders", (*kafkaNodes).sameLeaders}, {"topic", (*kafkaNodes).topicLife}, {"ends", (*kafkaNodes).freshEnds},
		{"groups", (*kafkaNodes).groupAdmin}, {"log", (*kafkaNodes).longLog},
	} {
		t.Run(test.name, func(t *testing.T) {
			sub := *k
			sub.t = t
			test.run(&sub)
		})
	}
}

// sameLeaders: all nodes lead partitions, and all of them say so.
func (k *kafkaNodes) sameLeaders() {
	k.topic(k.c.Nodes[0], "spread", 6)
	topic := "spread"
	led := map[int32]int{}
	var first []int32
	for _, n := range k.c.Nodes {
		q := kmsg.NewPtrMetadataRequest()
		q.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
		answer := askKafka[*kmsg.MetadataResponse](k, n, q)
		var leaders []int32
		for _, p := range answer.Topics[0].Partitions {
			leaders = append(leaders, p.Leader)
			led[p.Leader]++
		}
		if first == nil {
			first = leaders
		}
		if len(leaders) != 6 || !slices.Equal(leaders, first) || len(answer.Brokers) != 3 {
			k.t.Errorf("node %d: leaders %v of %d brokers, another one says %v", n.ID, leaders, len(answer.Brokers), first)
		}
	}
	for _, n := range k.c.Nodes {
		if led[int32(n.ID)] != 6 {
			k.t.Errorf("leaders are not spread evenly: %v", led)
		}
	}
}

// topicLife: a topic is made at one node, written at another one, read at all, and deleted
// at the third one.
func (k *kafkaNodes) topicLife() {
	for i, maker := range k.c.Nodes {
		writer, other, topic := k.c.Nodes[(i+1)%3], k.c.Nodes[(i+2)%3], fmt.Sprint("life-", i)
		id := k.topic(maker, topic, 3)
		for partition := range int32(3) {
			stored := k.produceAt(writer, topic, id, partition, record.Record{Timestamp: 1000, Value: []byte("a")},
				record.Record{Timestamp: 3000, Value: []byte("b")}, record.Record{Timestamp: 2000, Value: []byte("c")})
			if stored.ErrorCode != 0 || stored.BaseOffset != 0 {
				k.t.Fatalf("node %d: produce: offset %d, %v", writer.ID, stored.BaseOffset, kerr.ErrorForCode(stored.ErrorCode))
			}
			for _, n := range k.c.Nodes {
				got := k.readAt(n, topic, id, partition, 0, 3)
				offsets := []int64{k.offsetAt(n, topic, partition, earliest), k.offsetAt(n, topic, partition, latest), k.offsetAt(n, topic, partition, 1500),
					k.offsetAt(n, topic, partition, 3001), k.offsetAt(n, topic, partition, newest)}
				if strings.Join(got, ",") != "0 1000 a,1 3000 b,2 2000 c" || !slices.Equal(offsets, []int64{0, 3, 1, -1, 1}) {
					k.t.Errorf("node %d: %v, offsets %v", n.ID, got, offsets)
				}
			}
		}
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.TopicNames, q.Topics = []string{topic}, []kmsg.DeleteTopicsRequestTopic{{Topic: &topic}}
		if code := askKafka[*kmsg.DeleteTopicsResponse](k, other, q).Topics[0].ErrorCode; code != 0 {
			k.t.Errorf("node %d: delete: %v", other.ID, kerr.ErrorForCode(code))
		}
		for _, n := range k.c.Nodes {
			switch stored := k.produceAt(n, topic, id, 0, record.Record{Value: []byte("late")}); stored.ErrorCode {
			case kerr.UnknownTopicID.Code, kerr.UnknownTopicOrPartition.Code:
			default:
				k.t.Errorf("node %d: produce to a topic that is deleted: %v", n.ID, kerr.ErrorForCode(stored.ErrorCode))
			}
			if p := k.fetchAt(n, topic, id, 0, 0); p.Err == nil {
				k.t.Errorf("node %d: fetch of a topic that is deleted: %d records", n.ID, len(p.Records))
			}
		}
	}
}

// freshEnds: what one node has acknowledged is before the end at every other one at once.
func (k *kafkaNodes) freshEnds() {
	const topic = "ends"
	id := k.topic(k.c.Nodes[0], topic, 1)
	for i := range 60 {
		at, other := k.c.Nodes[i%3], k.c.Nodes[(i+1+i/3%2)%3]
		if stored := k.produceAt(at, topic, id, 0, record.Record{Value: fmt.Append(nil, i)}); stored.ErrorCode != 0 || stored.BaseOffset != int64(i) {
			k.t.Fatalf("node %d: offset %d, not %d: %v", at.ID, stored.BaseOffset, i, kerr.ErrorForCode(stored.ErrorCode))
		}
		if end := k.offsetAt(other, topic, 0, latest); end != int64(i)+1 {
			k.t.Errorf("node %d says that the log ends at %d, node %d has acknowledged %d", other.ID, end, at.ID, i)
		}
		if p := k.fetchAt(other, topic, id, 0, int64(i)); p.Err != nil || len(p.Records) != 1 {
			k.t.Errorf("node %d: %d records of %d: %v", other.ID, len(p.Records), i, p.Err)
		}
	}
}

// groupAdmin: who administers groups sees those of all nodes.
func (k *kafkaNodes) groupAdmin() {
	k.topic(k.c.Nodes[0], "admin", 1)
	groups := named(12)
	for _, group := range groups {
		offsets := kadm.Offsets{}
		offsets.AddOffset("admin", 0, 7, -1)
		harness.Must(k.t, k.adm.CommitAllOffsets(k.ctx, group, offsets))
	}
	where := map[int32]bool{}
	for _, node := range k.coordinators(k.c.Nodes[0], groups...) {
		where[node] = true
	}
	if len(where) != 3 {
		k.t.Fatalf("the groups are coordinated by %v", where)
	}
	for _, n := range k.c.Nodes {
		adm := kadm.NewClient(k.client([]*harness.Node{n}))
		listed, err := adm.ListGroups(k.ctx)
		harness.Must(k.t, err)
		described, err := adm.DescribeGroups(k.ctx, groups...)
		harness.Must(k.t, err)
		for _, group := range groups {
			if _, ok := listed[group]; !ok || described[group].Err != nil || described[group].State != "Empty" {
				k.t.Errorf("by node %d: %s listed: %v, described as %v, %v", n.ID, group, ok, described[group].State, described[group].Err)
			}
		}
		mine := groups[:4]
		groups = groups[4:]
		deleted, err := adm.DeleteGroups(k.ctx, mine...)
		if err == nil {
			err = deleted.Error()
		}
		harness.Must(k.t, err)
		listed, err = adm.ListGroups(k.ctx)
		harness.Must(k.t, err)
		for _, group := range mine {
			if _, ok := listed[group]; ok {
				k.t.Errorf("by node %d: %s is deleted and listed", n.ID, group)
			}
		}
	}
}

// longLog: a log of several MB, and its tail, are the same by way of every node.
func (k *kafkaNodes) longLog() {
	const topic, count, size = "long", 6000, 1024
	id := k.topic(k.c.Nodes[0], topic, 1)
	producer := k.client(k.c.Nodes, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(64<<10))
	var records []*kgo.Record
	for i := range count {
		value := fmt.Sprint(i, " ")
		records = append(records, &kgo.Record{Value: []byte(value + strings.Repeat("x", size-len(value)))})
	}
	harness.Must(k.t, producer.ProduceSync(k.ctx, records...).FirstErr())
	for _, from := range []int64{0, 1, count / 2, count - 100, count - 1} {
		var first []string
		for _, n := range k.c.Nodes {
			got := k.readAt(n, topic, id, 0, from, count)
			if first == nil {
				first = got
			}
			if len(got) != int(count-from) || !slices.Equal(got, first) {
				k.t.Errorf("node %d: %d records from %d, not those of node 1", n.ID, len(got), from)
			}
			for i, line := range got {
				if offset := from + int64(i); !strings.HasPrefix(line, fmt.Sprintf("%d %d %d x", offset, records[offset].Timestamp.UnixMilli(), offset)) {
					k.t.Fatalf("node %d: offset %d: %.40s", n.ID, offset, line)
				}
			}
		}
	}
	waiting := time.Now()
	for _, n := range k.c.Nodes {
		if p := k.fetchAt(n, topic, id, 0, count); p.Err != nil || len(p.Records) != 0 || p.HighWatermark != count {
			k.t.Errorf("node %d: %d records at the end, high watermark %d, %v", n.ID, len(p.Records), p.HighWatermark, p.Err)
		}
		if p := k.fetchAt(n, topic, id, 0, count+1); p.Err != kerr.OffsetOutOfRange {
			k.t.Errorf("node %d: beyond the end: %v", n.ID, p.Err)
		}
	}
	if took := time.Since(waiting); took < 3*fetchWait*time.Millisecond {
		k.t.Errorf("three fetches at the end have waited %v, not %d ms each", took, fetchWait)
	}
}
