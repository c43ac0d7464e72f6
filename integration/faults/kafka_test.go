package faults

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/storage/record"
)

// producer is a Kafka client that can send anything.
type producer struct {
	t  testing.TB
	nc net.Conn
}

func (s *stand) producer() *producer {
	s.t.Helper()
	nc, err := net.DialTimeout("tcp", s.Kafka, harness.Patience)
	must(s.t, err)
	s.t.Cleanup(func() { _ = nc.Close() })
	must(s.t, nc.SetDeadline(time.Now().Add(6*harness.Patience)))
	return &producer{t: s.t, nc: nc}
}

func (p *producer) send(b []byte) {
	p.t.Helper()
	if _, err := p.nc.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// answer reads one answer's body, without its correlation id.
func (p *producer) answer() []byte {
	p.t.Helper()
	var size [4]byte
	_, err := io.ReadFull(p.nc, size[:])
	must(p.t, err)
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(p.nc, b)
	must(p.t, err)
	return b[4:]
}

// closed wants the end of the connection, and not a byte before it.
func (p *producer) closed() {
	p.t.Helper()
	b, err := io.ReadAll(p.nc)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		p.t.Error("the connection was not closed")
	}
	if len(b) > 0 {
		p.t.Errorf("answered % x", b)
	}
}

// request makes a request of anything: header version 1 and a body.
func request(key, version int16, body ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+10))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 1, 0xff, 0xff) // correlation, null client id
	return append(b, body...)
}

// log makes a topic and tells how many records are in it at the end of the test.
func (s *stand) log(name string) func() int64 {
	s.t.Helper()
	admin := kadm.NewClient(s.DialKafka(s.t))
	_, err := admin.CreateTopic(s.t.Context(), 1, 1, nil, name)
	must(s.t, err)
	return func() int64 {
		s.t.Helper()
		ends, err := admin.ListEndOffsets(s.t.Context(), name)
		must(s.t, err)
		end, _ := ends.Lookup(name, 0)
		must(s.t, end.Err)
		return end.Offset
	}
}

func batch(values ...string) []byte {
	var b record.Builder
	b.Reset()
	for i, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: int64(1000 + i)})
	}
	return b.Finish(nil)
}

// reseal makes a changed batch's length and checksum right again.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// produce sends one batch and returns the answer about it.
func (p *producer) produce(topic string, acks int16, batch []byte) kmsg.ProduceResponseTopicPartition {
	p.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, acks, 10_000
	qt := kmsg.NewProduceRequestTopic()
	qt.Topic = topic
	qp := kmsg.NewProduceRequestTopicPartition()
	qp.Records = batch
	qt.Partitions = append(qt.Partitions, qp)
	req.Topics = append(req.Topics, qt)
	p.send(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1))
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 9
	must(p.t, resp.ReadFrom(p.answer()[1:])) // no tags in the header
	return resp.Topics[0].Partitions[0]
}

// TestRow36FrameLengths: lengths that cannot be end the connection without an
// answer; what is announced and does not come costs nothing.
func TestRow36FrameLengths(t *testing.T) {
	s := newStand(t, 64<<20)
	for _, size := range []uint32{0, 1<<32 - 1, 1 << 31, 100<<20 + 1, 1<<31 - 1, 3} {
		p := s.producer()
		p.send(append(binary.BigEndian.AppendUint32(nil, size), 0, 0, 0))
		p.closed()
	}
	for range 100 {
		p := s.producer()
		p.send(request(18, 0))
		p.answer()
		p.send(binary.BigEndian.AppendUint32(nil, 100<<20))
		s.producer().send(binary.BigEndian.AppendUint32(nil, 500<<10))
	}
}

