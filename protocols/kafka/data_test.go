package kafka

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/storage/record"
)

// reseal makes a changed batch's checksum right again.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// bomb is a small batch whose gzip content is larger than any may be.
func bomb(t *testing.T) []byte {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 70 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	b := append(makeBatch("x")[:record.HeaderSize], packed.Bytes()...)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[22] |= byte(record.Gzip)
	return reseal(b)
}

// Row 39 of the fault list: what is wrong with a batch, and what it is told.
func TestProduceRefusals(t *testing.T) {
	addr, _ := start(t, newFake(), func(c *Config) { c.MaxBatchBytes = 1 << 20 })
	p := dial(t, addr)
	p.createTopic("t", 1)
	change := func(fn func(b []byte)) []byte {
		b := makeBatch("one", "two")
		fn(b)
		return reseal(b)
	}
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	bomb := bomb(t)
	broken := makeBatch("one")
	broken[len(broken)-1] ^= 1
	for _, c := range []struct {
		name  string
		topic string
		acks  int16
		batch []byte
		want  *kerr.Error
	}{
		{"good", "t", -1, makeBatch("x"), nil},
		{"acks 1", "t", 1, makeBatch("x"), nil},
		{"acks 2", "t", 2, makeBatch("x"), kerr.InvalidRequiredAcks},
		{"no topic", "missing", -1, makeBatch("x"), kerr.UnknownTopicOrPartition},
		{"crc", "t", -1, broken, kerr.CorruptMessage},
		{"cut", "t", -1, makeBatch("one")[:50], kerr.CorruptMessage},
		{"empty", "t", -1, nil, kerr.CorruptMessage},
		{"magic 1", "t", -1, change(func(b []byte) { b[16] = 1 }), kerr.UnsupportedForMessageFormat},
		{"count", "t", -1, change(func(b []byte) { b[60] = 5 }), kerr.InvalidRecord},
		{"control bit", "t", -1, change(func(b []byte) { b[22] |= 32 }), kerr.InvalidRecord},
		{"codec 7", "t", -1, change(func(b []byte) { b[22] |= 7 }), kerr.InvalidRecord},
		{"gzip that is none", "t", -1, change(func(b []byte) { b[22] |= 1 }), kerr.InvalidRecord},
		{"transactional", "t", -1, change(func(b []byte) { b[22] |= 16; b[50] = 1; clear(b[43:57]) }), kerr.InvalidTxnState},
		{"two batches", "t", -1, append(makeBatch("a"), makeBatch("b")...), kerr.InvalidRecord},
		{"bomb", "t", -1, bomb, kerr.MessageTooLarge},
		{"too large", "t", -1, makeBatch(string(noise)), kerr.MessageTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := ask[*kmsg.ProduceResponse](p, produceRequest(9, c.topic, [16]byte{}, c.acks, c.batch))
			got := resp.Topics[0].Partitions[0]
			if err := kerr.ErrorForCode(got.ErrorCode); err == nil && c.want != nil || err != nil && err != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
			if c.want != nil && got.BaseOffset != -1 {
				t.Errorf("offset %d", got.BaseOffset)
			}
		})
	}
}

func TestProduceEveryVersion(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	id := p.createTopic("t", 1)
	for v := int16(3); v <= 13; v++ {
		resp := ask[*kmsg.ProduceResponse](p, produceRequest(v, "t", id, -1, makeBatch("a", "b")))
		got := resp.Topics[0].Partitions[0]
		if got.ErrorCode != 0 || got.BaseOffset != int64(v-3)*2 {
			t.Errorf("version %d: error %d, offset %d", v, got.ErrorCode, got.BaseOffset)
		}
	}
	resp := ask[*kmsg.ProduceResponse](p, produceRequest(13, "", [16]byte{1}, -1, makeBatch("a")))
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != kerr.UnknownTopicID.Code {
		t.Errorf("unknown topic id: error %d", code)
	}
}

func TestAcksZero(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	p.send(produceRequest(9, "t", [16]byte{}, 0, makeBatch("a"))) // no answer to this one
	if got := p.produce("t", makeBatch("b")); got.BaseOffset != 1 {
		t.Errorf("offset %d, want 1: the unanswered one is before it", got.BaseOffset)
	}
	p.send(produceRequest(9, "missing", [16]byte{}, 0, makeBatch("a")))
	p.wantClosed()
}

