package placement

import (
	"encoding/binary"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// frozen is the machine's tables as of one place in the log. To copy them takes a
// fraction of what their encoding does, and nothing is applied meanwhile: with
// 100,000 topics the encoding took publishers most of a second.
type frozen struct {
	head   []byte // encoded: what comes before the topics
	topics []frozenTopic
	parts  []frozenPart // of the topics, one after the other
	groups []frozenGroup
	ages   []byte // encoded, of the parts
	tail   []byte // encoded: what comes after the topics
	ids    []frozenIDs
}

type frozenTopic struct {
	id           kernel.TopicID
	revision     uint64
	part, group  int // of them, the first
	parts, count int // how many parts and groups
}

type frozenPart struct {
	id        PartitionID
	index     int32
	age       int // end in ages, which begins at that of the part before
	retention kernel.Retention
}

type frozenGroup struct {
	share    *share // of whose spec only Owner and Limits ever change
	revision uint64
	owner    bool
}

// spec is the spec of the group as it was, but for its limits.
func (g *frozenGroup) spec() GroupSpec {
	s := &g.share.spec
	return GroupSpec{
		Address: s.Address, Topic: s.Topic, Owner: g.owner, FromStart: s.FromStart,
		FailedLimit: s.FailedLimit, AcquiredLimit: s.AcquiredLimit, MaxAcquired: s.MaxAcquired,
	}
}

// freeze copies the tables. The machine's own goroutine calls it.
func (m *machine) freeze() *frozen {
	f := &frozen{
		topics: make([]frozenTopic, 0, len(m.topics)),
		parts:  make([]frozenPart, 0, len(m.parts)),
		groups: make([]frozenGroup, 0, len(m.groups)),
		ages:   make([]byte, 0, 4*len(m.parts)),
	}
	f.head = binary.AppendVarint(f.head, m.time)
	f.head = binary.AppendUvarint(f.head, uint64(m.nextPartition))
	f.head = binary.AppendUvarint(f.head, uint64(m.nextGroup))
	var limited []*share
	var timed []*partition
	for _, t := range m.topics { // once: with 100,000 it is what publishers wait for
		f.topics = append(f.topics, frozenTopic{t.id, t.revision, len(f.parts), len(f.groups), len(t.parts), len(t.groups)})
		for _, p := range t.parts {
			f.ages = p.age.appendTo(f.ages)
			f.parts = append(f.parts, frozenPart{p.id, p.index, len(f.ages), p.retention})
			if p.arrivals.on || p.expiring > 0 {
				timed = append(timed, p)
			}
		}
		for _, g := range t.groups {
			f.groups = append(f.groups, frozenGroup{g, g.revision, g.spec.Owner})
			if g.spec.Limits != nil {
				limited = append(limited, g)
			}
		}
	}
	f.tail = m.producers.appendTo(f.tail)
	f.tail = appendBytes(append(f.tail, partLimits), appendTimes(appendAllLimits(nil, limited), timed))
	f.tail = appendBytes(append(f.tail, partLedgers), m.ledgers.appendTo(nil))
	f.tail = appendBytes(append(f.tail, partPins), m.ledgers.appendPins(nil))
	f.ids = m.ids.freeze()
	return f
}

// appendTo encodes the tables; equal machines give equal bytes. It is for one
// goroutine at a time, any.
func (f *frozen) appendTo(b []byte) []byte {
	slices.SortFunc(f.topics, func(a, b frozenTopic) int { return slices.Compare(a.id[:], b.id[:]) })
	b = slices.Grow(b, f.size())
	b = append(b, f.head...)
	b = binary.AppendUvarint(b, uint64(len(f.topics)))
	for i := range f.topics {
		b = f.appendTopic(b, &f.topics[i])
	}
	b = append(b, f.tail...)
	if len(f.ids) > 0 {
		b = appendBytes(append(b, partIDs), appendIDs(nil, f.ids))
	}
	return b
}

// size is about how many bytes appendTo needs, rather more: to grow a large slice
// bit by bit makes several times as much garbage.
func (f *frozen) size() int {
	n := len(f.head) + len(f.ages) + len(f.tail) + 32*len(f.topics) + 32*len(f.parts) + 48*len(f.groups)
	for i := range f.groups {
		a := &f.groups[i].share.spec.Address
		n += len(a.Tenant) + len(a.Group) + len(a.Topic)
	}
	return n
}

func (f *frozen) appendTopic(b []byte, t *frozenTopic) []byte {
	b = append(b, t.id[:]...)
	b = binary.AppendUvarint(b, t.revision)
	b = binary.AppendUvarint(b, uint64(t.parts))
	for i := t.part; i < t.part+t.parts; i++ {
		p, age := &f.parts[i], 0
		if i > 0 {
			age = f.parts[i-1].age
		}
		b = binary.AppendUvarint(b, uint64(p.id))
		b = binary.AppendUvarint(b, uint64(p.index))
		b = appendRetention(b, p.retention)
		b = append(b, f.ages[age:p.age]...)
	}
	b = binary.AppendUvarint(b, uint64(t.count))
	for i := t.group; i < t.group+t.count; i++ {
		g := &f.groups[i]
		b = binary.AppendUvarint(b, uint64(g.share.id))
		b = binary.AppendUvarint(b, g.revision)
		b = appendGroupSpec(b, g.spec())
	}
	return b
}
