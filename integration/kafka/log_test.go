package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func TestEveryCodecComesBack(t *testing.T) {
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			ctx, topic := limited(t), "codec-"+name
			producer := shared.DialKafka(t, kgo.ProducerBatchCompression(codec))
			const count = 500
			var records []*kgo.Record
			for i := range count {
				records = append(records, &kgo.Record{
					Topic: topic, Key: []byte(fmt.Sprint("k", i)), Value: []byte(strings.Repeat(fmt.Sprint(i), 50)),
					Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "h", Value: nil}},
				})
			}
			produce(ctx, t, producer, records...)
			reader := shared.DialKafka(t, kgo.ConsumeTopics(topic))
			for i, r := range consume(ctx, t, reader, count) {
				if r.Offset != int64(i) || string(r.Value) != strings.Repeat(fmt.Sprint(i), 50) || len(r.Headers) != 2 {
					t.Fatalf("record %d: %+v", i, r)
				}
			}
		})
	}
}

// Full batches: requests near a megabyte, the first one of a connection among
// them, and fetches larger than one answer may be.
func TestFullBatches(t *testing.T) {
	ctx := limited(t)
	const count = 100_000
	producer := shared.DialKafka(t, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(count))
	value := make([]byte, 150)
	var records []*kgo.Record
	for range count {
		records = append(records, &kgo.Record{Topic: "full", Value: value})
	}
	produce(ctx, t, producer, records...)
	for i, r := range consume(ctx, t, shared.DialKafka(t, kgo.ConsumeTopics("full"), kgo.FetchMaxPartitionBytes(32<<20)), count) {
		if r.Offset != int64(i) || len(r.Value) != len(value) {
			t.Fatalf("record %d: offset %d, %d bytes", i, r.Offset, len(r.Value))
		}
	}
}

