// Package record reads and writes Kafka's RecordBatch version 2, which is
// Trivium's record format on disk, in the log and on the wire to Kafka
// clients (docs/formats/record.md; Kafka protocol guide "Record Batch",
// KIP-98, KIP-32).
//
// The package is pure: no I/O, no clock, no goroutines. Functions never keep
// or change a slice that is passed in unless they say so, and no input makes
// them panic.
package record

import "errors"

// Header is one name and value of a record. Names may repeat; order is kept.
type Header struct {
	Key   string
	Value []byte // nil is Kafka's null, which is not the empty value
}

// Record is one message as it is written. Key and Value may be nil (null).
type Record struct {
	Key, Value []byte
	Timestamp  int64 // milliseconds since the Unix epoch
	Headers    []Header
}

// Errors of Validate, Iter and Decompressor. They are wrapped with what was
// wrong, so compare with errors.Is.
var (
	// ErrCorrupt: the bytes are not what was once written (CRC, truncated).
	// Kafka: CORRUPT_MESSAGE.
	ErrCorrupt = errors.New("record: corrupt batch")
	// ErrMagic: a batch of another format version. Kafka:
	// UNSUPPORTED_FOR_MESSAGE_FORMAT.
	ErrMagic = errors.New("record: unsupported batch version")
	// ErrInvalid: the bytes are intact but break the rules of the format.
	// Kafka: INVALID_RECORD.
	ErrInvalid = errors.New("record: invalid batch")
	// ErrTooLarge: beyond MaxBatchBytes, or expands beyond the limits of the
	// Decompressor. Kafka: MESSAGE_TOO_LARGE.
	ErrTooLarge = errors.New("record: batch too large")
)

// MaxBatchBytes is the largest batch, compressed or not, that the package
// accepts. What a broker lets clients send is a setting far below it.
const MaxBatchBytes = 64 << 20
