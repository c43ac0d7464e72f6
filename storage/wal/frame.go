package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// The layout is in docs/formats/wal.md. All integers are little-endian.
const (
	fileMagic      = "TRVW"
	fileVersion    = 1
	fileHeaderSize = 64

	frameHeaderSize = 48
	frameAlign      = 8

	maxExtension = 1<<16 - 1
	maxFileSize  = 1<<32 - 1 // offsets are uint32
	maxAppend    = 1 << 30   // one append goes into one file
)

// The kinds of frames.
const (
	kindRoll   = 1 + iota // first in a file: index = previous file, term = its end, time = state frames that follow
	kindState             // group as of the begin of the file: index = first, term = next, data = pairs
	kindEntry             // one log entry
	kindCopy              // an entry again, moved forward out of an old file
	kindCut               // entries below index are gone
	kindTrunc             // entries from index on are gone
	kindStable            // data = pairs of the stable store
	kindDrop              // the group is gone, with its stable store
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is the header of one frame.
type frame struct {
	dataSum uint32 // CRC32C of data and extension
	length  uint32 // bytes of data
	ext     uint16 // bytes of extension, behind the data
	kind    uint8
	logType uint8
	group   uint32

	// durable is an offset in the same file: everything before it was synced
	// when this frame was written. So a valid frame whose durable mark lies
	// behind a bad place proves that the bad place had been good once: that is
	// damage, not a torn write.
	durable uint32

	index uint64
	term  uint64
	time  int64 // of appending, nanoseconds since 1970; 0 = none
}

// size is what the frame takes in the file.
func (f *frame) size() int64 { return frameSize(int64(f.length), int64(f.ext)) }

func frameSize(length, ext int64) int64 {
	n := frameHeaderSize + length + ext
	return (n + frameAlign - 1) &^ (frameAlign - 1)
}

// put writes the header to b. The salt of the file goes into its checksum:
// nothing but a frame written to this file passes for one.
func (f *frame) put(b []byte, salt uint32) {
	_ = b[frameHeaderSize-1]
	binary.LittleEndian.PutUint32(b[4:], f.dataSum)
	binary.LittleEndian.PutUint32(b[8:], f.length)
	binary.LittleEndian.PutUint16(b[12:], f.ext)
	b[14], b[15] = f.kind, f.logType
	binary.LittleEndian.PutUint32(b[16:], f.group)
	binary.LittleEndian.PutUint32(b[20:], f.durable)
	binary.LittleEndian.PutUint64(b[24:], f.index)
	binary.LittleEndian.PutUint64(b[32:], f.term)
	binary.LittleEndian.PutUint64(b[40:], uint64(f.time))
	binary.LittleEndian.PutUint32(b, crc32.Update(salt, castagnoli, b[4:frameHeaderSize]))
}

// getFrame reads a header; ok is false when there is none.
func getFrame(b []byte, salt uint32) (f frame, ok bool) {
	if len(b) < frameHeaderSize || b[14] < kindRoll || b[14] > kindDrop {
		return f, false
	}
	if binary.LittleEndian.Uint32(b) != crc32.Update(salt, castagnoli, b[4:frameHeaderSize]) {
		return f, false
	}
	return frame{
		dataSum: binary.LittleEndian.Uint32(b[4:]),
		length:  binary.LittleEndian.Uint32(b[8:]),
		ext:     binary.LittleEndian.Uint16(b[12:]),
		kind:    b[14],
		logType: b[15],
		group:   binary.LittleEndian.Uint32(b[16:]),
		durable: binary.LittleEndian.Uint32(b[20:]),
		index:   binary.LittleEndian.Uint64(b[24:]),
		term:    binary.LittleEndian.Uint64(b[32:]),
		time:    int64(binary.LittleEndian.Uint64(b[40:])),
	}, true
}

func dataSum(data, ext []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, data), castagnoli, ext)
}

// putFileHeader returns the header of a file.
func putFileHeader(seq uint64, salt uint32) []byte {
	b := make([]byte, fileHeaderSize)
	copy(b, fileMagic)
	b[4] = fileVersion
	binary.LittleEndian.PutUint64(b[8:], seq)
	binary.LittleEndian.PutUint32(b[16:], salt)
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	return b
}

var (
	errHeader  = errors.New("damaged file header")
	errVersion = errors.New("unsupported format version")
)

func getFileHeader(b []byte, seq uint64) (salt uint32, err error) {
	if len(b) < fileHeaderSize || string(b[:4]) != fileMagic {
		return 0, errHeader
	}
	if v := b[4]; v != fileVersion {
		b[4] = fileVersion
		sum := crc32.Checksum(b[:20], castagnoli)
		if b[4] = v; binary.LittleEndian.Uint32(b[20:]) == sum {
			return 0, errHeader // it was ours: the byte itself is damaged
		}
		return 0, errVersion
	}
	if binary.LittleEndian.Uint32(b[20:]) != crc32.Checksum(b[:20], castagnoli) ||
		binary.LittleEndian.Uint64(b[8:]) != seq {
		return 0, errHeader
	}
	return binary.LittleEndian.Uint32(b[16:]), nil
}
