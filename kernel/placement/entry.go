package placement

import (
	"encoding/binary"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
)

// An entry is one command of the log: docs/formats/entry.md. It is a header
// and any number of sections, each a kind byte and its content.
const (
	entryVersion = 1
	headerSize   = 1 + 8 + 8 + 8 + 8

	sectionBatch      = 1 // a RecordBatch for one or more partitions
	sectionSettlement = 2 // a settlement of one window
	sectionCommand    = 3 // see command.go
	sectionTrim       = 4 // a partition's start moves up
	sectionOnce       = 5 // the batch that follows is a use of a session's number
	sectionID         = 6 // the batch that follows has a deduplication id
)

// header is what an entry begins with.
type header struct {
	time    int64  // wall clock of the proposer, ms since 1970
	boot    uint64 // random number of the proposing process
	counter uint64 // number of the entry in it: (boot, counter) is the batch id
	term    uint64 // term that the settlements and trims were made in
}

func (h header) append(dst []byte) []byte {
	dst = append(dst, entryVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.time))
	dst = binary.BigEndian.AppendUint64(dst, h.boot)
	dst = binary.BigEndian.AppendUint64(dst, h.counter)
	return binary.BigEndian.AppendUint64(dst, h.term)
}

func appendBatchSection(dst []byte, targets []PartitionID, batch []byte) []byte {
	dst = append(dst, sectionBatch)
	dst = binary.AppendUvarint(dst, uint64(len(targets)))
	for _, p := range targets {
		dst = binary.AppendUvarint(dst, uint64(p))
	}
	return appendBytes(dst, batch)
}

// batchSectionSize is an upper bound of what appendBatchSection adds.
func batchSectionSize(targets, batch int) int {
	return 1 + 5 + targets*binary.MaxVarintLen64 + 5 + batch
}

// trimSectionSize is an upper bound of what appendTrimSection adds.
const trimSectionSize = 1 + 2*binary.MaxVarintLen64

func appendTrimSection(dst []byte, p PartitionID, start int64) []byte {
	dst = append(dst, sectionTrim)
	dst = binary.AppendUvarint(dst, uint64(p))
	return binary.AppendUvarint(dst, uint64(start))
}

func appendCommandSection(dst, body []byte) []byte {
	dst = append(dst, sectionCommand)
	return appendBytes(dst, body)
}

// section is one part of an entry as read; the fields that its kind has are
// set. Slices alias the entry, targets the reader.
type section struct {
	kind      byte
	targets   []PartitionID // batch
	group     GroupID       // settlement
	partition PartitionID   // settlement, trim
	start     int64         // trim
	once      kernel.Once   // once, id
	body      []byte        // batch, settlement, command
	off       int           // position of body in the entry
}

// entryReader walks the sections of an entry.
type entryReader struct {
	header
	section
	data []byte
	decoder
}

// reset begins to read an entry. An entry of another version is refused.
func (r *entryReader) reset(data []byte) error {
	r.data, r.decoder = data, decoder{b: data}
	if v := r.decoder.byte(); r.err == nil && v != entryVersion {
		return fmt.Errorf("%w: entry version %d, want %d", errFormat, v, entryVersion)
	}
	r.time = int64(r.decoder.uint64())
	r.boot = r.decoder.uint64()
	r.counter = r.decoder.uint64()
	r.term = r.decoder.uint64()
	return r.err
}

// next reads the next section; it returns false after the last one, or at a
// malformed one (then err is set).
func (r *entryReader) next() bool {
	if len(r.b) == 0 || r.err != nil {
		return false
	}
	r.section = section{kind: r.decoder.byte(), targets: r.targets[:0]}
	switch r.kind {
	case sectionBatch:
		for n := r.count(1); n > 0; n-- {
			r.targets = append(r.targets, PartitionID(r.uvarint()))
		}
	case sectionSettlement:
		r.group, r.partition = GroupID(r.uvarint()), PartitionID(r.uvarint())
	case sectionCommand:
	case sectionTrim:
		r.partition, r.start = PartitionID(r.uvarint()), r.offset()
		return r.err == nil
	case sectionOnce:
		r.section.once = r.decoder.once()
		return r.err == nil
	case sectionID:
		r.section.once.ID = r.decoder.dedupID()
		return r.err == nil
	default:
		r.fail(fmt.Sprintf("section kind %d", r.kind))
	}
	r.body = r.decoder.bytes()
	r.off = len(r.data) - len(r.b) - len(r.body)
	return r.err == nil
}

func appendSettlementSection(dst []byte, g GroupID, p PartitionID, settlement []byte) []byte {
	dst = append(dst, sectionSettlement)
	dst = binary.AppendUvarint(dst, uint64(g))
	dst = binary.AppendUvarint(dst, uint64(p))
	return appendBytes(dst, settlement)
}
