package kafka

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/record"
)

func TestMetadata(t *testing.T) {
	n := newFake()
	n.settings.AutoCreatePartitions = 2
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	id := p.createTopic("orders", 3)
	topic := func(name string, create bool) kmsg.MetadataResponseTopic {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.AllowAutoTopicCreation = 9, create
		qt := kmsg.NewMetadataRequestTopic()
		qt.Topic = &name
		req.Topics = append(req.Topics, qt)
		return ask[*kmsg.MetadataResponse](p, req).Topics[0]
	}
	if got := topic("orders", false); len(got.Partitions) != 3 || got.Partitions[2].Leader != 3 || got.Partitions[2].LeaderEpoch != 0 {
		t.Errorf("orders: %+v", got)
	}
	if got := topic("missing", false); got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("missing: error %d", got.ErrorCode)
	}
	if got := topic("bad name", true); got.ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("bad name: error %d", got.ErrorCode)
	}
	if got := topic("made", true); got.ErrorCode != 0 || len(got.Partitions) != 2 {
		t.Errorf("made: %+v", got)
	}
	byID := kmsg.NewPtrMetadataRequest()
	byID.Version = 12
	for _, want := range [][16]byte{id, {9}} {
		qt := kmsg.NewMetadataRequestTopic()
		qt.TopicID = want
		byID.Topics = append(byID.Topics, qt)
	}
	got := ask[*kmsg.MetadataResponse](p, byID).Topics
	if *got[0].Topic != "orders" || got[1].ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("by id: %+v", got)
	}
	n.mu.Lock()
	n.topics["a/b"] = n.topics["orders"]
	hidden := *n.topics["orders"]
	hidden.Name, hidden.Volatile = "hidden", true
	n.topics["hidden"] = &hidden
	n.mu.Unlock()
	all := kmsg.NewPtrMetadataRequest()
	all.Version = 1
	if topics := ask[*kmsg.MetadataResponse](p, all).Topics; len(topics) != 3 {
		t.Errorf("%d topics, want 3 without the hidden one", len(topics))
	}
	none := kmsg.NewPtrMetadataRequest()
	none.Version, none.Topics = 1, []kmsg.MetadataRequestTopic{}
	if topics := ask[*kmsg.MetadataResponse](p, none).Topics; len(topics) != 0 {
		t.Errorf("an empty list from version 1 on means none, got %d", len(topics))
	}
	all.Version, all.Topics = 0, []kmsg.MetadataRequestTopic{}
	if topics := ask[*kmsg.MetadataResponse](p, all).Topics; len(topics) != 3 {
		t.Errorf("an empty list in version 0 means all, got %d", len(topics))
	}
}

// TestMetadataWhileNobodyServes: what passes has the one code that librdkafka does not take
// for permanent, by name and by id.
func TestMetadataWhileNobodyServes(t *testing.T) {
	for code, want := range map[kernel.Code]*kerr.Error{
		kernel.CodeUnavailable:   kerr.LeaderNotAvailable,
		kernel.CodeUnknown:       kerr.LeaderNotAvailable,
		kernel.CodePressure:      kerr.LeaderNotAvailable,
		kernel.CodeAccessRefused: kerr.TopicAuthorizationFailed,
	} {
		n := newFake()
		addr, _ := start(t, n, nil)
		p := dial(t, addr)
		id, name := p.createTopic("orders", 3), "orders"
		n.lookup = kernel.Errorf(code, "", "", "no node serves now")
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		byName, byID := kmsg.NewMetadataRequestTopic(), kmsg.NewMetadataRequestTopic()
		byName.Topic, byID.TopicID = &name, id
		req.Topics = append(req.Topics, byName, byID)
		for _, got := range ask[*kmsg.MetadataResponse](p, req).Topics {
			if got.ErrorCode != want.Code || len(got.Partitions) != 0 {
				t.Errorf("%v: answered %+v, want %v", code, got, want)
			}
		}
	}
}

func TestListOffsets(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	p.produce("t", makeBatch("a", "b", "c")) // at 1000, 1001, 1002
	for _, c := range []struct {
		version    int16
		timestamp  int64
		offset, at int64
		code       int16
	}{
		{1, -1, 3, -1, 0}, {1, -2, 0, -1, 0}, {7, -3, 2, 1002, 0}, {6, -3, -1, -1, 35}, {8, -4, 0, -1, 0}, {9, -5, -1, -1, 0},
		{10, -6, -1, -1, 35}, {1, 0, 0, 1000, 0}, {1, 1001, 1, 1001, 0}, {1, 1003, -1, -1, 0}, {10, math.MaxInt64, -1, -1, 0},
	} {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = c.version
		qt := kmsg.NewListOffsetsRequestTopic()
		qt.Topic = "t"
		qp := kmsg.NewListOffsetsRequestTopicPartition()
		qp.Timestamp = c.timestamp
		qt.Partitions = append(qt.Partitions, qp)
		req.Topics = append(req.Topics, qt)
		got := ask[*kmsg.ListOffsetsResponse](p, req).Topics[0].Partitions[0]
		if got.Offset != c.offset || got.Timestamp != c.at || got.ErrorCode != c.code {
			t.Errorf("version %d, %d: offset %d at %d, error %d; want %d at %d, %d",
				c.version, c.timestamp, got.Offset, got.Timestamp, got.ErrorCode, c.offset, c.at, c.code)
		}
	}
}

