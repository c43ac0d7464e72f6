package placement

import (
	"encoding/binary"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// frozenIDs are the ids of one partition as of one place in the log. The chunks are
// shared with the machine, which does not change what is in them.
type frozenIDs struct {
	part   PartitionID
	chunks [][]notedID
	head   int
	len    int
}

// freeze notes what is remembered, the partition that is swept next first. It takes
// no longer for long windows than their number of chunks.
func (x *idWindows) freeze() []frozenIDs {
	var list []frozenIDs
	for w := x.ring.next; w != &x.ring; w = w.next {
		list = append(list, frozenIDs{w.part.id, slices.Clone(w.chunks), w.head, w.len})
	}
	return list
}

// appendIDs encodes what freeze has noted.
func appendIDs(b []byte, list []frozenIDs) []byte {
	n := binary.MaxVarintLen64
	for i := range list {
		n += 3*binary.MaxVarintLen64 + (len(kernel.DedupID{})+2)*list[i].len
	}
	b = binary.AppendUvarint(slices.Grow(b, n), uint64(len(list)))
	for i := range list {
		b = list[i].appendTo(b)
	}
	return b
}

func (f *frozenIDs) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.part))
	b = binary.AppendUvarint(b, uint64(f.len))
	head, last := f.head, int64(0)
	for _, chunk := range f.chunks {
		for _, n := range chunk[head:] {
			b = append(b, n.id[:]...)
			b = binary.AppendUvarint(b, uint64(n.time-last))
			last = n.time
		}
		head = 0
	}
	return b
}

// decodeIDs reads what appendIDs wrote.
func (m *machine) decodeIDs(d *decoder) {
	for n := d.count(3); n > 0 && d.err == nil; n-- {
		p, count := m.parts[PartitionID(d.uvarint())], d.count(len(kernel.DedupID{})+1)
		if p == nil || p.ids != nil || count == 0 {
			d.fail("ids of a partition that is not there")
			return
		}
		w := m.ids.open(p)
		for last := int64(0); count > 0 && d.err == nil; count-- {
			id := d.dedupID()
			last += d.offset()
			w.note(notedID{id, last})
			m.ids.len++
		}
	}
}

// appendIDSection says which id the batch that follows has.
func appendIDSection(dst []byte, id kernel.DedupID) []byte {
	return append(append(dst, sectionID), id[:]...)
}

// idSize is what appendIDSection adds.
const idSize = 1 + len(kernel.DedupID{})

func (d *decoder) dedupID() (id kernel.DedupID) {
	if len(d.b) < len(id) {
		d.fail("truncated")
		return id
	}
	copy(id[:], d.b)
	d.b = d.b[len(id):]
	return id
}

// lacking returns the targets of a set that do not have the message with an id, as far as
// has been applied. What they have is durable.
func (m *machine) lacking(set *TargetSet, id kernel.DedupID, now int64) (missing []PartitionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now = max(now, m.time)
	for _, part := range set.parts {
		p := m.parts[part]
		if p == nil || p.idsKept() == 0 || !p.ids.has(id, now-p.idsKept()) {
			missing = append(missing, part)
		}
	}
	return missing
}
