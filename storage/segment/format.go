// Package segment is the format of one segment file: the records that a
// placement group no longer keeps in its head, grouped by partition
// (docs/formats/segment.md).
//
//	header | batches | index pages of each run | run table | footer
//
// A batch is stored once, whole, as a Kafka record batch. A run is what one
// partition has in the file; its index has one entry per batch, so that a
// batch addressed to several partitions is shared by their runs.
//
// This file is the layout and does no I/O.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/trivium-mq/trivium/storage/record"
)

// Version is the version byte of the format.
const Version = 1

// Sizes of the parts in bytes.
const (
	HeaderSize = 32
	EntrySize  = 32
	RunSize    = 56
	FooterSize = 64

	// PageEntries is how many index entries share one CRC: a page takes
	// about 4 KiB and is what a lookup reads.
	PageEntries = 128
	pageSize    = PageEntries*EntrySize + crcSize
	crcSize     = 4
)

const (
	headMagic = "TRIVSEG" // followed by the version byte
	tailMagic = "TRSEGEND"
)

var (
	// ErrDamaged: bytes on disk are not what was written. Errors of reading
	// are *Damage, which matches it.
	ErrDamaged = errors.New("segment: damaged")
	// ErrVersion: the file is of a format version this program does not read.
	ErrVersion = errors.New("segment: unknown format version")
)

// Damage says which bytes, and which offsets of a partition, are lost to a
// reader. It matches ErrDamaged.
type Damage struct {
	File        string
	Pos         int64 // of the damaged bytes
	Length      int64
	First, Last int64 // offsets of the run that they hold, First > Last if none
	Err         error // what was found
	// Wrong: the bytes were read and are not what was written, so that another try
	// finds the same; else they could not be read, which may pass.
	Wrong bool
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%v: %s at %d, %d bytes, offsets %d to %d: %v", ErrDamaged, d.File, d.Pos, d.Length, d.First, d.Last, d.Err)
}

// Unwrap makes errors.Is match ErrDamaged and the cause.
func (d *Damage) Unwrap() []error { return []error{ErrDamaged, d.Err} }

// Entry is the index entry of one batch in a run.
type Entry struct {
	Base      int64 // offset of the batch in this run; the stored batch may carry another
	Pos       int64 // in the file
	Length    int32 // bytes
	LastDelta int32 // last offset less Base
	MaxTime   int64 // highest record timestamp, ms
	Shared    bool  // several runs may refer to the batch
}

// sharedBit marks a shared batch in the stored length.
const sharedBit = 1 << 31

// Last is the last offset that the batch takes up.
func (e *Entry) Last() int64 { return e.Base + int64(e.LastDelta) }

// Run describes what one partition has in the file.
type Run struct {
	Partition uint64
	Base, End int64 // first offset, and last offset plus one
	MaxTime   int64 // highest record timestamp, ms
	Bytes     int64 // of its batches, shared ones counted in full
	IndexPos  int64 // of its first index page
	Entries   uint32
}

// pages is the number of index pages of the run.
func (r *Run) pages() int { return (int(r.Entries) + PageEntries - 1) / PageEntries }

// footer is the fixed end of the file.
type footer struct {
	tablePos int64
	dataEnd  int64 // batches are in [HeaderSize, dataEnd)
	batches  uint64
	runs     uint32
	tableCRC uint32
	checksum uint64 // XXH64 of every byte before the footer
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// encodeHeader: magic and version, id, 12 zero bytes, CRC.
func encodeHeader(id uint64) []byte {
	b := make([]byte, HeaderSize)
	copy(b, headMagic)
	b[len(headMagic)] = Version
	binary.BigEndian.PutUint64(b[8:], id)
	binary.BigEndian.PutUint32(b[HeaderSize-crcSize:], crc(b[:HeaderSize-crcSize]))
	return b
}

func decodeHeader(b []byte) (id uint64, err error) {
	if string(b[:len(headMagic)]) != headMagic {
		return 0, fmt.Errorf("%w: no segment header", ErrDamaged)
	}
	if v := b[len(headMagic)]; v != Version {
		return 0, fmt.Errorf("%w: %d", ErrVersion, v)
	}
	if binary.BigEndian.Uint32(b[HeaderSize-crcSize:]) != crc(b[:HeaderSize-crcSize]) {
		return 0, fmt.Errorf("%w: header crc", ErrDamaged)
	}
	return binary.BigEndian.Uint64(b[8:]), nil
}

func appendEntry(b []byte, e *Entry) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(e.Base))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Pos))
	length := uint32(e.Length)
	if e.Shared {
		length |= sharedBit
	}
	b = binary.BigEndian.AppendUint32(b, length)
	b = binary.BigEndian.AppendUint32(b, uint32(e.LastDelta))
	return binary.BigEndian.AppendUint64(b, uint64(e.MaxTime))
}

