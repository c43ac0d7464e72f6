// Package keyfile is the format of the files that hold the keyed state of a
// placement group as of a checkpoint (docs/formats/checkpoint.md): a base has all
// keys, a delta those that were written or deleted since the file before it. Of the
// files of a chain the last one to name a key counts. Entries are sorted by key, so
// that a chain is read as one, with little memory.
//
//	header | blocks of entries | footer
//
// A file is written from front to back with a block of memory, under a name that
// ends in ".tmp"; it is synced and renamed, and its directory is synced. Each block
// is checked before anything in it is used, and the file as a whole against the
// checkpoint that names it.
package keyfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Version is the version byte of the format.
const Version = 1

// The layout. Integers are big endian.
const (
	magic      = "TRVKEYS" // followed by the version byte
	endMagic   = "TRVKEND\x00"
	headerSize = 32
	footerSize = 32
	blockHead  = 8 // length, CRC32C

	// blockBytes is how much is gathered before a block is written; an entry is
	// not divided.
	blockBytes = 64 << 10

	// MaxKey and MaxValue bound an entry, in bytes.
	MaxKey   = 64 << 10
	MaxValue = 64 << 20
	maxBlock = blockBytes + MaxKey + MaxValue + 32
)

// TempSuffix ends the names of files that are being written.
const TempSuffix = ".tmp"

var (
	// ErrDamaged: the bytes are not what was written.
	ErrDamaged = errors.New("keyfile: damaged")
	// ErrVersion: a version that this program does not read.
	ErrVersion = errors.New("keyfile: unknown format version")
)

// Kind tells what a file has.
type Kind uint8

// The kinds.
const (
	Base  Kind = 1 // all keys
	Delta Kind = 2 // those changed since the file before
)

// Meta names a file and its content.
type Meta struct {
	Kind  Kind
	Index uint64 // of the checkpoint that it was written for
	Size  int64  // bytes
	Sum   uint32 // CRC32C of all its bytes
}

// Name is the file's base name.
func (m Meta) Name() string {
	if m.Kind == Base {
		return fmt.Sprintf("%016x.base", m.Index)
	}
	return fmt.Sprintf("%016x.delta", m.Index)
}

// IsName tells whether a base name is that of a file of this package, complete or
// not.
func IsName(name string) bool {
	name = strings.TrimSuffix(name, TempSuffix)
	return strings.HasSuffix(name, ".base") || strings.HasSuffix(name, ".delta")
}

// Entry is a key with its value, or a deletion.
type Entry struct {
	Key, Value []byte
	Index      uint64 // log index that wrote it
	Deleted    bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m Meta) header() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	b[7] = Version
	b[8] = byte(m.Kind)
	binary.BigEndian.PutUint64(b[16:], m.Index)
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

func (m Meta) checkHeader(b []byte) error {
	switch {
	case string(b[:7]) != magic:
		return fmt.Errorf("%w: no header", ErrDamaged)
	case b[7] != Version:
		if string(b[8:]) == string(m.header()[8:]) { // the sum is that of ours
			return fmt.Errorf("%w: version byte", ErrDamaged)
		}
		return fmt.Errorf("%w %d", ErrVersion, b[7])
	case string(b) != string(m.header()):
		return fmt.Errorf("%w: header of another file", ErrDamaged)
	}
	return nil
}

// encodeFooter: count of entries and their bytes (as the blocks', heads left out).
func encodeFooter(count, bytes uint64) []byte {
	b := make([]byte, 0, footerSize)
	b = binary.BigEndian.AppendUint64(b, count)
	b = binary.BigEndian.AppendUint64(b, bytes)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, endMagic...)
}

func appendEntry(b []byte, e *Entry) []byte {
	b = binary.AppendUvarint(b, e.Index)
	b = binary.AppendUvarint(b, uint64(len(e.Key)))
	b = append(b, e.Key...)
	if e.Deleted {
		return append(b, 0)
	}
	b = append(b, 1)
	b = binary.AppendUvarint(b, uint64(len(e.Value)))
	return append(b, e.Value...)
}

var errEntry = fmt.Errorf("%w: entry", ErrDamaged)

// takeEntry reads the entry at the front of b, whose slices alias b.
func takeEntry(b []byte) (e Entry, rest []byte, err error) {
	field := func(limit uint64) ([]byte, bool) {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > limit || n > uint64(len(b)-w) {
			return nil, false
		}
		v := b[w : w+int(n) : w+int(n)]
		b = b[w+int(n):]
		return v, true
	}
	index, w := binary.Uvarint(b)
	if w <= 0 {
		return e, nil, errEntry
	}
	e.Index, b = index, b[w:]
	var ok bool
	if e.Key, ok = field(MaxKey); !ok || len(b) == 0 || b[0] > 1 {
		return e, nil, errEntry
	}
	e.Deleted, b = b[0] == 0, b[1:]
	if !e.Deleted {
		if e.Value, ok = field(MaxValue); !ok {
			return e, nil, errEntry
		}
	}
	return e, b, nil
}