// TestRow37Counts: counts and lengths that the bytes that follow cannot hold end
// the connection, and cost nothing; a large request that is in order costs a bounded
// amount; tags from the future are skipped.
func TestRow37Counts(t *testing.T) {
	s := newStand(t, 256<<20)
	large := func(key, version int16, head []byte, count, size int) []byte { // a count and a body of zeros
		return request(key, version, append(binary.BigEndian.AppendUint32(head, uint32(count)), make([]byte, size)...)...)
	}
	for name, b := range map[string][]byte{
		"array of 2^31-1":             request(3, 0, 0x7f, 0xff, 0xff, 0xff),
		"array of 2^28 in 40 bytes":   large(3, 0, nil, 1<<28, 40),
		"string of -5":                request(3, 0, 0, 0, 0, 1, 0xff, 0xfb),
		"string past the end":         request(3, 0, 0, 0, 0, 1, 0x7f, 0xff, 'a'),
		"varint cut":                  request(3, 9, 0, 0xff, 0xff),
		"varint of eleven bytes":      request(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1),
		"compact array of 2^32-2":     request(3, 9, 0, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"tags without end":            request(3, 9, 0xff, 0xff, 0xff, 0xff, 0x0f),
		"tag past the end":            request(3, 9, 1, 77, 200, 1),
		"fetch of 2^31-1 topics":      large(1, 4, make([]byte, 17), 1<<31-1, 0),
		"produce of 2^31-1 topics":    large(0, 3, make([]byte, 8), 1<<31-1, 0),
		"join of 2^31-1 protocols":    large(11, 0, make([]byte, 10), 1<<31-1, 0),
		"metadata larger than 1 MiB":  large(3, 1, nil, 1<<20, 2<<20),
		"a million topics of nothing": large(19, 0, nil, 1<<20, 16<<20),
	} {
		t.Run(name, func(t *testing.T) {
			p := s.producer()
			p.t = t
			go func() { _, _ = p.nc.Write(b) }() // may be cut off half way
			p.closed()
		})
	}
	// The smallest elements in the largest request, from many at once.
	end := make(chan error)
	const clients = 16
	for range clients {
		p := s.producer()
		go func() {
			_, _ = p.nc.Write(large(19, 0, nil, 60_000, 1<<20-100)) // CreateTopics, all without a name
			_, err := io.CopyN(io.Discard, p.nc, 100)
			if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
				err = nil // answered or closed
			}
			end <- err
		}()
	}
	for range clients {
		must(t, <-end)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	req.UnknownTags.Set(77, []byte("from the future"))
	p := s.producer()
	p.send(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1))
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 12
	if err := resp.ReadFrom(p.answer()[1:]); err != nil || len(resp.Brokers) != 1 {
		t.Errorf("with tags from the future: %+v, %v", resp, err)
	}
}

// TestRow38UnknownRequests: only ApiVersions has an answer for versions that are
// not served, in version 0 (KIP-511).
func TestRow38UnknownRequests(t *testing.T) {
	s := newStand(t, 32<<20)
	for _, version := range []int16{5, 99, 32767} {
		p := s.producer()
		p.send(request(18, version, 0xff, 0xff, 0xff))
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(p.answer()); err != nil || resp.ErrorCode != 35 || len(resp.ApiKeys) == 0 {
			t.Errorf("version %d: %+v, %v", version, resp, err)
		}
		p.send(request(18, 0)) // and it goes on
		p.answer()
	}
	for _, b := range [][]byte{request(999, 0), request(-1, 0), request(24, 0), request(3, 99), request(0, 2), request(18, -1), request(76, 1), request(78, 1)} {
		p := s.producer()
		p.send(b)
		p.closed()
	}
}

