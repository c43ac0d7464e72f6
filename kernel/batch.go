package kernel

import (
	"errors"

	"github.com/trivium-mq/trivium/storage/record"
)

// Batch is one stored RecordBatch v2, which is Kafka's format byte for byte.
// Its methods, but for Validate, need a batch that has passed it or was read
// from the log.
type Batch []byte

// The codes of Batch.Codec that a caller has to know.
const (
	Uncompressed = record.None
	Zstandard    = record.Zstd
)

// batchCodes translates the findings of storage/record.
var batchCodes = []struct {
	err  error
	code Code
}{
	{record.ErrCorrupt, CodeCorrupt},
	{record.ErrMagic, CodeNotImplemented},
	{record.ErrTooLarge, CodeTooLarge},
}

func batchError(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range batchCodes {
		if errors.Is(err, c.err) {
			return Errorf(c.code, "", "", "%v", err)
		}
	}
	return Errorf(CodeInvalid, "", "", "%v", err)
}

// Validate checks that b is exactly one batch with a true CRC and a header that
// a producer may send: CodeCorrupt, CodeNotImplemented (another format
// version), CodeTooLarge, CodeInvalid.
func (b Batch) Validate() error { return batchError(record.Validate(b)) }

// ValidateRecords checks the records too, inside a compressed section as well,
// which is decompressed within limits. Errors as for Validate.
func (b Batch) ValidateRecords() error { return batchError(record.ValidateRecords(b, nil)) }

// Codec returns how the records are compressed.
func (b Batch) Codec() record.Codec { return record.BatchCodec(b) }

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return record.Attributes(b)&record.AttrTransactional != 0 }

// Count returns the number of records.
func (b Batch) Count() int { return int(record.Count(b)) }

// LastOffset returns the offset of the last record.
func (b Batch) LastOffset() int64 { return record.LastOffset(b) }

// SetLeaderEpoch stamps a leader epoch; the CRC does not cover it.
func (b Batch) SetLeaderEpoch(epoch int32) { record.Stamp(b, record.BaseOffset(b), epoch) }

// SplitBatch cuts the first batch off a run of whole ones, as a read returns
// them.
func SplitBatch(run []byte) (first Batch, rest []byte, err error) {
	first, rest, err = record.Split(run)
	return first, rest, batchError(err)
}