func TestFetchEveryVersion(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	id := p.createTopic("t", 1)
	want := append(makeBatch("a", "b"), makeBatch("c")...)
	p.produce("t", makeBatch("a", "b"))
	p.produce("t", makeBatch("c"))
	record.Stamp(want[len(makeBatch("a", "b")):], 2, 0)
	for v := int16(4); v <= 18; v++ {
		for _, offset := range []int64{0, 1} { // the batch that contains it comes whole
			resp := ask[*kmsg.FetchResponse](p, fetchRequest(v, "t", id, offset, time.Second))
			got := resp.Topics[0].Partitions[0]
			if got.ErrorCode != 0 || got.HighWatermark != 3 || got.LastStableOffset != 3 || resp.SessionID != 0 {
				t.Fatalf("version %d: %+v", v, got)
			}
			if !bytes.Equal(got.RecordBatches, want) {
				t.Fatalf("version %d, offset %d: %d bytes, want %d", v, offset, len(got.RecordBatches), len(want))
			}
		}
	}
	if n.counters.Out.Load() != 15*2*3 {
		t.Errorf("%d records counted", n.counters.Out.Load())
	}
}

func TestFetchErrors(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	id := p.createTopic("t", 1)
	code := func(req *kmsg.FetchRequest) int16 {
		return ask[*kmsg.FetchResponse](p, req).Topics[0].Partitions[0].ErrorCode
	}
	for name, c := range map[string]struct {
		req  *kmsg.FetchRequest
		want *kerr.Error
	}{
		"beyond the end": {fetchRequest(11, "t", id, 7, time.Minute), kerr.OffsetOutOfRange},
		"negative":       {fetchRequest(11, "t", id, -1, time.Minute), kerr.OffsetOutOfRange},
		"no topic":       {fetchRequest(11, "missing", id, 0, time.Minute), kerr.UnknownTopicOrPartition},
		"bad name":       {fetchRequest(11, "bad name", id, 0, time.Minute), kerr.UnknownTopicOrPartition},
		"no topic id":    {fetchRequest(13, "", [16]byte{7}, 0, time.Minute), kerr.UnknownTopicID},
	} {
		if got := code(c.req); got != c.want.Code {
			t.Errorf("%s: error %d, want %d", name, got, c.want.Code)
		}
	}
	epoch := fetchRequest(11, "t", id, 0, time.Minute)
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = 9
	if got := code(epoch); got != kerr.UnknownLeaderEpoch.Code {
		t.Errorf("epoch 9: error %d", got)
	}
}

func TestFetchLongPoll(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	reader, writer := dial(t, addr), dial(t, addr)
	id := reader.createTopic("t", 1)

	began := time.Now()
	empty := ask[*kmsg.FetchResponse](reader, fetchRequest(12, "t", id, 0, 50*time.Millisecond))
	if got := empty.Topics[0].Partitions[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 || time.Since(began) < 50*time.Millisecond {
		t.Errorf("after %v: %+v", time.Since(began), got)
	}

	correlation := reader.send(fetchRequest(12, "t", id, 0, time.Minute))
	writer.produce("t", makeBatch("a"))
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	reader.receive(correlation, resp)
	if got := resp.Topics[0].Partitions[0]; !bytes.Equal(got.RecordBatches, makeBatch("a")) {
		t.Errorf("woken with %d bytes", len(got.RecordBatches))
	}

	// min_bytes gathers: nothing goes out before there is enough.
	size := len(makeBatch("a"))
	more := fetchRequest(12, "t", id, 0, time.Minute)
	more.MinBytes = int32(3 * size)
	correlation = reader.send(more)
	writer.produce("t", makeBatch("b"))
	writer.produce("t", makeBatch("c"))
	reader.receive(correlation, resp)
	if got := resp.Topics[0].Partitions[0]; len(got.RecordBatches) < 3*size || got.HighWatermark != 3 {
		t.Errorf("%d bytes, high watermark %d", len(got.RecordBatches), got.HighWatermark)
	}
}

// TestFetchBehindLostRecords: a fetch at lost records that nothing follows waits like
// one at the end, without asking again and again, and gets what comes next.
func TestFetchBehindLostRecords(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	reader, writer := dial(t, addr), dial(t, addr)
	id := reader.createTopic("t", 1)
	writer.produce("t", makeBatch("a", "b"))
	log := n.logs[id][0]
	log.mu.Lock()
	log.lost = 2
	log.mu.Unlock()
	empty := ask[*kmsg.FetchResponse](reader, fetchRequest(12, "t", id, 0, 50*time.Millisecond))
	if got := empty.Topics[0].Partitions[0]; got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != 2 {
		t.Errorf("%+v", got)
	}
	correlation := reader.send(fetchRequest(12, "t", id, 0, time.Minute))
	writer.produce("t", makeBatch("c"))
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	reader.receive(correlation, resp)
	want := makeBatch("c")
	record.Stamp(want, 2, 0)
	if got := resp.Topics[0].Partitions[0]; !bytes.Equal(got.RecordBatches, want) {
		t.Errorf("%d bytes, error %d", len(got.RecordBatches), got.ErrorCode)
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	if log.met != 2 {
		t.Errorf("%d reads of what is lost, want one for each fetch", log.met)
	}
}

func TestFetchLimits(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	p := dial(t, addr)
	id := p.createTopic("t", 1)
	for i := range 10 {
		p.produce("t", makeBatch(fmt.Sprint(i)))
	}
	size := len(makeBatch("0"))
	for name, change := range map[string]func(*kmsg.FetchRequest){
		"max_bytes":           func(r *kmsg.FetchRequest) { r.MaxBytes = int32(3 * size) },
		"partition_max_bytes": func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].PartitionMaxBytes = int32(3 * size) },
	} {
		req := fetchRequest(12, "t", id, 0, time.Minute)
		change(req)
		req.MinBytes = int32(5 * size) // cannot be reached: answered all the same
		if got := len(ask[*kmsg.FetchResponse](p, req).Topics[0].Partitions[0].RecordBatches); got != 3*size {
			t.Errorf("%s: %d bytes, want %d", name, got, 3*size)
		}
	}
	one := fetchRequest(12, "t", id, 0, time.Minute)
	one.MaxBytes = 1
	if got := len(ask[*kmsg.FetchResponse](p, one).Topics[0].Partitions[0].RecordBatches); got != size {
		t.Errorf("a batch above max_bytes: %d bytes, want %d", got, size)
	}
}

