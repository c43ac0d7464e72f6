package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func build(t testing.TB, recs ...Record) []byte {
	t.Helper()
	var b Builder
	for i := range recs {
		if got := b.Append(&recs[i]); int(got) != i {
			t.Fatalf("delta %d for record %d", got, i)
		}
	}
	return b.Finish(nil)
}

// seal repairs length and CRC after a test changed a batch.
func seal(batch []byte) []byte {
	binary.BigEndian.PutUint32(batch[posLength:], uint32(len(batch)-lengthOverhead))
	binary.BigEndian.PutUint32(batch[posCRC:], crc32.Checksum(batch[posAttributes:], castagnoli))
	return batch
}

func sample() []Record {
	return []Record{
		{Key: []byte("k"), Value: []byte("v"), Timestamp: 1_700_000_000_000, Headers: []Header{{"a", []byte("1")}, {"b", nil}, {"", []byte{}}}},
		{Timestamp: 1_700_000_000_500},
		{Key: []byte{}, Value: bytes.Repeat([]byte("x"), 300), Timestamp: 1_699_999_999_999},
	}
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameRecord(t rapid.TB, got, want Record) {
	t.Helper()
	if !sameBytes(got.Key, want.Key) || !sameBytes(got.Value, want.Value) || got.Timestamp != want.Timestamp || len(got.Headers) != len(want.Headers) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i, h := range want.Headers {
		if got.Headers[i].Key != h.Key || !sameBytes(got.Headers[i].Value, h.Value) {
			t.Fatalf("header %d: got %+v, want %+v", i, got.Headers[i], h)
		}
	}
}

func walkAll(t rapid.TB, batch []byte) []Record {
	t.Helper()
	var it Iter
	if err := it.Reset(batch, nil); err != nil {
		t.Fatal(err)
	}
	var out []Record
	for it.Next() {
		out = append(out, it.View().Clone().Record())
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return out
}

// The bytes of one record, worked out by hand from the protocol guide.
func TestKnownBytes(t *testing.T) {
	batch := build(t, Record{Key: []byte("k"), Value: nil, Timestamp: 0x0102, Headers: []Header{{"h", []byte("v")}}})
	want := []byte{
		0, 0, 0, 0, 0, 0, 0, 0, // base offset
		0, 0, 0, 0x3d, // length: 49 after it, 12 of record
		0, 0, 0, 0, // leader epoch
		2,          // magic
		0, 0, 0, 0, // CRC, below
		0, 0, // attributes
		0, 0, 0, 0, // last offset delta
		0, 0, 0, 0, 0, 0, 1, 2, // first timestamp
		0, 0, 0, 0, 0, 0, 1, 2, // max timestamp
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // producer id
		0xff, 0xff, // producer epoch
		0xff, 0xff, 0xff, 0xff, // base sequence
		0, 0, 0, 1, // count
		22, 0, 0, 0, // length 11, attributes, time delta, offset delta
		2, 'k', 1, // key, null value
		2, 2, 'h', 2, 'v', // one header
	}
	binary.BigEndian.PutUint32(want[posLength:], uint32(len(want)-12))
	binary.BigEndian.PutUint32(want[posCRC:], crc32.Checksum(want[21:], crc32.MakeTable(crc32.Castagnoli)))
	if !bytes.Equal(batch, want) {
		t.Fatalf("got  %x\nwant %x", batch, want)
	}
}

func TestRoundTrip(t *testing.T) {
	recs := sample()
	batch := build(t, recs...)
	if err := Validate(batch); err != nil {
		t.Fatal(err)
	}
	if Count(batch) != 3 || LastOffsetDelta(batch) != 2 || FirstTimestamp(batch) != recs[0].Timestamp ||
		MaxTimestamp(batch) != recs[1].Timestamp || ProducerID(batch) != -1 || BaseSequence(batch) != -1 || ProducerEpoch(batch) != -1 {
		t.Fatalf("header: %x", batch[:HeaderSize])
	}
	for i, got := range walkAll(t, batch) {
		sameRecord(t, got, recs[i])
	}
	Stamp(batch, 1000, 7)
	if err := CheckCRC(batch); err != nil {
		t.Fatalf("stamping broke the CRC: %v", err)
	}
	var it Iter
	if err := it.Reset(batch, nil); err != nil {
		t.Fatal(err)
	}
	it.SkipTo(1001)
	if !it.Next() || it.View().Offset != 1001 || LeaderEpoch(batch) != 7 {
		t.Fatalf("offset %d, epoch %d", it.View().Offset, LeaderEpoch(batch))
	}
	it.SkipTo(5000)
	if it.Next() || it.Err() != nil {
		t.Fatalf("past the end: %v", it.Err())
	}
}

// Our batches are read by franz-go's decoder, and its encoding by ours.
func TestAgainstKmsg(t *testing.T) {
	recs := sample()
	batch := build(t, recs...)
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(batch); err != nil {
		t.Fatal(err)
	}
	if rb.NumRecords != 3 || rb.Magic != 2 || int(rb.Length) != len(batch)-12 {
		t.Fatalf("%+v", rb)
	}
	r := kbin.Reader{Src: rb.Records}
	for i := range recs {
		n := r.Varint()
		var kr kmsg.Record
		if err := kr.ReadFrom(append(kbin.AppendVarint(nil, n), r.Span(int(n))...)); err != nil {
			t.Fatal(err)
		}
		got := Record{Key: kr.Key, Value: kr.Value, Timestamp: rb.FirstTimestamp + kr.TimestampDelta64}
		for _, h := range kr.Headers {
			got.Headers = append(got.Headers, Header{h.Key, h.Value})
		}
		sameRecord(t, got, recs[i])
		if int(kr.OffsetDelta) != i {
			t.Fatalf("offset delta %d", kr.OffsetDelta)
		}
	}
	if len(r.Src) != 0 {
		t.Fatalf("%d bytes left", len(r.Src))
	}
}

func TestValidate(t *testing.T) {
	put32 := func(pos int, v int32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[pos:], uint32(v)); return seal(b) }
	}
	attr := func(bits int16) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint16(b[posAttributes:], uint16(bits)); return seal(b) }
	}
	record := func(at int, v byte) func([]byte) []byte {
		return func(b []byte) []byte { b[HeaderSize+at] = v; return seal(b) }
	}
	cases := []struct {
		name   string
		change func([]byte) []byte
		want   error
	}{
		{"as built", func(b []byte) []byte { return b }, nil},
		{"empty", func(b []byte) []byte { return nil }, ErrCorrupt},
		{"cut header", func(b []byte) []byte { return b[:40] }, ErrCorrupt},
		{"cut body", func(b []byte) []byte { return b[:len(b)-1] }, ErrCorrupt},
		{"bit flip", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, ErrCorrupt},
		{"crc flip", func(b []byte) []byte { b[posCRC] ^= 1; return b }, ErrCorrupt},
		{"magic 1", func(b []byte) []byte { b[posMagic] = 1; return b }, ErrMagic},
		{"magic 3", func(b []byte) []byte { b[posMagic] = 3; return b }, ErrMagic},
		{"negative length", func(b []byte) []byte { b[posLength] = 0xff; return b }, ErrCorrupt},
		{"length 0", func(b []byte) []byte { clear(b[posLength : posLength+4]); return b }, ErrCorrupt},
		{"huge length", func(b []byte) []byte { b[posLength] = 0x7f; return b }, ErrTooLarge},
		{"two batches", func(b []byte) []byte { return append(b, b...) }, ErrInvalid},
		{"base offset", func(b []byte) []byte { Stamp(b, 5, 0); return b }, ErrInvalid},
		{"count 0", put32(posCount, 0), ErrInvalid},
		{"count -1", put32(posCount, -1), ErrInvalid},
		{"count too high", put32(posCount, 4), ErrInvalid},
		{"last delta", put32(posLastDelta, 5), ErrInvalid},
		{"both lie high", func(b []byte) []byte { put32(posCount, 4)(b); return put32(posLastDelta, 3)(b) }, ErrInvalid},
		{"both lie low", func(b []byte) []byte { put32(posCount, 2)(b); return put32(posLastDelta, 1)(b) }, ErrInvalid},
		{"huge count", func(b []byte) []byte { put32(posCount, 1<<30)(b); return put32(posLastDelta, 1<<30-1)(b) }, ErrInvalid},
		{"control", attr(AttrControl), ErrInvalid},
		{"log append time", attr(AttrLogAppendTime), ErrInvalid},
		{"the broker's own mark", attr(AttrOwn), ErrInvalid},
		{"the broker's mark of expiring records", attr(AttrExpiring), ErrInvalid},
		{"codec 7", attr(7), ErrInvalid},
		{"transactional without id", attr(AttrTransactional), ErrInvalid},
		{"id without sequence", func(b []byte) []byte { clear(b[posProducerID : posProducerID+8]); return seal(b) }, ErrInvalid},
		{"record length", record(0, 0xfe), ErrInvalid},
		{"record offset delta", record(3, 2), ErrInvalid},
		{"key length", record(4, 0x7f), ErrInvalid},
		{"value length", record(6, 3), ErrInvalid},
		{"header count", record(8, 0x7e), ErrInvalid},
		{"header key null", record(9, 1), ErrInvalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := c.change(build(t, sample()...))
			if err := Validate(b); !is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if err := ValidateRecords(b, nil); !is(err, c.want) {
				t.Fatalf("records: got %v, want %v", err, c.want)
			}
		})
	}
}

