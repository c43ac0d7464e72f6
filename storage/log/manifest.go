package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ManifestVersion is the version byte of an encoded manifest.
const ManifestVersion = 1

// ErrManifest: bytes that are no manifest of a version we read.
var ErrManifest = errors.New("log: bad manifest")

// SegmentMeta names a segment file and its content.
type SegmentMeta struct {
	ID       uint64 // log index of the command that made it
	Size     int64  // bytes
	Checksum uint64 // XXH64, as segment.File.Checksum
}

// PartitionMeta is the bounds of a partition.
type PartitionMeta struct {
	ID         uint64
	Start, End int64
}

// Manifest is what a checkpoint says about the log as of one log index: all
// records below it that matter are in the segments. The partitions are sorted
// by number, the segments by content, oldest first.
type Manifest struct {
	Index      uint64
	Segments   []SegmentMeta
	Partitions []PartitionMeta
}

// Append encodes the manifest behind dst: version byte, index, then both
// lists with their counts, big endian (docs/formats/segment.md).
func (m *Manifest) Append(dst []byte) []byte {
	dst = append(dst, ManifestVersion)
	dst = binary.BigEndian.AppendUint64(dst, m.Index)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Segments)))
	for _, s := range m.Segments {
		dst = binary.BigEndian.AppendUint64(dst, s.ID)
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.Size))
		dst = binary.BigEndian.AppendUint64(dst, s.Checksum)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Partitions)))
	for _, p := range m.Partitions {
		dst = binary.BigEndian.AppendUint64(dst, p.ID)
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Start))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.End))
	}
	return dst
}

// manifestItem is the encoded size of a segment, and of a partition.
const manifestItem = 24

// DecodeManifest reads what Append wrote and returns the bytes after it.
// Counts are checked against the bytes that are there before anything is
// allocated.
func DecodeManifest(b []byte) (m *Manifest, rest []byte, err error) {
	if len(b) < 13 {
		return nil, nil, fmt.Errorf("%w: %d bytes", ErrManifest, len(b))
	}
	if b[0] != ManifestVersion {
		return nil, nil, fmt.Errorf("%w: version %d", ErrManifest, b[0])
	}
	m = &Manifest{Index: binary.BigEndian.Uint64(b[1:])}
	b = b[9:]
	items := func(add func(a, b, c uint64)) error {
		if len(b) < 4 {
			return fmt.Errorf("%w: cut", ErrManifest)
		}
		n := int64(binary.BigEndian.Uint32(b))
		b = b[4:]
		if n*manifestItem > int64(len(b)) {
			return fmt.Errorf("%w: %d items in %d bytes", ErrManifest, n, len(b))
		}
		for range n {
			add(binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]))
			b = b[manifestItem:]
		}
		return nil
	}
	err = items(func(id, size, sum uint64) { m.Segments = append(m.Segments, SegmentMeta{id, int64(size), sum}) })
	if err != nil {
		return nil, nil, err
	}
	err = items(func(id, start, end uint64) {
		m.Partitions = append(m.Partitions, PartitionMeta{id, int64(start), int64(end)})
	})
	if err != nil {
		return nil, nil, err
	}
	return m, b, m.check()
}

func (m *Manifest) check() error {
	for i, p := range m.Partitions {
		if p.Start < 0 || p.End < p.Start || p.End == math.MaxInt64 || i > 0 && p.ID <= m.Partitions[i-1].ID {
			return fmt.Errorf("%w: partition %d, [%d, %d)", ErrManifest, p.ID, p.Start, p.End)
		}
	}
	seen := make(map[uint64]bool, len(m.Segments))
	for _, s := range m.Segments {
		if seen[s.ID] || s.Size <= 0 {
			return fmt.Errorf("%w: segment %x", ErrManifest, s.ID)
		}
		seen[s.ID] = true
	}
	return nil
}

func sortPartitions(ps []PartitionMeta) {
	slices.SortFunc(ps, func(a, b PartitionMeta) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}