// Partitions, retention and ids survive a restart, as do records and offsets.
func TestRestart(t *testing.T) {
	b := harness.Start(t)
	ctx := limited(t)
	created, err := admin(t, b.Addresses).CreateTopic(ctx, 3, 1, nil, "kept")
	must(t, err)
	producer := b.DialKafka(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 90 {
		produce(ctx, t, producer, &kgo.Record{Topic: "kept", Partition: int32(i % 3), Value: []byte(fmt.Sprint(i))})
	}
	member := []kgo.Opt{kgo.ConsumerGroup("g"), kgo.ConsumeTopics("kept"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	first := b.DialKafka(t, member...)
	consume(ctx, t, first, 90)
	must(t, first.CommitUncommittedOffsets(ctx))
	first.Close()
	producer.Close()
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	b.Run()
	adm := admin(t, b.Addresses)
	topics, err := adm.ListTopics(ctx)
	if err != nil || len(topics["kept"].Partitions) != 3 || topics["kept"].ID != created.ID {
		t.Errorf("topics %+v, error %v", topics, err)
	}
	offsets, err := adm.FetchOffsets(ctx, "g")
	if err != nil || offsets.Offsets()["kept"][2].At != 30 {
		t.Errorf("offsets %+v, error %v", offsets, err)
	}
	more := b.DialKafka(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce(ctx, t, more, &kgo.Record{Topic: "kept", Partition: 1, Value: []byte("new")})
	second := b.DialKafka(t, member...)
	if got := consume(ctx, t, second, 1); len(got) != 1 || string(got[0].Value) != "new" || got[0].Offset != 30 {
		t.Errorf("after the restart the group goes on with %+v", got)
	}
	if got := consume(ctx, t, b.DialKafka(t, kgo.ConsumeTopics("kept")), 91); len(got) != 91 {
		t.Errorf("%d records from the beginning", len(got))
	}
}

// A fetch that waits is woken by the append, not by its timer.
func TestWakeUpLatency(t *testing.T) {
	ctx := limited(t)
	producer := shared.DialKafka(t, kgo.ProducerLinger(0))
	produce(ctx, t, producer, &kgo.Record{Topic: "wake", Value: []byte("first")})
	reader := shared.DialKafka(t, kgo.ConsumeTopics("wake"), kgo.FetchMaxWait(20*time.Second))
	consume(ctx, t, reader, 1)
	var took []time.Duration
	for range 20 {
		sent := time.Now()
		producer.Produce(ctx, &kgo.Record{Topic: "wake", Value: []byte("x")}, nil)
		consume(ctx, t, reader, 1)
		took = append(took, time.Since(sent))
	}
	slices.Sort(took)
	if t.Logf("produce to consume: median %v, slowest %v", took[10], took[19]); took[10] > time.Second {
		t.Error("fetches are not woken")
	}
}

// A batch that is sent again, as after a lost answer, is stored once and
// answered with its first offset.
func TestIdempotentProducer(t *testing.T) {
	ctx := limited(t)
	cl := shared.DialKafka(t)
	created, err := admin(t, shared).CreateTopic(ctx, 1, 1, nil, "idempotent")
	must(t, err)
	initReq := kmsg.NewPtrInitProducerIDRequest()
	given, err := initReq.RequestWith(ctx, cl)
	if err != nil || given.ErrorCode != 0 {
		t.Fatalf("init: %+v, %v", given, err)
	}
	for _, c := range []struct {
		name   string
		epoch  int16
		seq    int32
		code   int16
		offset int64
	}{
		{"first", 0, 0, 0, 0}, {"second", 0, 2, 0, 2}, {"first again", 0, 0, 0, 0}, {"second again", 0, 2, 0, 2}, {"gap", 0, 9, 45, -1},
		{"next epoch", 1, 0, 0, 4}, {"old epoch", 0, 4, 47, -1},
	} {
		req := kmsg.NewPtrProduceRequest()
		req.Acks = -1
		qt := kmsg.NewProduceRequestTopic()
		qt.Topic, qt.TopicID = "idempotent", created.ID
		qp := kmsg.NewProduceRequestTopicPartition()
		qp.Records = producerBatch(given.ProducerID, c.epoch, c.seq, "a", "b")
		qt.Partitions = append(qt.Partitions, qp)
		req.Topics = append(req.Topics, qt)
		resp, err := req.RequestWith(ctx, cl.Broker(1))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode != c.code || got.BaseOffset != c.offset {
			t.Errorf("%s: error %d, offset %d; want %d, %d", c.name, got.ErrorCode, got.BaseOffset, c.code, c.offset)
		}
	}
}

// Many producers and pipelined requests: every record once, in order for each.
func TestManyProducers(t *testing.T) {
	ctx := limited(t)
	const producers, each = 4, 2000
	_, err := admin(t, shared).CreateTopic(ctx, 4, 1, nil, "many")
	must(t, err)
	done := make(chan error, producers)
	for p := range producers {
		cl := shared.DialKafka(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4096))
		go func() { done <- publishMany(ctx, cl, p, each) }()
	}
	for range producers {
		must(t, <-done)
	}
	next := map[int]int{}
	for _, r := range consume(ctx, t, shared.DialKafka(t, kgo.ConsumeTopics("many")), producers*each) {
		var p, i int
		_, err := fmt.Sscanf(string(r.Value), "%d %d", &p, &i)
		must(t, err)
		if i != next[p] {
			t.Fatalf("producer %d: %d comes after %d", p, i, next[p]-1)
		}
		next[p]++
	}
}

func publishMany(ctx context.Context, cl *kgo.Client, p, count int) error {
	var records []*kgo.Record
	for i := range count {
		records = append(records, &kgo.Record{Topic: "many", Partition: int32(p), Value: fmt.Appendf(nil, "%d %d", p, i)})
	}
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// A topic made again under its name is another topic.
func TestDeleteAndRecreate(t *testing.T) {
	ctx, adm := limited(t), admin(t, shared)
	producer := shared.DialKafka(t)
	for i := range 2 {
		if i > 0 {
			_, err := adm.DeleteTopic(ctx, "phoenix")
			must(t, err)
			producer = shared.DialKafka(t) // knows nothing of the old one
		}
		r := &kgo.Record{Topic: "phoenix", Value: []byte("x")}
		produce(ctx, t, producer, r)
		if r.Offset != 0 {
			t.Errorf("life %d begins at offset %d", i, r.Offset)
		}
	}
}