// TestHeaderLimit: a compressed batch holds more headers than anybody wants to read.
func TestHeaderLimit(t *testing.T) {
	for n, want := range map[int]error{MaxHeaders: nil, MaxHeaders + 1: ErrInvalid} {
		var b Builder
		b.Reset()
		b.Append(&Record{Headers: make([]Header, n)})
		if err := Validate(b.Finish(nil)); !errors.Is(err, want) {
			t.Errorf("%d headers: %v, want %v", n, err, want)
		}
	}
}

func TestBuilderProducerAndAttributes(t *testing.T) {
	var b Builder
	b.SetProducer(77, 3, 40)
	b.SetAttributes(AttrTransactional | 2)
	b.Append(&Record{Value: []byte("x")})
	batch := b.Bytes()
	if ProducerID(batch) != 77 || ProducerEpoch(batch) != 3 || BaseSequence(batch) != 40 || Attributes(batch) != AttrTransactional {
		t.Fatalf("%x", batch)
	}
	if err := Validate(batch); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if b.Bytes() != nil || b.Size() != HeaderSize || b.Count() != 0 {
		t.Fatal("reset builder is not empty")
	}
	b.Append(&Record{})
	if ProducerID(b.Bytes()) != -1 {
		t.Fatal("producer survives Reset")
	}
}

