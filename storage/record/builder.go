package record

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// Builder encodes records into one uncompressed batch in a single pass. Its
// buffer is reused after Reset, so that appending does not allocate once it
// has grown. The zero value is ready. A Builder is for one goroutine.
//
// The caller keeps Size plus EncodedSize of the next record at or below
// MaxBatchBytes.
type Builder struct {
	buf            []byte // header, then the records
	count          int32
	next           int32 // offset delta of the next record
	firstTS, maxTS int64
	attributes     int16
	producer       bool
	producerID     int64
	producerEpoch  int16
	baseSequence   int32
}

// Reset empties the builder and keeps its buffer. What Bytes returned before
// is overwritten by the next Append.
func (b *Builder) Reset() {
	*b = Builder{buf: b.buf[:0]}
}

// Count is the number of records appended.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size in bytes of the batch so far, header included.
func (b *Builder) Size() int { return max(len(b.buf), HeaderSize) }

// SetProducer states the idempotent producer and the sequence number of the
// first record.
func (b *Builder) SetProducer(id int64, epoch int16, baseSequence int32) {
	b.producer, b.producerID, b.producerEpoch, b.baseSequence = true, id, epoch, baseSequence
}

// SetAttributes sets attribute bits, such as AttrTransactional or AttrControl.
// The codec bits are ignored: a Builder does not compress.
func (b *Builder) SetAttributes(bits int16) { b.attributes = bits &^ AttrCodecMask }

// SetLastOffsetDelta makes the batch take up offsets to base+delta although
// its last records are gone (compaction). A delta that a record already
// passed is ignored.
func (b *Builder) SetLastOffsetDelta(delta int32) { b.next = max(b.next, delta+1) }

// Append encodes r, which it does not keep, and returns its offset delta in
// the batch.
func (b *Builder) Append(r *Record) (delta int32) {
	delta = b.next
	headers := varintLen(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		headers += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	buf, n := b.begin(delta, r.Timestamp, r.Key, r.Value, headers)
	n += putVarint(buf[n:], int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += putVarint(buf[n:], int64(len(h.Key)))
		n += copy(buf[n:], h.Key)
		n += putBytes(buf[n:], h.Value)
	}
	return delta
}

// AppendView encodes the record of a view at the given offset delta, which
// must be above the one before: compaction and copying move records this way
// without decoding their headers. The view's bytes are copied.
func (b *Builder) AppendView(v *View, delta int32) {
	headers := varintLen(int64(v.headerCount)) + len(v.headers)
	buf, n := b.begin(delta, v.Timestamp, v.Key, v.Value, headers)
	n += putVarint(buf[n:], int64(v.headerCount))
	copy(buf[n:], v.headers)
}

// begin makes room for a record and writes everything before its headers,
// which take headerBytes. It returns the record's room and the position after
// the value.
func (b *Builder) begin(delta int32, ts int64, key, value []byte, headerBytes int) ([]byte, int) {
	if b.count == 0 {
		b.firstTS, b.maxTS = ts, ts
		b.buf = slices.Grow(b.buf[:0], HeaderSize)[:HeaderSize]
	}
	b.maxTS = max(b.maxTS, ts)
	b.count++
	b.next = delta + 1

	tsDelta := ts - b.firstTS
	body := 1 + varintLen(tsDelta) + varintLen(int64(delta)) + bytesLen(key) + bytesLen(value) + headerBytes
	start := len(b.buf)
	size := varintLen(int64(body)) + body
	b.buf = slices.Grow(b.buf, size)[:start+size]

	buf := b.buf[start:]
	n := putVarint(buf, int64(body))
	buf[n] = 0 // record attributes: unused by the format
	n++
	n += putVarint(buf[n:], tsDelta)
	n += putVarint(buf[n:], int64(delta))
	n += putBytes(buf[n:], key)
	n += putBytes(buf[n:], value)
	return buf, n
}

// Bytes completes the batch and returns it: base offset 0, leader epoch 0,
// CRC set. The slice is the builder's own and valid until Append or Reset. A
// builder without records returns nil.
func (b *Builder) Bytes() []byte {
	if b.count == 0 {
		return nil
	}
	h := b.buf[:HeaderSize]
	clear(h)
	id, epoch, seq := int64(-1), int16(-1), int32(-1)
	if b.producer {
		id, epoch, seq = b.producerID, b.producerEpoch, b.baseSequence
	}
	binary.BigEndian.PutUint32(h[posLength:], uint32(len(b.buf)-lengthOverhead))
	h[posMagic] = Magic
	binary.BigEndian.PutUint16(h[posAttributes:], uint16(b.attributes))
	binary.BigEndian.PutUint32(h[posLastDelta:], uint32(b.next-1))
	binary.BigEndian.PutUint64(h[posFirstTime:], uint64(b.firstTS))
	binary.BigEndian.PutUint64(h[posMaxTime:], uint64(b.maxTS))
	binary.BigEndian.PutUint64(h[posProducerID:], uint64(id))
	binary.BigEndian.PutUint16(h[posProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(h[posBaseSequence:], uint32(seq))
	binary.BigEndian.PutUint32(h[posCount:], uint32(b.count))
	binary.BigEndian.PutUint32(h[posCRC:], crc32.Checksum(b.buf[posAttributes:], castagnoli))
	return b.buf
}

// Finish completes the batch as Bytes does and appends it to dst.
func (b *Builder) Finish(dst []byte) []byte { return append(dst, b.Bytes()...) }

// EncodedSize is an upper bound, exact to a few bytes, on what Append adds to
// a batch for r.
func EncodedSize(r *Record) int {
	const fixed = 5 /* length */ + 1 /* attributes */ + 10 /* time */ + 5 /* offset */
	n := fixed + bytesLen(r.Key) + bytesLen(r.Value) + varintLen(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	return n
}

// bytesLen is the encoded size of a byte string; null has length -1.
func bytesLen(p []byte) int {
	if p == nil {
		return 1
	}
	return varintLen(int64(len(p))) + len(p)
}

func putBytes(b, p []byte) int {
	if p == nil {
		return putVarint(b, -1)
	}
	n := putVarint(b, int64(len(p)))
	return n + copy(b[n:], p)
}
