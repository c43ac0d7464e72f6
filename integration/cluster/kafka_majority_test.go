package cluster

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/storage/record"
)

// produceOne writes a record to partition 0, and returns the code and how long that took.
func (w *wire) produceOne(topic string, id [16]byte) (code int16, took time.Duration) {
	w.t.Helper()
	var b record.Builder
	b.Reset()
	b.Append(&record.Record{Value: []byte("x")})
	q := kmsg.NewPtrProduceRequest()
	q.Acks, q.TimeoutMillis = -1, 10000
	qt, qp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	qt.Topic, qt.TopicID, qp.Records = topic, id, b.Finish(nil)
	qt.Partitions = append(qt.Partitions, qp)
	q.Topics = append(q.Topics, qt)
	begin := time.Now()
	code = exchange[*kmsg.ProduceResponse](w, q, 13).Topics[0].Partitions[0].ErrorCode
	return code, time.Since(begin)
}

// TestNoMajorityHoldsKafka: when two of three nodes are gone Kafka clients of the third keep
// their connections, unless nobody knows what has become of a batch; all that they ask for is
// refused, soon and so that they ask again, and goes on when one is back. Who connects
// meanwhile is not told that he may not.
func TestNoMajorityHoldsKafka(t *testing.T) {
	full(t)
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	last := k.c.Nodes[0]
	id := k.topic(last, "t", 1)
	w := dialWire(t, last)
	parked := dialWire(t, last)
	parked.produceOne("t", id) // it has logged in
	if code, _ := w.produceOne("t", id); code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	for _, n := range k.c.Nodes[1:] {
		n.Kill()
	}
	for range 2 {
		code, took := w.produceOne("t", id)
		switch {
		case code == 0 || !kerr.IsRetriable(kerr.ErrorForCode(code)):
			t.Errorf("produced: %v", kerr.ErrorForCode(code))
		case took > 2*answerTime: // what was under way has an outcome that nobody knows for ten seconds
			t.Errorf("%v after %v", kerr.ErrorForCode(code), took)
		default:
			t.Logf("produced: %v after %v", kerr.ErrorForCode(code), took.Round(time.Millisecond))
		}
		if code == kerr.NotEnoughReplicasAfterAppend.Code {
			begin := time.Now()
			_ = w.conn.SetReadDeadline(begin.Add(answerTime))
			if _, err := w.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("behind a batch of unknown outcome: %v after %v", err, time.Since(begin))
			}
			w = parked
		}
	}
	begin := time.Now()
	fresh := kmsg.NewPtrInitProducerIDRequest()
	code := exchange[*kmsg.InitProducerIDResponse](w, fresh, 4).ErrorCode
	t.Logf("producer id: %v after %v", kerr.ErrorForCode(code), time.Since(begin).Round(time.Millisecond))
	if code == 0 || !kerr.IsRetriable(kerr.ErrorForCode(code)) {
		t.Error("that is final")
	}
	began := make(chan error, 1)
	c := k.client(k.c.Nodes[:1], kgo.RequestTimeoutOverhead(answerTime), kgo.RetryTimeout(0))
	go func() { began <- c.ProduceSync(k.ctx, &kgo.Record{Topic: "t", Value: []byte("y")}).FirstErr() }()
	metadata, topic := kmsg.NewPtrMetadataRequest(), "t"
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	if answer := exchange[*kmsg.MetadataResponse](w, metadata, 12).Topics[0].ErrorCode; answer == 0 || !kerr.IsRetriable(kerr.ErrorForCode(answer)) {
		t.Errorf("metadata: %v", kerr.ErrorForCode(answer))
	}
	harness.Must(t, k.c.Nodes[1].Run())
	harness.Wait(t, healed, "it goes on", func() bool {
		code, _ := w.produceOne("t", id)
		return code == 0
	})
	if err := harness.Receive(t, began); err != nil {
		t.Errorf("who connected meanwhile: %v", err)
	}
}