// TestRow39Batches: what is wrong with a batch is told by its code, and nothing of
// it is stored.
func TestRow39Batches(t *testing.T) {
	s := newStand(t, 96<<20)
	end := s.log("batches")
	p := s.producer()
	change := func(fn func(b []byte)) []byte {
		b := batch("one", "two")
		fn(b)
		return reseal(b)
	}
	broken := batch("one")
	broken[len(broken)-1] ^= 1
	for name, c := range map[string]struct {
		acks  int16
		batch []byte
		want  int16
	}{
		"checksum":              {-1, broken, 2},
		"cut":                   {-1, batch("one")[:50], 2},
		"none":                  {-1, nil, 2},
		"magic 0":               {-1, change(func(b []byte) { b[16] = 0 }), 43},
		"magic 1":               {-1, change(func(b []byte) { b[16] = 1 }), 43},
		"magic 3":               {-1, change(func(b []byte) { b[16] = 3 }), 43},
		"more records than are": {-1, change(func(b []byte) { b[60] = 5 }), 87},
		"fewer records":         {-1, change(func(b []byte) { b[60], b[26] = 1, 0 }), 87},
		"two batches":           {-1, append(batch("a"), batch("b")...), 87},
		"control batch":         {-1, change(func(b []byte) { b[22] |= 32 }), 87},
		"codec 7":               {-1, change(func(b []byte) { b[22] |= 7 }), 87},
		"gzip that is none":     {-1, change(func(b []byte) { b[22] |= 1 }), 87},
		"zstd that is none":     {-1, change(func(b []byte) { b[22] |= 4 }), 87},
		"2^31-1 records":        {-1, change(func(b []byte) { b[57], b[58], b[59], b[60] = 0x7f, 0xff, 0xff, 0xff }), 87},
		"acks 2":                {2, batch("x"), 21},
		"acks -2":               {-2, batch("x"), 21},
		"larger than 1 MiB":     {-1, batch(string(make([]byte, 2<<20))), 10},
	} {
		if got := p.produce("batches", c.acks, c.batch); got.ErrorCode != c.want || got.BaseOffset != -1 {
			t.Errorf("%s: error %d, offset %d; want %d", name, got.ErrorCode, got.BaseOffset, c.want)
		}
	}
	if n := end(); n != 0 {
		t.Errorf("%d records were stored", n)
	}
	if got := p.produce("batches", -1, batch("good")); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("a good one afterwards: %+v", got)
	}
}

// pack compresses zeros into a record section, with records or without.
func pack(t *testing.T, codec record.Codec, content []byte, times int) []byte {
	t.Helper()
	var packed bytes.Buffer
	var w io.WriteCloser
	var err error
	switch codec {
	case record.Gzip:
		w, err = gzip.NewWriterLevel(&packed, gzip.BestCompression)
	case record.Zstd:
		w, err = zstd.NewWriter(&packed)
	case record.Lz4:
		w = lz4.NewWriter(&packed)
	}
	must(t, err)
	for range times {
		_, err := w.Write(content)
		must(t, err)
	}
	must(t, w.Close())
	b := append(batch("x")[:record.HeaderSize], packed.Bytes()...)
	b[22] = b[22]&^7 | byte(codec)
	return reseal(b)
}

// TestRow40Bombs: what grows without end when it is decompressed is stopped at the
// limit, from many clients at once; what holds more headers than anybody could read
// is refused. (A WebSocket has no compression here: TestFramesRefused and TestUpgrade
// in protocols/listener.)
func TestRow40Bombs(t *testing.T) {
	s := newStand(t, 768<<20) // two at a time are unpacked, whatever the number of clients
	end := s.log("bombs")
	zeros := make([]byte, 1<<20)
	many := binary.AppendVarint(nil, 60<<20+30) // one record, thirty million headers
	many = append(many, 0, 0, 0, 1, 1)
	many = append(binary.AppendVarint(many, 30<<20), make([]byte, 60<<20)...)
	bombs := map[string]struct {
		batch []byte
		codes []int16
	}{
		"gzip":    {pack(t, record.Gzip, zeros, 500), []int16{10}},
		"zstd":    {pack(t, record.Zstd, zeros, 2000), []int16{10}},
		"lz4":     {pack(t, record.Lz4, zeros, 100), []int16{10, 87}},
		"headers": {pack(t, record.Zstd, many, 1), []int16{10, 87}},
	}
	for name, bomb := range bombs {
		t.Logf("%s: %d bytes", name, len(bomb.batch))
		const clients = 12
		codes := make(chan int16, clients)
		for range clients {
			p := s.producer()
			go func() { codes <- p.produce("bombs", -1, bomb.batch).ErrorCode }()
		}
		for range clients {
			code := harness.Receive(t, codes)
			if !slices.Contains(bomb.codes, code) {
				t.Errorf("%s: error %d, want %v", name, code, bomb.codes)
			}
		}
	}
	if n := end(); n != 0 {
		t.Errorf("%d records were stored", n)
	}
}
