package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Sizes and the format version.
const (
	HeaderSize = 61 // bytes before the first record
	Magic      = 2

	// lengthOverhead is what the length field does not count: the base
	// offset and the length itself.
	lengthOverhead = 12
)

// Positions of the header fields, big endian throughout.
const (
	posBaseOffset    = 0  // int64
	posLength        = 8  // int32
	posLeaderEpoch   = 12 // int32
	posMagic         = 16 // int8
	posCRC           = 17 // uint32, CRC32C of everything after it
	posAttributes    = 21 // int16
	posLastDelta     = 23 // int32
	posFirstTime     = 27 // int64
	posMaxTime       = 35 // int64
	posProducerID    = 43 // int64
	posProducerEpoch = 51 // int16
	posBaseSequence  = 53 // int32
	posCount         = 57 // int32
)

// Bits of the attributes field.
const (
	AttrCodecMask     int16 = 0x07
	AttrLogAppendTime int16 = 1 << 3
	AttrTransactional int16 = 1 << 4
	AttrControl       int16 = 1 << 5
	AttrDeleteHorizon int16 = 1 << 6
	// AttrOwn marks batches that the broker encoded itself: only in them do
	// headers with the broker's reserved names come from the broker. Kafka
	// leaves the bit unused; producers may not set it.
	AttrOwn int16 = -1 << 15
	// AttrExpiring marks batches of the broker in which a record has a time of
	// its own to expire at, so that nobody has to look into the others. Likewise
	// unused by Kafka.
	AttrExpiring int16 = 1 << 14
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The accessors below read one header field. They need at least HeaderSize
// bytes and panic on less: check with Split, Validate or CheckCRC first.

// BaseOffset is the offset of the batch's first record (of offset delta 0).
func BaseOffset(batch []byte) int64 {
	return int64(binary.BigEndian.Uint64(batch[posBaseOffset:]))
}

// Length is the length field: the batch's size less 12 bytes.
func Length(batch []byte) int32 { return int32(binary.BigEndian.Uint32(batch[posLength:])) }

// LeaderEpoch is the partition leader epoch stamped on the batch.
func LeaderEpoch(batch []byte) int32 { return int32(binary.BigEndian.Uint32(batch[posLeaderEpoch:])) }

// Attributes is the bit field of the Attr constants.
func Attributes(batch []byte) int16 { return int16(binary.BigEndian.Uint16(batch[posAttributes:])) }

// BatchCodec is the compression of the record section.
func BatchCodec(batch []byte) Codec { return Codec(Attributes(batch) & AttrCodecMask) }

// LastOffsetDelta is the last offset of the batch less its base offset. With
// compaction it may be larger than Count-1.
func LastOffsetDelta(batch []byte) int32 { return int32(binary.BigEndian.Uint32(batch[posLastDelta:])) }

// LastOffset is the last offset that the batch takes up.
func LastOffset(batch []byte) int64 { return BaseOffset(batch) + int64(LastOffsetDelta(batch)) }

// FirstTimestamp is the time in ms that the records' time deltas add to.
func FirstTimestamp(batch []byte) int64 { return int64(binary.BigEndian.Uint64(batch[posFirstTime:])) }

// MaxTimestamp is the highest record timestamp in ms, as the writer of the
// batch states it; a foreign producer may be wrong about it.
func MaxTimestamp(batch []byte) int64 { return int64(binary.BigEndian.Uint64(batch[posMaxTime:])) }

// ProducerID is the idempotent producer's id, -1 for none.
func ProducerID(batch []byte) int64 { return int64(binary.BigEndian.Uint64(batch[posProducerID:])) }

// ProducerEpoch is the idempotent producer's epoch, -1 for none.
func ProducerEpoch(batch []byte) int16 {
	return int16(binary.BigEndian.Uint16(batch[posProducerEpoch:]))
}

// BaseSequence is the sequence number of the first record, -1 for none.
func BaseSequence(batch []byte) int32 { return int32(binary.BigEndian.Uint32(batch[posBaseSequence:])) }

// Count is the number of records.
func Count(batch []byte) int32 { return int32(binary.BigEndian.Uint32(batch[posCount:])) }

// IsControl tells whether the batch holds transaction markers, which no
// consumer sees.
func IsControl(batch []byte) bool { return Attributes(batch)&AttrControl != 0 }

// Stamp writes the base offset and the leader epoch into the batch, in
// place. The CRC does not cover them, so it stays right.
func Stamp(batch []byte, baseOffset int64, epoch int32) {
	binary.BigEndian.PutUint64(batch[posBaseOffset:], uint64(baseOffset))
	binary.BigEndian.PutUint32(batch[posLeaderEpoch:], uint32(epoch))
}

// Split cuts the first batch off a run of batches. It checks the size and the
// version of the header and no more. Both results alias b.
func Split(b []byte) (batch, rest []byte, err error) {
	if len(b) <= posMagic {
		return nil, nil, fmt.Errorf("%w: %d bytes are no batch", ErrCorrupt, len(b))
	}
	if b[posMagic] != Magic {
		return nil, nil, fmt.Errorf("%w: magic %d", ErrMagic, int8(b[posMagic]))
	}
	if len(b) < HeaderSize {
		return nil, nil, fmt.Errorf("%w: %d bytes are no batch", ErrCorrupt, len(b))
	}
	size := int64(Length(b)) + lengthOverhead
	switch {
	case size < HeaderSize:
		return nil, nil, fmt.Errorf("%w: length field %d", ErrCorrupt, Length(b))
	case size > MaxBatchBytes:
		return nil, nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, size, MaxBatchBytes)
	case size > int64(len(b)):
		return nil, nil, fmt.Errorf("%w: %d of %d bytes", ErrCorrupt, len(b), size)
	}
	return b[:size:size], b[size:], nil
}

// CheckCRC tells whether batch is exactly one intact batch: its size, version
// and CRC. Everything read back from disk goes through it.
func CheckCRC(batch []byte) error {
	one, rest, err := Split(batch)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("%w: %d bytes after the batch", ErrInvalid, len(rest))
	}
	want := binary.BigEndian.Uint32(one[posCRC:])
	if got := crc32.Checksum(one[posAttributes:], castagnoli); got != want {
		return fmt.Errorf("%w: crc32c %08x, the batch says %08x", ErrCorrupt, got, want)
	}
	return nil
}
