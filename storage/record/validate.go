package record

import "fmt"

// Validate checks a batch that a producer sent: exactly one batch, intact,
// within the rules that Kafka's brokers hold producers to (LogValidator), and
// when it is not compressed every record of it. Records inside a compressed
// batch are checked by ValidateRecords, which has to decompress them.
func Validate(batch []byte) error {
	if err := CheckCRC(batch); err != nil {
		return err
	}
	if err := checkProducer(batch); err != nil {
		return err
	}
	if BatchCodec(batch) != None {
		return nil
	}
	return walk(batch, batch[HeaderSize:])
}

// ValidateRecords does what Validate does, and checks the records inside a
// compressed batch too.
func ValidateRecords(batch []byte, d *Decompressor) error {
	if err := Validate(batch); err != nil || BatchCodec(batch) == None {
		return err
	}
	data, err := Records(batch, d)
	if err != nil {
		return err
	}
	return walk(batch, data)
}

func checkProducer(batch []byte) error {
	attributes := Attributes(batch)
	count, last := Count(batch), LastOffsetDelta(batch)
	switch {
	case BaseOffset(batch) != 0:
		return fmt.Errorf("%w: base offset %d", ErrInvalid, BaseOffset(batch))
	case count <= 0:
		return fmt.Errorf("%w: record count %d", ErrInvalid, count)
	case int64(last)+1 != int64(count):
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrInvalid, count, last)
	case attributes&AttrControl != 0:
		return fmt.Errorf("%w: control batch", ErrInvalid)
	case attributes&(AttrOwn|AttrExpiring) != 0:
		return fmt.Errorf("%w: attribute bit 14 or 15", ErrInvalid)
	case attributes&AttrLogAppendTime != 0:
		return fmt.Errorf("%w: timestamp type LogAppendTime", ErrInvalid)
	case BatchCodec(batch) > Zstd:
		return fmt.Errorf("%w: codec %d", ErrInvalid, BatchCodec(batch))
	case ProducerID(batch) >= 0 && (BaseSequence(batch) < 0 || ProducerEpoch(batch) < 0):
		return fmt.Errorf("%w: producer id without sequence", ErrInvalid)
	case attributes&AttrTransactional != 0 && ProducerID(batch) < 0:
		return fmt.Errorf("%w: transactional without producer id", ErrInvalid)
	case int64(count)*minRecordSize > sectionLimit(batch):
		return fmt.Errorf("%w: %d records in %d bytes", ErrInvalid, count, len(batch)-HeaderSize)
	}
	return nil
}

// sectionLimit is how large the record section may be once decompressed.
func sectionLimit(batch []byte) int64 {
	size := len(batch) - HeaderSize
	if BatchCodec(batch) != None {
		size = (*Decompressor)(nil).limit(size)
	}
	return int64(size)
}

// minRecordSize: length, attributes, time, offset, key, value, header count.
const minRecordSize = 7

// MaxHeaders is how many headers a producer may give one record: more than fit
// into a header frame of AMQP. In a compressed batch they cost next to nothing, and
// each costs its reader some forty bytes.
const MaxHeaders = 64 << 10

func walk(batch, data []byte) error {
	var it Iter
	it.ResetRecords(batch, data)
	for it.Next() {
		if n := it.view.HeaderCount(); n > MaxHeaders {
			return fmt.Errorf("%w: %d headers, the limit is %d", ErrInvalid, n, MaxHeaders)
		}
		if err := it.view.Headers().check(); err != nil {
			return err
		}
	}
	return it.Err()
}