func decodeEntry(b []byte) Entry {
	length := binary.BigEndian.Uint32(b[16:])
	return Entry{
		Base:      int64(binary.BigEndian.Uint64(b)),
		Pos:       int64(binary.BigEndian.Uint64(b[8:])),
		Length:    int32(length &^ sharedBit),
		Shared:    length&sharedBit != 0,
		LastDelta: int32(binary.BigEndian.Uint32(b[20:])),
		MaxTime:   int64(binary.BigEndian.Uint64(b[24:])),
	}
}

func appendRun(b []byte, r *Run) []byte {
	b = binary.BigEndian.AppendUint64(b, r.Partition)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Base))
	b = binary.BigEndian.AppendUint64(b, uint64(r.End))
	b = binary.BigEndian.AppendUint64(b, uint64(r.MaxTime))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Bytes))
	b = binary.BigEndian.AppendUint64(b, uint64(r.IndexPos))
	b = binary.BigEndian.AppendUint32(b, r.Entries)
	return binary.BigEndian.AppendUint32(b, 0)
}

func decodeRun(b []byte) Run {
	return Run{
		Partition: binary.BigEndian.Uint64(b),
		Base:      int64(binary.BigEndian.Uint64(b[8:])),
		End:       int64(binary.BigEndian.Uint64(b[16:])),
		MaxTime:   int64(binary.BigEndian.Uint64(b[24:])),
		Bytes:     int64(binary.BigEndian.Uint64(b[32:])),
		IndexPos:  int64(binary.BigEndian.Uint64(b[40:])),
		Entries:   binary.BigEndian.Uint32(b[48:]),
	}
}

// encode: positions, counts, CRC of the run table, checksum of all before the
// footer, then the footer's own CRC and the closing magic.
func (f *footer) encode() []byte {
	b := make([]byte, 0, FooterSize)
	b = binary.BigEndian.AppendUint64(b, uint64(f.tablePos))
	b = binary.BigEndian.AppendUint64(b, uint64(f.dataEnd))
	b = binary.BigEndian.AppendUint64(b, f.batches)
	b = binary.BigEndian.AppendUint32(b, f.runs)
	b = binary.BigEndian.AppendUint32(b, f.tableCRC)
	b = binary.BigEndian.AppendUint64(b, f.checksum)
	b = append(b, make([]byte, 12)...)
	b = binary.BigEndian.AppendUint32(b, crc(b))
	return append(b, tailMagic...)
}

// decodeFooter checks everything that a reader relies on against the size of
// the file.
func decodeFooter(b []byte, size int64) (footer, error) {
	const crcPos = FooterSize - len(tailMagic) - crcSize
	if string(b[crcPos+crcSize:]) != tailMagic {
		return footer{}, fmt.Errorf("%w: no footer", ErrDamaged)
	}
	if binary.BigEndian.Uint32(b[crcPos:]) != crc(b[:crcPos]) {
		return footer{}, fmt.Errorf("%w: footer crc", ErrDamaged)
	}
	f := footer{
		tablePos: int64(binary.BigEndian.Uint64(b)),
		dataEnd:  int64(binary.BigEndian.Uint64(b[8:])),
		batches:  binary.BigEndian.Uint64(b[16:]),
		runs:     binary.BigEndian.Uint32(b[24:]),
		tableCRC: binary.BigEndian.Uint32(b[28:]),
		checksum: binary.BigEndian.Uint64(b[32:]),
	}
	if f.dataEnd < HeaderSize || f.tablePos < f.dataEnd || f.tablePos+int64(f.runs)*RunSize != size-FooterSize {
		return footer{}, fmt.Errorf("%w: footer does not fit a file of %d bytes", ErrDamaged, size)
	}
	return f, nil
}

// maxOffset keeps sums of an offset and a delta from overflowing.
const maxOffset = 1 << 62

// check tells whether the run's index lies where indexes are.
func (r *Run) check(f *footer) error {
	end := r.IndexPos + int64(r.Entries)*EntrySize + int64(r.pages())*crcSize
	if r.Entries == 0 || r.Base < 0 || r.End <= r.Base || r.End > maxOffset ||
		r.IndexPos < f.dataEnd || r.IndexPos > f.tablePos || end > f.tablePos {
		return fmt.Errorf("%w: run of partition %d", ErrDamaged, r.Partition)
	}
	return nil
}

// check tells whether the entry belongs into the run and its batch lies where
// batches are.
func (e *Entry) check(r *Run, dataEnd int64) error {
	if e.Base < r.Base || e.LastDelta < 0 || e.Last() >= r.End || e.Length <= 0 || e.Length > record.MaxBatchBytes ||
		e.Pos < HeaderSize || e.Pos > dataEnd-int64(e.Length) {
		return fmt.Errorf("%w: index entry of offset %d", ErrDamaged, e.Base)
	}
	return nil
}
