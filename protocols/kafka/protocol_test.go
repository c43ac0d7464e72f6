package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/record"
)

// Every version of every API served decodes, is answered, and the answer
// decodes.
func TestEveryVersionIsAnswered(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	for key, a := range apis {
		if key == keySASLAuthenticate || key == keyProduce || key == keySASLHandshake {
			continue // their own tests
		}
		for v := a.min; v <= a.max; v++ {
			p := dial(t, addr)
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			ask[kmsg.Response](p, req)
			_ = p.nc.Close()
		}
	}
}

func TestApiVersions(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version = v
		if resp := ask[*kmsg.ApiVersionsResponse](p, req); resp.ErrorCode != 0 || len(resp.ApiKeys) != len(apis) {
			t.Errorf("version %d: error %d, %d keys", v, resp.ErrorCode, len(resp.ApiKeys))
		}
	}
	// A newer version is answered in version 0, whatever its body (KIP-511).
	newer := kmsg.NewPtrApiVersionsRequest()
	newer.Version = 5
	correlation := p.send(newer)
	old := kmsg.NewPtrApiVersionsResponse()
	p.receive(correlation, old)
	if old.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("error %d, want 35", old.ErrorCode)
	}
	ranges := map[int16][2]int16{}
	for _, k := range old.ApiKeys {
		ranges[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	for key, want := range map[int16][2]int16{0: {0, 13}, 1: {4, 18}, 3: {0, 13}, 11: {0, 9}, 17: {0, 1}, 18: {0, 4}, 22: {0, 5}} {
		if ranges[key] != want {
			t.Errorf("key %d: range %v, want %v", key, ranges[key], want)
		}
	}
}

// Rows 36 to 38 of the fault list: what breaks the framing closes the
// connection, without an answer and without an allocation of the size claimed.
func TestHostileFrames(t *testing.T) {
	frame := func(key, version int16, body ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+10))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = append(b, 0, 0, 0, 1, 0xff, 0xff) // correlation, null client id
		return append(b, body...)
	}
	addr, _ := start(t, newFake(), nil)
	for name, b := range map[string][]byte{
		"size 0":                     {0, 0, 0, 0},
		"size -1":                    {0xff, 0xff, 0xff, 0xff},
		"size beyond the limit":      {0x7f, 0xff, 0xff, 0xff},
		"no room for a header":       {0, 0, 0, 3, 0, 3, 0},
		"client id longer than all":  {0, 0, 0, 10, 0, 3, 0, 0, 0, 0, 0, 1, 0x7f, 0xff},
		"unknown key":                frame(999, 0),
		"negative key":               frame(-1, 0),
		"unserved key":               frame(24, 0),
		"version too high":           frame(3, 99),
		"version too low":            frame(0, 2),
		"negative version":           frame(18, -1),
		"array of 2^31-1":            frame(3, 0, 0x7f, 0xff, 0xff, 0xff),
		"array of 2^28 in 40 bytes":  frame(3, 0, append([]byte{0x10, 0, 0, 0}, make([]byte, 40)...)...),
		"string length -5":           frame(3, 0, 0, 0, 0, 1, 0xff, 0xfb),
		"truncated varint":           frame(3, 9, 0, 0xff, 0xff),
		"cut body":                   frame(1, 11, 0, 0),
		"endless tags in the header": frame(3, 9, 0xff, 0xff, 0xff, 0xff, 0x0f),
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, addr)
			p.write(b)
			p.wantClosed()
		})
	}
}

