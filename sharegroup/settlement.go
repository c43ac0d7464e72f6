package sharegroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Settlement is what a leader logs and every replica applies: the only thing
// that changes the durable layer, beside TrimTo. Counts and marks in it are
// absolute, so it may be proposed again as it is, and applied twice.
type Settlement struct {
	Term     uint64        // of the leader that made it
	Epoch    uint32        // number of seeks before it
	Seq      uint64        // ticket that Settle, Purge and the others gave for it
	ReadTo   int64         // offsets below may have been handed out
	Lowered  uint64        // number of times ReadTo was lowered, this one included; the first thing to compare
	Accepted []Span        // sorted, disjoint
	Archived []Span        // sorted, disjoint; may overlap Accepted
	Failed   []FailedCount // sorted by offset
	Seek     bool          // the settlement is a seek to SeekTo and nothing else
	SeekTo   int64
}

// FailedCount is how often a record has come back counted.
type FailedCount struct {
	Offset int64
	Count  uint16
}

// Empty says whether applying s could change nothing but readTo.
func (s *Settlement) Empty() bool {
	return len(s.Accepted)+len(s.Archived)+len(s.Failed) == 0 && !s.Seek
}

// reset empties s and keeps its memory.
func (s *Settlement) reset() {
	*s = Settlement{Accepted: s.Accepted[:0], Archived: s.Archived[:0], Failed: s.Failed[:0]}
}

// normalize brings lists gathered in arrival order into the order of offsets.
func (s *Settlement) normalize() {
	s.Accepted = normalize(s.Accepted)
	s.Archived = normalize(s.Archived)
	s.Failed = normalizeFailed(s.Failed)
}

// normalizeFailed sorts and keeps the highest count of each offset.
func normalizeFailed(list []FailedCount) []FailedCount {
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b FailedCount) int {
		if c := compare(a.Offset, b.Offset); c != 0 {
			return c
		}
		return int(b.Count) - int(a.Count)
	})
	return slices.CompactFunc(list, func(a, b FailedCount) bool { return a.Offset == b.Offset })
}

const settlementVersion = 2

// ErrFormat wraps every error of decoding a settlement or a snapshot.
var ErrFormat = errors.New("sharegroup: bad format")

// AppendTo appends the encoding of s: a version byte, then varints.
func (s *Settlement) AppendTo(dst []byte) []byte {
	dst = append(dst, settlementVersion)
	dst = binary.AppendUvarint(dst, s.Term)
	dst = binary.AppendUvarint(dst, uint64(s.Epoch))
	dst = binary.AppendUvarint(dst, s.Seq)
	dst = binary.AppendUvarint(dst, uint64(s.ReadTo))
	dst = binary.AppendUvarint(dst, s.Lowered)
	if s.Seek {
		dst = append(dst, 1)
		return binary.AppendUvarint(dst, uint64(s.SeekTo))
	}
	dst = append(dst, 0)
	dst = appendSpans(dst, 0, len(s.Accepted), s.Accepted)
	dst = appendSpans(dst, 0, len(s.Archived), s.Archived)
	return appendFailed(dst, 0, s.Failed)
}

// DecodeSettlement reads one settlement from the front of b into s, whose slices
// are reused, and returns the rest of b. Nothing of b is retained. What it
// allocates is bounded by len(b).
func DecodeSettlement(b []byte, s *Settlement) (rest []byte, err error) {
	s.reset()
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != settlementVersion {
		return nil, fmt.Errorf("%w: settlement version %d, want %d", ErrFormat, v, settlementVersion)
	}
	s.Term = r.uvarint()
	s.Epoch = r.uint32()
	s.Seq = r.uvarint()
	s.ReadTo = r.offset(0)
	s.Lowered = r.uvarint()
	switch kind := r.byte(); {
	case r.err != nil:
	case kind == 1:
		s.Seek, s.SeekTo = true, r.offset(0)
	case kind == 0:
		s.Accepted = r.spans(s.Accepted, 0)
		s.Archived = r.spans(s.Archived, 0)
		s.Failed = r.failed(s.Failed, 0)
	default:
		r.fail("settlement kind %d", kind)
	}
	if r.err != nil {
		s.reset()
		return nil, r.err
	}
	return r.b, nil
}