// Compaction keeps offsets: records move with their deltas, the end stays.
func TestAppendViewKeepsOffsets(t *testing.T) {
	src := build(t, sample()...)
	Stamp(src, 10, 0)
	var it Iter
	if err := it.Reset(src, nil); err != nil {
		t.Fatal(err)
	}
	var b Builder
	for it.Next() {
		if v := it.View(); v.Offset != 10 && v.Offset != 12 {
			b.AppendView(v, int32(v.Offset-10))
		}
	}
	b.SetLastOffsetDelta(2)
	out := b.Finish(nil)
	Stamp(out, 10, 0)
	if Count(out) != 1 || LastOffset(out) != 12 {
		t.Fatalf("count %d last %d", Count(out), LastOffset(out))
	}
	got := walkAll(t, out)
	sameRecord(t, got[0], sample()[1])
}

func TestViewHeaders(t *testing.T) {
	var it Iter
	if err := it.Reset(build(t, sample()...), nil); err != nil || !it.Next() {
		t.Fatal(err)
	}
	v := it.View()
	if val, ok := v.Header("a"); !ok || string(val) != "1" {
		t.Fatalf("a: %q %v", val, ok)
	}
	if val, ok := v.Header("b"); !ok || val != nil {
		t.Fatalf("b: %q %v", val, ok)
	}
	if val, ok := v.Header(""); !ok || val == nil || len(val) != 0 {
		t.Fatalf("empty: %q %v", val, ok)
	}
	if _, ok := v.Header("c"); ok || v.HeaderCount() != 3 {
		t.Fatal("c found")
	}
}

