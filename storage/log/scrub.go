package log

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
)

// CheckPaced is Check that calls pace after every few hundred KiB, with how many bytes
// they were. An error of it ends the check, and is returned.
func (l *Log) CheckPaced(id uint64, pace func(bytes int) error) error {
	l.mu.RLock()
	at := slices.IndexFunc(l.segments, func(s *segmentFile) bool { return s.meta.ID == id })
	var meta SegmentMeta
	if at >= 0 {
		meta = l.segments[at].meta
	}
	l.mu.RUnlock()
	file, err := segment.Open(l.fs, l.path(id))
	if err != nil {
		return fmt.Errorf("log: check: %w", err)
	}
	err = file.VerifyPaced(pace)
	if err == nil && at >= 0 && (file.Checksum() != meta.Checksum || file.Size() != meta.Size) {
		err = fmt.Errorf("log: check %s: %w: another content than the manifest names", file.Name(), ErrDamaged)
	}
	return errors.Join(err, file.Close())
}

// Held is what a partition has in a segment.
type Held struct {
	Partition *Partition
	Base, End int64 // of the offsets, those of lost records included
}

// Holds lists what lives in a segment, in the order of the partitions.
func (l *Log) Holds(id uint64) []Held {
	l.mu.RLock()
	parts := make([]*Partition, 0, len(l.parts))
	for _, p := range l.parts {
		parts = append(parts, p)
	}
	l.mu.RUnlock()
	slices.SortFunc(parts, func(a, b *Partition) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	var out []Held
	for _, p := range parts {
		s := p.snapshot()
		for _, r := range s.runs {
			if r.seg.meta.ID == id {
				out = append(out, Held{p, max(r.Base, s.start), r.End})
			}
		}
	}
	return out
}

// scrubRead is how much is read at once.
const scrubRead = 256 << 10

// Damaged reads what is held and calls found for each part of it that cannot be read.
// pace is that of CheckPaced. What is trimmed away meanwhile is no damage.
func (h Held) Damaged(pace func(bytes int) error, found func(*Damage)) error {
	var buf []byte
	for at := h.Base; at < h.End; {
		data, err := h.Partition.Read(at, scrubRead, buf[:0])
		d, damaged := errors.AsType[*Damage](err)
		switch {
		case damaged:
			bad := *d
			bad.First = max(bad.First, at)
			bad.Last = max(bad.Last, at)
			found(&bad)
			at = bad.Last + 1
			continue
		case errors.Is(err, ErrOutOfRange):
			start := h.Partition.Start()
			if at >= start {
				return nil
			}
			at = start
			continue
		case errors.Is(err, ErrDropped) || errors.Is(err, ErrMissing):
			return nil
		case err != nil:
			return err
		case len(data) == 0:
			return nil
		}
		for rest := data; len(rest) > 0; {
			batch, more, err := record.Split(rest)
			if err != nil {
				return fmt.Errorf("log: scrub: %w", err)
			}
			at, rest = record.LastOffset(batch)+1, more
		}
		if buf = data; pace != nil {
			if err := pace(len(data)); err != nil {
				return err
			}
		}
	}
	return nil
}