// A large first request is for those who may be anonymous.
func TestLargeFirstRequest(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	dial(t, addr).createTopic("t", 1)
	large := produceRequest(9, "t", [16]byte{}, -1, makeBatch(strings.Repeat("x", 900<<10)))
	if got := ask[*kmsg.ProduceResponse](dial(t, addr), large).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Errorf("produce: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	private := newFake()
	private.closed = true
	addr, _ = start(t, private, nil)
	p := dial(t, addr)
	p.write(binary.BigEndian.AppendUint32(nil, maxEarlyFrame+1)) // refused on its size alone
	p.wantClosed()
}

func TestUnknownTagsAreSkipped(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.UnknownTags.Set(77, []byte("from the future"))
	resp := ask[*kmsg.MetadataResponse](p, req)
	if len(resp.Brokers) != 1 || *resp.ClusterID != "test-cluster" || resp.ControllerID != 3 {
		t.Errorf("answer %+v", resp)
	}
	host, port := resp.Brokers[0].Host, resp.Brokers[0].Port
	if got := fmt.Sprintf("%s:%d", host, port); got != addr {
		t.Errorf("advertised %s, connected to %s", got, addr)
	}
}

func TestAdvertise(t *testing.T) {
	addr, _ := start(t, newFake(), func(c *Config) { c.Advertise = "kafka.example:19092" })
	p := dial(t, addr)
	resp := ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
	if b := resp.Brokers[0]; b.Host != "kafka.example" || b.Port != 19092 {
		t.Errorf("advertised %s:%d", b.Host, b.Port)
	}
	for _, bad := range []string{"0.0.0.0:9092", "[::]:9092", ":9092", "host", "host:0", "host:99999"} {
		if _, err := newServer(newFake(), Config{Advertise: bad}); err == nil {
			t.Errorf("%q may be advertised", bad)
		}
	}
}

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

// Requests are answered in their order, though a later one is ready earlier.
func TestPipelining(t *testing.T) {
	n := newFake()
	n.hold = make(chan struct{})
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	var sent []int32
	for i := range 3 {
		sent = append(sent, p.send(produceRequest(9, "t", [16]byte{}, -1, makeBatch(fmt.Sprint(i)))))
	}
	meta := p.send(kmsg.NewPtrMetadataRequest())
	close(n.hold) // only now does any produce complete
	for _, correlation := range sent {
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 9
		p.receive(correlation, resp)
		if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
			t.Errorf("produce: %v", kerr.ErrorForCode(code))
		}
	}
	p.receive(meta, kmsg.NewPtrMetadataResponse())
}

func TestSASL(t *testing.T) {
	n := newFake()
	n.closed = true
	addr, _ := start(t, n, nil)
	handshake := func(p *peer, version int16, mechanism string) *kmsg.SASLHandshakeResponse {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Version, req.Mechanism = version, mechanism
		return ask[*kmsg.SASLHandshakeResponse](p, req)
	}
	authenticate := func(p *peer, msg string) *kmsg.SASLAuthenticateResponse {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 2, []byte(msg)
		return ask[*kmsg.SASLAuthenticateResponse](p, req)
	}
	t.Run("anonymous access refused", func(t *testing.T) {
		p := dial(t, addr)
		ask[*kmsg.ApiVersionsResponse](p, kmsg.NewPtrApiVersionsRequest())
		p.send(kmsg.NewPtrMetadataRequest())
		p.wantClosed()
	})
	t.Run("plain", func(t *testing.T) {
		p := dial(t, addr)
		if resp := handshake(p, 1, "SCRAM-SHA-1"); resp.ErrorCode != kerr.UnsupportedSaslMechanism.Code || !slices.Equal(resp.SupportedMechanisms, []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}) {
			t.Errorf("answer %+v", resp)
		}
		if resp := authenticate(p, "\x00guest\x00guest"); resp.ErrorCode != kerr.IllegalSaslState.Code {
			t.Errorf("without a mechanism: error %d", resp.ErrorCode)
		}
		if resp := handshake(p, 1, "PLAIN"); resp.ErrorCode != 0 || !slices.Equal(resp.SupportedMechanisms, []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}) {
			t.Errorf("answer %+v", resp)
		}
		if resp := authenticate(p, "\x00guest\x00guest"); resp.ErrorCode != 0 {
			t.Fatalf("error %d", resp.ErrorCode)
		}
		ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
		if resp := handshake(p, 1, "PLAIN"); resp.ErrorCode != kerr.IllegalSaslState.Code {
			t.Errorf("a second time: error %d", resp.ErrorCode)
		}
	})
	for name, msg := range map[string]string{
		"wrong password": "\x00guest\x00wrong", "other authorization id": "root\x00guest\x00guest", "malformed": "guest",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dial(t, addr)
			handshake(p, 1, "PLAIN")
			if resp := authenticate(p, msg); resp.ErrorCode != kerr.SaslAuthenticationFailed.Code {
				t.Errorf("error %d", resp.ErrorCode)
			}
			p.wantClosed()
			if n.counters.Refused.Load() == 0 {
				t.Error("the refused login is not counted")
			}
		})
	}
	t.Run("another request in the midst", func(t *testing.T) {
		addr, _ := start(t, newFake(), nil) // which admits anonymous peers
		p := dial(t, addr)
		handshake(p, 1, "PLAIN")
		p.send(kmsg.NewPtrMetadataRequest())
		p.wantClosed()
	})
	t.Run("bare", func(t *testing.T) {
		p := dial(t, addr)
		handshake(p, 0, "PLAIN")
		msg := "\x00guest\x00guest"
		p.write(append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...))
		if b := p.frame(); len(b) != 0 {
			t.Errorf("answered %q", b)
		}
		ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
	})
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