// TestListOffsetsAtTheEdge: the highest time there is, a partition named twice, and a
// time that leads to records that cannot be read.
func TestListOffsetsAtTheEdge(t *testing.T) {
	node := newFake()
	addr, _ := start(t, node, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	var b record.Builder
	b.Append(&record.Record{Value: []byte("a"), Timestamp: 5})
	b.Append(&record.Record{Value: []byte("b"), Timestamp: math.MaxInt64})
	b.Append(&record.Record{Value: []byte("c"), Timestamp: 7})
	var log *fakeLog
	for _, logs := range node.logs {
		log = logs[0]
	}
	log.append(b.Finish(nil))
	list := func(timestamps ...int64) []kmsg.ListOffsetsResponseTopicPartition {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version = 7
		qt := kmsg.NewListOffsetsRequestTopic()
		qt.Topic = "t"
		for _, ts := range timestamps {
			qp := kmsg.NewListOffsetsRequestTopicPartition()
			qp.Timestamp = ts
			qt.Partitions = append(qt.Partitions, qp)
		}
		req.Topics = append(req.Topics, qt)
		return ask[*kmsg.ListOffsetsResponse](p, req).Topics[0].Partitions
	}
	if got := list(-3)[0]; got.Offset != 1 || got.Timestamp != math.MaxInt64 || got.ErrorCode != 0 {
		t.Errorf("highest: %+v", got)
	}
	twice := list(-1, -2)
	for _, got := range twice {
		if got.ErrorCode != kerr.InvalidRequest.Code || got.Offset != -1 {
			t.Errorf("twice: %+v", got)
		}
	}
	if len(twice) != 2 {
		t.Errorf("%d answers", len(twice))
	}
	log.mu.Lock()
	log.timeErr, log.batches = kernel.Errorf(kernel.CodeCorrupt, "partition", "1", "damaged"), nil
	log.mu.Unlock()
	for _, ts := range []int64{6, -3} {
		if got := list(ts)[0]; got.ErrorCode != kerr.CorruptMessage.Code || got.Offset != -1 {
			t.Errorf("damaged, %d: %+v", ts, got)
		}
	}
}

func TestCreateTopics(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	p.createTopic("there", 1)
	for _, c := range []struct {
		name         string
		partitions   int32
		factor       int16
		config, with string
		want         *kerr.Error
	}{
		{"a", 3, 1, "", "", nil}, {"b", -1, -1, "retention.ms", "60000", nil}, {"c", 1, 1, "cleanup.policy", "delete", nil},
		{"d", 1, 1, "cleanup.policy", "compact", kerr.InvalidConfig}, {"e", 1, 1, "no.such", "1", kerr.InvalidConfig},
		{"f", 1, 1, "retention.ms", "soon", kerr.InvalidConfig}, {"g", 0, 1, "", "", kerr.InvalidPartitions}, {"g", broker.MaxPartitions + 1, 1, "", "", kerr.InvalidPartitions},
		{"h", 1, 3, "", "", kerr.InvalidReplicationFactor}, {"there", 1, 1, "", "", kerr.TopicAlreadyExists},
		{"no/slash", 1, 1, "", "", kerr.InvalidTopicException}, {"_x41", 1, 1, "", "", kerr.InvalidTopicException},
		{strings.Repeat("x", 250), 1, 1, "", "", kerr.InvalidTopicException}, {"_x2F", 1, 1, "", "", nil},
	} {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 7
		qt := kmsg.NewCreateTopicsRequestTopic()
		qt.Topic, qt.NumPartitions, qt.ReplicationFactor = c.name, c.partitions, c.factor
		if c.config != "" {
			qc := kmsg.NewCreateTopicsRequestTopicConfig()
			qc.Name, qc.Value = c.config, &c.with
			qt.Configs = append(qt.Configs, qc)
		}
		req.Topics = append(req.Topics, qt)
		got := ask[*kmsg.CreateTopicsResponse](p, req).Topics[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err == nil && c.want != nil || err != nil && err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if c.want == kerr.InvalidPartitions && *got.ErrorMessage != fmt.Sprintf("a topic has 1 to %d partitions", broker.MaxPartitions) {
			t.Errorf("%d partitions: %s", c.partitions, *got.ErrorMessage)
		}
		if got.ErrorCode == 0 && len(got.Configs) != len(topicDefaults) {
			t.Errorf("%s: %d settings in the answer", c.name, len(got.Configs))
		}
	}
}

func TestDescribeConfigs(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = 4, true
	for kind, name := range map[kmsg.ConfigResourceType]string{kmsg.ConfigResourceTypeTopic: "t", kmsg.ConfigResourceTypeBroker: "3"} {
		q := kmsg.NewDescribeConfigsRequestResource()
		q.ResourceType, q.ResourceName = kind, name
		req.Resources = append(req.Resources, q)
	}
	for _, res := range ask[*kmsg.DescribeConfigsResponse](p, req).Resources {
		if res.ErrorCode != 0 || len(res.Configs) == 0 {
			t.Errorf("%s: error %d, %d settings", res.ResourceName, res.ErrorCode, len(res.Configs))
		}
		for _, c := range res.Configs {
			if c.Value == nil || c.Name == "cleanup.policy" && *c.Value != "delete" || c.Name == "retention.ms" && *c.Value != "604800000" {
				t.Errorf("%s = %v", c.Name, c.Value)
			}
		}
	}
}
