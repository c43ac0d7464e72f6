package damage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/trivium-mq/trivium/integration/harness"
)

// The records that are damaged: neighbours, and one for itself.
var lost = []int{10, 11, 12, 40}

// damagedLog is a node with a topic "log" of so many records, of which some are
// damaged in the segment.
func damagedLog(t *testing.T) (b *harness.Broker, count int) {
	b = harness.Start(t)
	count = sealed(t, b, "log")
	if code := b.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	segment := files(t, b, "placement-1/segments/*.seg")[0]
	for _, i := range lost {
		flipAt(t, segment, string(numbered(i, false)))
	}
	b.Run()
	return b, count
}

// fetch asks for the topic once, as a client does that does nothing by itself.
func fetch(t *testing.T, c *kgo.Client, offset int64) (code int16, first int64) {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 11, 100, 1, 1<<20, -1
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = offset, 1<<20
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.Partitions = "log", []kmsg.FetchRequestTopicPartition{part}
	req.Topics = []kmsg.FetchRequestTopic{topic}
	resp, err := req.RequestWith(context.Background(), c)
	must(t, err)
	got := resp.Topics[0].Partitions[0]
	if got.ErrorCode != 0 {
		return got.ErrorCode, -1
	}
	var batch kmsg.RecordBatch
	must(t, batch.ReadFrom(got.RecordBatches))
	return 0, batch.FirstOffset
}

// TestFetchAroundDamage: records that are damaged in a segment are an error for the
// first fetch; the next one, and consumers, get what is behind them. Log and metrics
// name what is lost.
func TestFetchAroundDamage(t *testing.T) {
	b, count := damagedLog(t)
	c := b.DialKafka(t, kgo.MaxVersions(kversion.V2_8_0())) // topics by name
	for i, want := range []struct {
		offset int64
		code   int16
		first  int64
	}{{9, 0, 9}, {10, kerr.CorruptMessage.Code, -1}, {10, 0, 13}, {11, 0, 13}, {40, kerr.CorruptMessage.Code, -1}, {40, 0, 41}} {
		if code, first := fetch(t, c, want.offset); code != want.code || first != want.first {
			t.Errorf("fetch %d at %d: code %d, from %d", i, want.offset, code, first)
		}
	}
	reader := b.DialKafka(t, kgo.ConsumeTopics("log"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	rest(t, count, offsets(t, reader, count-len(lost)))
	shows(t, b, `trivium_log_damaged_records{first="10",last="12",partition="0",topic="log"} 3`,
		`trivium_log_damaged_records{first="40",last="40",partition="0",topic="log"} 1`, "trivium_log_reads_around_damage_total")
	if out := b.Output(); !strings.Contains(out, "records are lost to damage on disk") {
		t.Errorf("the log says nothing:\n%s", out)
	}
}

// TestConsumersPassDamage: real clients that meet damage for the first time go on
// behind it.
func TestConsumersPassDamage(t *testing.T) {
	b, count := damagedLog(t)
	t.Run("franz-go", func(t *testing.T) {
		reader := b.DialKafka(t, kgo.ConsumeTopics("log"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		rest(t, count, offsets(t, reader, count-len(lost)))
	})
	if code := b.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	b.Run() // which knows nothing of the damage
	t.Run("confluent", func(t *testing.T) {
		harness.NeedPython(t, "confluent_kafka")
		out := harness.Client(t, 3*harness.Patience, harness.Python, "confluent_damage.py", b.Kafka, fmt.Sprint(count-1))
		var got []int64
		for _, f := range strings.Fields(out) {
			var n int64
			if _, err := fmt.Sscan(f, &n); err != nil {
				t.Fatal(err)
			}
			got = append(got, n)
		}
		rest(t, count, got)
	})
}

// offsets consumes so many records. An error of damage is one that a consumer is told
// of, and may go on after.
func offsets(t *testing.T, c *kgo.Client, want int) (got []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*harness.Patience)
	defer cancel()
	for len(got) < want {
		records, err := harness.Records(ctx, c, want-len(got))
		if err != nil && !errors.Is(err, kerr.CorruptMessage) {
			t.Fatalf("after %v: %v", got, err)
		}
		for _, r := range records {
			got = append(got, r.Offset)
			if !strings.HasPrefix(string(r.Value), string(numbered(int(r.Offset), false))) {
				t.Errorf("offset %d is %.20q", r.Offset, r.Value)
			}
		}
	}
	return got
}

// rest checks that all offsets but the lost ones have come, in order.
func rest(t *testing.T, count int, got []int64) {
	t.Helper()
	var want []int64
	for i := range count {
		if !slices.Contains(lost, i) {
			want = append(want, int64(i))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("offsets %v of %d", got, count)
	}
}
