package placement

import (
	"encoding/binary"
	"math"

	"github.com/trivium-mq/trivium/storage/record"
)

// Bounds of what is remembered of idempotent producers.
const (
	producerBatches = 5       // last batches of each, as many as a client has in flight
	producersMax    = 1 << 16 // in a placement group; the one idle longest is forgotten
)

type producerKey struct {
	partition PartitionID
	id        int64
}

// sequence is one batch that a producer has written.
type sequence struct {
	first, last int32
	base        int64 // its offset
}

// producer is what a partition knows of an idempotent producer (Kafka's
// ProducerStateManager; KIP-98, KIP-360).
type producer struct {
	producerKey
	epoch      int16
	batches    []sequence // oldest first, at most producerBatches
	prev, next *producer  // ring by time of last use
}

// producers remembers idempotent producers. It is part of the machine's state,
// so that every replica recognises the same duplicates.
type producers struct {
	byKey map[producerKey]*producer
	ring  producer // root: next was used last
}

func (ps *producers) init() {
	ps.byKey = make(map[producerKey]*producer)
	ps.ring.prev, ps.ring.next = &ps.ring, &ps.ring
}

// check decides on a batch that is about to be appended to a partition whose
// end is given: duplicate with the offset of the first, or err; otherwise it
// is to be appended at end, and is noted.
func (ps *producers) check(part PartitionID, batch []byte, end int64) (base int64, duplicate bool, err error) {
	key := producerKey{part, record.ProducerID(batch)}
	epoch, first := record.ProducerEpoch(batch), record.BaseSequence(batch)
	seq := sequence{first, addSequence(first, record.LastOffsetDelta(batch)), end}
	p := ps.byKey[key]
	switch {
	case p == nil:
		if end == 0 && first != 0 {
			return 0, false, errGap // KAFKA-15591: nothing can have gone before
		}
		p = ps.add(key)
	case epoch < p.epoch:
		return 0, false, errFenced
	case epoch > p.epoch:
		if first != 0 {
			return 0, false, errGap
		}
		p.batches = p.batches[:0]
	default:
		for _, s := range p.batches {
			if s.first == seq.first && s.last == seq.last {
				ps.touch(p)
				return s.base, true, nil
			}
		}
		if n := len(p.batches); n > 0 && first != addSequence(p.batches[n-1].last, 1) {
			return 0, false, errGap
		}
	}
	p.epoch = epoch
	if len(p.batches) == producerBatches {
		p.batches = append(p.batches[:0], p.batches[1:]...)
	}
	p.batches = append(p.batches, seq)
	ps.touch(p)
	return end, false, nil
}

// addSequence adds to a sequence number, which wraps at 2^31.
func addSequence(s, n int32) int32 { return int32((int64(s) + int64(n)) & math.MaxInt32) }

func (ps *producers) add(key producerKey) *producer {
	if len(ps.byKey) >= producersMax {
		ps.remove(ps.ring.prev)
	}
	p := &producer{producerKey: key}
	p.prev, p.next = p, p
	ps.byKey[key] = p
	return p
}

func (ps *producers) unlink(p *producer) { p.prev.next, p.next.prev = p.next, p.prev }

// touch makes p the one used last.
func (ps *producers) touch(p *producer) {
	ps.unlink(p)
	p.prev, p.next = &ps.ring, ps.ring.next
	p.prev.next, p.next.prev = p, p
}

func (ps *producers) remove(p *producer) {
	ps.unlink(p)
	delete(ps.byKey, p.producerKey)
}

// drop forgets the producers of partitions.
func (ps *producers) drop(gone map[PartitionID]bool) {
	for p := ps.ring.next; p != &ps.ring; {
		next := p.next
		if gone[p.partition] {
			ps.remove(p)
		}
		p = next
	}
}

// appendTo encodes all, the one idle longest first.
func (ps *producers) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ps.byKey)))
	for p := ps.ring.prev; p != &ps.ring; p = p.prev {
		dst = binary.AppendUvarint(dst, uint64(p.partition))
		dst = binary.AppendVarint(dst, p.id)
		dst = binary.AppendVarint(dst, int64(p.epoch))
		dst = binary.AppendUvarint(dst, uint64(len(p.batches)))
		for _, s := range p.batches {
			dst = binary.AppendVarint(dst, int64(s.first))
			dst = binary.AppendVarint(dst, int64(s.last))
			dst = binary.AppendUvarint(dst, uint64(s.base))
		}
	}
	return dst
}

func (ps *producers) decode(d *decoder) {
	for n := d.int(producersMax); n > 0 && d.err == nil; n-- {
		p := ps.add(producerKey{PartitionID(d.uvarint()), d.varint()})
		p.epoch = int16(d.varint())
		for k := d.int(producerBatches); k > 0 && d.err == nil; k-- {
			p.batches = append(p.batches, sequence{int32(d.varint()), int32(d.varint()), d.offset()})
		}
		ps.touch(p)
	}
}
