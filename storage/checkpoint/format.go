package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The layout of a file is in docs/formats/checkpoint.md. All integers are
// little-endian.
const (
	magic      = "TRVC"
	endMagic   = "TRVE"
	version    = 1
	headerSize = 48
	footerSize = 16

	// maxConfiguration bounds the configuration before it is allocated.
	maxConfiguration = 1 << 20
)

var (
	// ErrNone is returned when there is no checkpoint.
	ErrNone = errors.New("checkpoint: none")

	// ErrCorrupt is returned when a file fails its checks.
	ErrCorrupt = errors.New("checkpoint: damaged file")

	// ErrVersion is returned for a file that a newer (or unknown) version of
	// this program wrote. It is never skipped: falling back to an older
	// checkpoint would lose state that is there.
	ErrVersion = errors.New("checkpoint: unsupported format version")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeHeader returns the header and the configuration behind it.
func encodeHeader(m Meta) []byte {
	b := make([]byte, headerSize, headerSize+len(m.Configuration))
	copy(b, magic)
	b[4] = version
	binary.LittleEndian.PutUint64(b[8:], m.Index)
	binary.LittleEndian.PutUint64(b[16:], m.Term)
	binary.LittleEndian.PutUint64(b[24:], m.ConfigurationIndex)
	binary.LittleEndian.PutUint32(b[32:], uint32(len(m.Configuration)))
	b = append(b, m.Configuration...)
	binary.LittleEndian.PutUint32(b[headerSize-4:], headerSum(b))
	return b
}

// headerSum covers the header, its own four bytes left out, and what follows.
func headerSum(b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:headerSize-4])
	return crc32.Update(sum, castagnoli, b[headerSize:])
}

// decodeFixed reads the fixed part of the header. The sum is not yet checked:
// it covers the configuration too, whose length is returned.
func decodeFixed(b []byte) (m Meta, configuration int, err error) {
	if len(b) < headerSize || string(b[:4]) != magic {
		return m, 0, fmt.Errorf("%w: no header", ErrCorrupt)
	}
	if b[4] != version {
		return m, 0, fmt.Errorf("%w %d", ErrVersion, b[4])
	}
	n := binary.LittleEndian.Uint32(b[32:])
	if n > maxConfiguration {
		return m, 0, fmt.Errorf("%w: configuration of %d bytes", ErrCorrupt, n)
	}
	m.Index = binary.LittleEndian.Uint64(b[8:])
	m.Term = binary.LittleEndian.Uint64(b[16:])
	m.ConfigurationIndex = binary.LittleEndian.Uint64(b[24:])
	return m, int(n), nil
}

func encodeFooter(payload int64, sum uint32) []byte {
	b := make([]byte, footerSize)
	binary.LittleEndian.PutUint64(b, uint64(payload))
	binary.LittleEndian.PutUint32(b[8:], sum)
	copy(b[12:], endMagic)
	return b
}

func decodeFooter(b []byte) (payload int64, sum uint32, err error) {
	if len(b) != footerSize || string(b[12:]) != endMagic {
		return 0, 0, fmt.Errorf("%w: no footer", ErrCorrupt)
	}
	return int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:]), nil
}