// Everything under way is answered or cut short when the server stops.
func TestShutdownEndsLongPolls(t *testing.T) {
	n := newFake()
	addr, s := start(t, n, nil)
	p := dial(t, addr)
	id := p.createTopic("t", 1)
	correlation := p.send(fetchRequest(12, "t", id, 0, time.Minute))
	meta := kmsg.NewPtrMetadataRequest()
	other := dial(t, addr)
	ask[*kmsg.MetadataResponse](other, meta)
	<-n.watching
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	p.receive(correlation, resp)
	p.wantClosed()
	other.wantClosed()
}

// TestProduceWaitsForAHost: while nobody serves a producer is held up, and what it has sent
// is stored in the order in which it has.
func TestProduceWaitsForAHost(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	n.mu.Lock()
	n.refuse, n.serves = edge.ErrUnlinked, make(chan struct{})
	n.mu.Unlock()
	var sent []int32
	for _, v := range []string{"a", "b", "c"} {
		sent = append(sent, p.send(produceRequest(9, "t", [16]byte{}, -1, makeBatch(v))))
	}
	close(n.serves)
	for i, correlation := range sent {
		resp := kmsg.NewPtrProduceResponse()
		resp.Version = 9
		p.receive(correlation, resp)
		if got := resp.Topics[0].Partitions[0]; got.ErrorCode != 0 || got.BaseOffset != int64(i) {
			t.Errorf("%d: %+v", i, got)
		}
	}
	n.nobody.Store(true)
	n.mu.Lock()
	n.refuse, n.serves = edge.ErrUnlinked, make(chan struct{})
	n.mu.Unlock()
	for range 2 {
		if got := p.produce("t", makeBatch("d")); got.ErrorCode != kerr.KafkaStorageError.Code {
			t.Errorf("nobody comes: %+v", got)
		}
	}
}

// TestNothingBehindAnUnknownOutcome: when it is not known what has become of a batch, none
// that the connection has sent after it is stored, and the connection ends.
func TestNothingBehindAnUnknownOutcome(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	id := p.createTopic("t", 2)
	n.unknown = true
	req := produceRequest(9, "t", id, -1, makeBatch("a"))
	next := kmsg.NewProduceRequestTopicPartition()
	next.Partition, next.Records = 1, makeBatch("b")
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, next)
	got := ask[*kmsg.ProduceResponse](p, req).Topics[0].Partitions
	if got[0].ErrorCode != kerr.NotEnoughReplicasAfterAppend.Code || got[1].ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("%+v", got)
	}
	p.wantClosed()
	for i, log := range n.logs[id] {
		if _, end := log.Bounds(); end != 0 {
			t.Errorf("partition %d has %d records", i, end)
		}
	}
}