// A peer that claims much and sends little costs little.
func TestFrameGrowsWithWhatArrives(t *testing.T) {
	r := frameReader{src: bytes.NewReader(make([]byte, 100_000)), arriving: func() {}}
	if _, err := r.body(maxFrame); err == nil {
		t.Fatal("a cut frame was read")
	}
	body := make([]byte, 300_000)
	for i := range body {
		body[i] = byte(i)
	}
	r = frameReader{src: bytes.NewReader(body), arriving: func() {}}
	got, err := r.body(len(body))
	if err != nil || !bytes.Equal(got, body) || cap(got) > len(body) {
		t.Errorf("read %d bytes in %d, error %v", len(got), cap(got), err)
	}
	r = frameReader{src: bytes.NewReader(nil), arriving: func() {}}
	if _, err := r.body(maxFrame); err == nil || cap(r.buf) > firstChunk {
		t.Errorf("error %v; %d bytes kept for a claim", err, cap(r.buf))
	}
}

// Arrays of the smallest elements are refused before they are decoded.
// TestLowDisk: producers are told to try again, and why.
func TestLowDisk(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	for _, c := range []struct {
		err  *kernel.Error
		want int16
	}{
		{kernel.Errorf(kernel.CodeLimit, "", "", "the disk is low"), kerr.KafkaStorageError.Code},
		{kernel.Errorf(kernel.CodeUnavailable, "", "", "no leader"), kerr.NotLeaderForPartition.Code},
	} {
		n.refuse = c.err
		r := p.produce("t", makeBatch("x"))
		if r.ErrorCode != c.want || r.ErrorMessage == nil || *r.ErrorMessage != c.err.Error() || r.BaseOffset != -1 {
			t.Errorf("%v: answered %+v", c.err, r)
		}
	}
	n.refuse = nil
	if r := p.produce("t", makeBatch("x")); r.ErrorCode != 0 || r.BaseOffset != 0 {
		t.Errorf("afterwards: %+v", r)
	}
}

// TestDecodedSizes: what large requests may take is counted before they are decoded.
func TestDecodedSizes(t *testing.T) {
	for _, c := range []struct {
		key  int16
		size int
		want int64
	}{
		{3, cheapFrame, 0}, {3, cheapFrame + 1, 50 * (cheapFrame + 1)}, {19, maxPlainFrame, 50 << 20}, {keyJoinGroup, maxGroupFrame, decodedMemory}, {keyProduce, maxFrame, 0},
	} {
		if got := decodedSize(c.key, c.size); got != c.want || got > decodedMemory {
			t.Errorf("key %d, %d bytes: %d, want %d", c.key, c.size, got, c.want)
		}
	}
}

func TestProduceArraysAreBounded(t *testing.T) {
	for v := int16(3); v <= 13; v++ {
		good := produceRequest(v, "t", [16]byte{1}, -1, makeBatch("x"))
		if err := checkProduce(v, good.AppendTo(nil)); err != nil {
			t.Errorf("version %d: %v", v, err)
		}
	}
	many := kmsg.NewPtrProduceRequest()
	many.Version = 9
	many.Topics = make([]kmsg.ProduceRequestTopic, maxProduceParts+1)
	if err := checkProduce(9, many.AppendTo(nil)); err == nil {
		t.Error("too many topics were accepted")
	}
	many.Topics = many.Topics[:1]
	many.Topics[0].Partitions = make([]kmsg.ProduceRequestTopicPartition, maxProduceParts)
	if err := checkProduce(9, many.AppendTo(nil)); err == nil {
		t.Error("too many partitions were accepted")
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 1, 'x', 0})
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0})
	for key, a := range apis {
		for _, v := range []int16{a.min, a.max} {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)[4:])
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, rest, err := parseHeader(frame)
		if err != nil {
			return
		}
		a, ok := apis[h.key]
		if !ok || h.version < a.min || h.version > a.max {
			return
		}
		req := kmsg.RequestForKey(h.key)
		req.SetVersion(h.version)
		if req.IsFlexible() {
			if rest, err = skipTags(rest); err != nil {
				return
			}
		}
		if h.key == keyProduce && checkProduce(h.version, rest) != nil {
			if req.ReadFrom(rest) == nil {
				t.Fatalf("%x decodes and was refused", rest)
			}
			return
		}
		_ = req.ReadFrom(rest)
	})
}