func TestProperty(t *testing.T) {
	str := rapid.SliceOfN(rapid.Byte(), 0, 200)
	opt := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "null") {
			return nil
		}
		return str.Draw(t, "bytes")
	})
	rec := rapid.Custom(func(t *rapid.T) Record {
		r := Record{Key: opt.Draw(t, "key"), Value: opt.Draw(t, "value"), Timestamp: rapid.Int64Range(-1, 1<<50).Draw(t, "ts")}
		for range rapid.IntRange(0, 4).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{string(str.Draw(t, "name")), opt.Draw(t, "hv")})
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(rec, 1, 20).Draw(t, "records")
		var b Builder
		for i := range recs {
			before := b.Size()
			b.Append(&recs[i])
			if grew := b.Size() - before; grew > EncodedSize(&recs[i]) {
				t.Fatalf("EncodedSize %d, grew %d", EncodedSize(&recs[i]), grew)
			}
		}
		batch := b.Bytes()
		if err := Validate(batch); err != nil {
			t.Fatal(err)
		}
		got := walkAll(t, batch)
		for i := range recs {
			sameRecord(t, got[i], recs[i])
		}
	})
}

func TestVarint(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, -64, 64, -65, 8191, 8192, 1<<31 - 1, -1 << 31, 1<<63 - 1, -1 << 63} {
		var b [10]byte
		n := putVarint(b[:], v)
		if n != varintLen(v) {
			t.Errorf("%d: wrote %d, length %d", v, n, varintLen(v))
		}
		if got, pos := varint(b[:n], 0); got != v || pos != n {
			t.Errorf("%d: got %d at %d", v, got, pos)
		}
		if _, pos := varint(b[:n-1], 0); pos != -1 {
			t.Errorf("%d: cut varint accepted", v)
		}
	}
	if _, pos := varint(bytes.Repeat([]byte{0xff}, 11), 0); pos != -1 {
		t.Error("overlong varint accepted")
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := Record{Key: []byte("orders.1"), Value: make([]byte, size), Timestamp: 1_700_000_000_000,
				Headers: []Header{{"content-type", []byte("application/json")}}}
			var bld Builder
			b.ReportAllocs()
			for b.Loop() {
				if bld.Append(&r); bld.Count() == 1000 {
					bld.Bytes()
					bld.Reset()
				}
			}
		})
	}
}

func BenchmarkWalk(b *testing.B) {
	var bld Builder
	for range 1000 {
		bld.Append(&Record{Key: []byte("orders.1"), Value: make([]byte, 100), Timestamp: 1_700_000_000_000,
			Headers: []Header{{"content-type", []byte("application/json")}}})
	}
	batch := bld.Bytes()
	var it Iter
	b.ReportAllocs()
	for b.Loop() {
		if !it.Next() {
			_ = it.Reset(batch, nil)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	var bld Builder
	for range 1000 {
		bld.Append(&Record{Key: []byte("orders.1"), Value: make([]byte, 100), Timestamp: 1_700_000_000_000,
			Headers: []Header{{"content-type", []byte("application/json")}}})
	}
	batch := bld.Bytes()
	b.ReportAllocs()
	for b.Loop() {
		if Validate(batch) != nil {
			b.Fatal()
		}
	}
}
