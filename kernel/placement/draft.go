package placement

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// TargetSet is a set of partitions that a record is written to once.
type TargetSet struct {
	parts []PartitionID
	// For the proposer, under its mutex.
	tails []*tail
	batch *batch // opened last for this set
}

// Partitions returns the partitions of the set. The caller does not change
// the slice.
func (s *TargetSet) Partitions() []PartitionID { return s.parts }

// tail is the newest batch of a partition in the open draft: a record may only
// join a batch that is the newest of all its partitions, so that the order
// per partition is the order of arrival.
type tail struct {
	newest *batch
	gates  []*brim // of groups that refuse publishes when full
}

// batch is one batch of a draft.
type batch struct {
	builder record.Builder
	raw     []byte // a ready batch instead, if not empty
	targets []PartitionID
	set     *TargetSet // whose records may join; nil for a ready batch
	draft   *draft
	index   int32       // in the draft
	once    kernel.Once // what it is stored once for, if that is not zero
	kept    int         // bytes it holds while it waits for reuse

	expiring bool // a record has an expiry of its own
}

// draft is an entry that is being gathered. It belongs to the proposer.
type draft struct {
	batches  []*batch
	trims    []byte // trim sections
	settles  []byte // settlement sections
	commands [][]byte
	size     int  // bytes of the entry so far, roughly
	urgent   bool // holds something that waits for its commit
	flight   *flight
}

func (d *draft) empty() bool {
	return len(d.batches) == 0 && len(d.trims) == 0 && len(d.settles) == 0 && len(d.commands) == 0
}

// open adds a batch for a set.
func (d *draft) open(set *TargetSet, b *batch) *batch {
	b.set, b.targets, b.draft, b.index = set, set.parts, d, int32(len(d.batches))
	b.builder.Reset()
	b.builder.SetAttributes(record.AttrOwn)
	b.expiring = false
	b.raw, b.once = b.raw[:0], kernel.Once{}
	d.batches = append(d.batches, b)
	d.size += batchSectionSize(len(set.parts), record.HeaderSize)
	set.batch = b
	for _, t := range set.tails {
		t.newest = b
	}
	return b
}

// joinable returns the batch of set that the next record may join, or nil.
func (d *draft) joinable(set *TargetSet) *batch {
	b := set.batch
	if b == nil || b.set != set || b.draft != d {
		return nil
	}
	for _, t := range set.tails {
		if t.newest != b {
			return nil
		}
	}
	return b
}

// expires marks a batch that gets a record with an expiry of its own.
func (b *batch) expires(r *kernel.Record) {
	if b.expiring {
		return
	}
	for i := range r.Headers {
		if r.Headers[i].Key == kernel.HeaderExpiresAt {
			b.expiring = true
			b.builder.SetAttributes(record.AttrOwn | record.AttrExpiring)
			return
		}
	}
}

// owe notes that a completion is owed for a record of b.
func (d *draft) owe(done kernel.Completion, token uint64, b *batch, delta int32) {
	if done != nil {
		d.flight.pend = append(d.flight.pend, pending{done, token, b.index, delta})
	}
}

// encode makes the entry. The slice is new: the log keeps it.
func (d *draft) encode(h header) []byte {
	size := headerSize + len(d.trims) + len(d.settles)
	for _, b := range d.batches {
		size += batchSectionSize(len(b.targets), b.size())
		size += onceSize(&b.once)
	}
	for _, c := range d.commands {
		size += 1 + 5 + len(c)
	}
	data := h.append(make([]byte, 0, size))
	for _, b := range d.batches {
		if b.once.Session != "" {
			data = appendOnceSection(data, &b.once)
		}
		if b.once.ID != (kernel.DedupID{}) {
			data = appendIDSection(data, b.once.ID)
		}
		data = appendBatchSection(data, b.targets, b.bytes())
	}
	data = append(data, d.trims...) // before moves of windows, which the settlements may have
	data = append(data, d.settles...)
	for _, c := range d.commands {
		data = appendCommandSection(data, c)
	}
	return data
}

func (b *batch) size() int {
	if len(b.raw) > 0 {
		return len(b.raw)
	}
	return b.builder.Size()
}

func (b *batch) bytes() []byte {
	if len(b.raw) > 0 {
		return b.raw
	}
	return b.builder.Bytes()
}
