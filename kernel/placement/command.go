package placement

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// Commands: the first byte of a command section's body. Their fields are in
// docs/formats/entry.md.
const (
	cmdBarrier          = 1 // nothing: it shows that all before it is applied
	cmdCreatePartitions = 2
	cmdDropTopic        = 3
	cmdSetRetention     = 4
	cmdCreateGroup      = 5
	cmdSetOwner         = 6
	cmdDropGroup        = 7
	cmdPut              = 8
	cmdSeal             = 9
	cmdCreateLimited    = 10
	cmdSetLimits        = 11
	cmdDropEmpty        = 12 // drop topic, unless something has come to it
	cmdMerge            = 15

	cmdRelease = 20 // numbers of a session may be used again
	cmdPins    = 21 // changes of pins
	cmdForget  = 24 // all that is kept of a session's numbers goes
	cmdPutUpTo = 25 // put, whose deletions may have a condition

	cmdCreatePlaced = 26 // create group, with the offsets at which it begins
)

// What a command may hold. Larger numbers are refused before they are logged.
const (
	maxPartitions = 1 << 16 // in one topic
	maxName       = 1 << 12 // bytes of a tenant, group or topic name
)

func barrierCommand() []byte { return []byte{cmdBarrier} }

func sealCommand() []byte { return []byte{cmdSeal} }

// The first byte of a retention.
const (
	retainDelete = 1
	retainBytes  = 2 // a bound in bytes follows
	retainIDs    = 4 // how long ids are remembered follows
)

func appendRetention(dst []byte, r kernel.Retention) []byte {
	flags := byte(0)
	if r.Delete {
		flags |= retainDelete
	}
	if r.Bytes > 0 {
		flags |= retainBytes
	}
	if r.Dedup != 0 {
		flags |= retainIDs
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(max(r.Age, 0)))
	if r.Bytes > 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Bytes))
	}
	if r.Dedup != 0 {
		dst = binary.AppendUvarint(dst, uint64(max(r.Dedup, 0)))
	}
	return dst
}

func (d *decoder) retention() kernel.Retention {
	flags := d.byte()
	if flags > retainDelete|retainBytes|retainIDs {
		d.fail("retention")
	}
	r := kernel.Retention{Delete: flags&retainDelete != 0, Age: time.Duration(d.offset())}
	if flags&retainBytes != 0 {
		r.Bytes = d.offset()
	}
	if flags&retainIDs != 0 {
		if r.Dedup = time.Duration(d.offset()); r.Dedup == 0 {
			r.Dedup = -1 // off; what is not said is the default
		}
	}
	return r
}

func (d *decoder) topicID() (id kernel.TopicID) {
	if len(d.b) < len(id) {
		d.fail("truncated")
		return id
	}
	copy(id[:], d.b)
	d.b = d.b[len(id):]
	return id
}

func createPartitionsCommand(topic kernel.TopicID, specs []PartitionSpec, revision uint64) []byte {
	b := append([]byte{cmdCreatePartitions}, topic[:]...)
	b = binary.AppendUvarint(b, revision)
	b = binary.AppendUvarint(b, uint64(len(specs)))
	for _, s := range specs {
		b = binary.AppendUvarint(b, uint64(s.Index))
		b = appendRetention(b, s.Retention)
	}
	return b
}

func topicCommand(kind byte, topic kernel.TopicID, revision uint64) []byte {
	b := append([]byte{kind}, topic[:]...)
	return binary.AppendUvarint(b, revision)
}

func setRetentionCommand(topic kernel.TopicID, r kernel.Retention, revision uint64) []byte {
	return appendRetention(topicCommand(cmdSetRetention, topic, revision), r)
}

func createGroupCommand(spec GroupSpec, revision uint64) []byte {
	b := binary.AppendUvarint([]byte{cmdCreateGroup}, revision)
	return appendGroupSpec(b, spec)
}

func appendGroupSpec(b []byte, s GroupSpec) []byte {
	b = append(b, s.Topic[:]...)
	b = append(b, byte(s.Address.Kind))
	b = appendString(b, s.Address.Tenant)
	b = appendString(b, s.Address.Group)
	b = appendString(b, s.Address.Topic)
	b = appendBool(b, s.Owner)
	b = appendBool(b, s.FromStart)
	b = binary.AppendUvarint(b, uint64(s.FailedLimit))
	b = binary.AppendUvarint(b, uint64(s.AcquiredLimit))
	return binary.AppendUvarint(b, uint64(s.MaxAcquired))
}

func (d *decoder) groupSpec() (s GroupSpec) {
	s.Topic = d.topicID()
	s.Address.Kind = kernel.TopicKind(d.byte())
	s.Address.Tenant, s.Address.Group, s.Address.Topic = d.string(), d.string(), d.string()
	s.Owner, s.FromStart = d.bool(), d.bool()
	s.FailedLimit, s.AcquiredLimit, s.MaxAcquired = d.int(math.MaxInt32), d.int(math.MaxInt32), d.int(math.MaxInt32)
	return s
}

func setOwnerCommand(id GroupID, owner bool) []byte {
	return appendBool(binary.AppendUvarint([]byte{cmdSetOwner}, uint64(id)), owner)
}

func dropGroupCommand(id GroupID, revision uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint([]byte{cmdDropGroup}, uint64(id)), revision)
}

// What follows a key of a put: nothing more for a deletion, else the value or the
// highest index that a deletion is for.
const (
	putDelete     = 0
	putValue      = 1
	putDeleteUpTo = 2 // in cmdPutUpTo only
)

// putCommand writes down keyed writes.
func putCommand(entries []KV) []byte {
	b := binary.AppendUvarint([]byte{cmdPut}, uint64(len(entries)))
	for _, e := range entries {
		b = appendBytes(b, e.Key)
		switch {
		case e.Value != nil:
			b = appendBytes(append(b, putValue), e.Value)
		case e.UpTo > 0:
			b[0] = cmdPutUpTo
			b = binary.AppendUvarint(append(b, putDeleteUpTo), e.UpTo)
		default:
			b = append(b, putDelete)
		}
	}
	return b
}

// decodePuts reads what putCommand wrote after the kind byte.
func decodePuts(b []byte) ([]KV, error) {
	d := decoder{b: b}
	n := d.count(2)
	entries := make([]KV, 0, min(n, 1024))
	for ; n > 0 && d.err == nil; n-- {
		e := KV{Key: d.bytes()}
		switch d.byte() {
		case putDelete:
		case putValue:
			e.Value = d.bytes()
		case putDeleteUpTo:
			e.UpTo = d.uvarint()
		default:
			d.fail("mark of a put")
		}
		entries = append(entries, e)
	}
	return entries, d.err
}

// applyCommand applies one command. Every command may be applied again: the
// second time it changes nothing and gives the same result.
func (m *machine) applyCommand(body []byte) error {
	d := &decoder{b: body}
	var res commandResult
	switch kind := d.byte(); kind {
	case cmdBarrier:
	case cmdCreatePartitions:
		res = m.createPartitions(d)
	case cmdDropTopic:
		id := d.topicID()
		if d.uvarint(); d.err == nil {
			m.dropTopic(id)
		}
	case cmdDropEmpty:
		res = m.dropEmpty(d)
	case cmdSetRetention:
		res = m.setRetention(d)
	case cmdCreateGroup:
		res = m.createGroup(d)
	case cmdSetOwner:
		res = m.setOwner(d)
	case cmdDropGroup:
		id := GroupID(d.uvarint())
		if d.uvarint(); d.err == nil {
			m.dropGroup(id)
		}
	case cmdCreateLimited:
		revision, spec := d.uvarint(), d.groupSpec()
		spec.Limits = d.limits()
		res = m.makeGroup(d, spec, nil, revision)
	case cmdCreatePlaced:
		res = m.createPlaced(d)
	case cmdSetLimits:
		res = m.setLimits(d)
	case cmdRelease:
		m.release(d)
	case cmdPins:
		m.applyPins(d)
	case cmdForget:
		m.forget(d.string())
	case cmdPut, cmdPutUpTo:
		m.writeKeyed(d.b)
	case cmdMerge:
		m.merge(d)
	case cmdSeal:
		if m.sealDue = !midSeal; midSeal {
			m.seal()
		}
	default:
		d.fail(fmt.Sprintf("command kind %d", kind))
	}
	if d.err == nil {
		m.answer(res)
	}
	return d.err
}

func (m *machine) createPartitions(d *decoder) (res commandResult) {
	id, revision := d.topicID(), d.uvarint()
	n := d.count(3)
	specs := make([]PartitionSpec, 0, n)
	for ; n > 0 && d.err == nil; n-- {
		specs = append(specs, PartitionSpec{Index: int32(d.int(math.MaxInt32)), Retention: m.present.retention(id, d.retention())})
	}
	if d.err != nil {
		return res
	}
	t := m.topics[id]
	if t == nil {
		t = &topic{id: id, shard: m.shards[uint64(m.nextPartition)%uint64(len(m.shards))]}
	}
	m.table.mu.Lock()
	defer m.table.mu.Unlock()
	m.topics[id] = t
	t.revision = max(t.revision, revision)
	for _, s := range specs {
		p := t.part(s.Index)
		if p == nil {
			p = m.addPartition(t, m.nextPartition, s)
			m.nextPartition++
			m.addWindows(p)
			t.measure(m.time)
		}
		res.ids = append(res.ids, uint64(p.id))
	}
	return res
}

// addPartition makes a partition that begins at 0. The caller holds the
// table's lock.
func (m *machine) addPartition(t *topic, id PartitionID, s PartitionSpec) *partition {
	lp, err := m.log.Create(uint64(id), 0)
	if err != nil {
		lp = m.log.Partition(uint64(id)) // restored from the checkpoint's manifest
	}
	p := &partition{id: id, index: s.Index, topic: t, log: lp, retention: s.Retention}
	p.cut.retention = s.Retention
	m.parts[id] = p
	i, _ := slices.BinarySearchFunc(t.parts, s.Index, func(p *partition, x int32) int { return cmp.Compare(p.index, x) })
	t.parts = slices.Insert(t.parts, i, p)
	m.tell(t.shard, event{kind: evPartition, part: p})
	return p
}

// addWindows gives the groups of a topic their windows on a new partition.
func (m *machine) addWindows(p *partition) {
	for _, g := range p.topic.groups {
		m.addWindow(g, p, sharegroup.New(p.log.Start()))
	}
}

// addWindow gives a group its window on a partition. Until the shard knows
// better, what is not settled counts as ready.
func (m *machine) addWindow(g *share, p *partition, w *sharegroup.Window) {
	end := p.log.End()
	g.stat.ready.Add(w.Unsettled(end))
	g.stat.seen.Store(max(g.stat.seen.Load(), 0) + end)
	m.tell(p.topic.shard, event{kind: evWindow, share: g, part: p, window: w})
}

func (m *machine) dropTopic(id kernel.TopicID) {
	t := m.topics[id]
	if t == nil {
		return
	}
	m.table.mu.Lock()
	delete(m.topics, id)
	gone := make(map[PartitionID]bool, len(t.parts))
	for _, p := range t.parts {
		gone[p.id] = true
		delete(m.parts, p.id)
	}
	for _, g := range t.groups {
		m.dropPins(g)
		delete(m.groups, g.id)
		delete(m.names, groupName{id, g.spec.Address})
	}
	groups := t.groups
	t.groups = nil
	m.table.mu.Unlock()
	m.producers.drop(gone)
	for _, p := range t.parts {
		m.ids.drop(p)
		m.log.Drop(uint64(p.id))
		m.prop.forget(p.id)
	}
	for _, g := range groups {
		m.tell(t.shard, event{kind: evDropped, share: g})
	}
	m.tell(t.shard, event{kind: evTopicDropped, topic: t})
}

func (m *machine) setRetention(d *decoder) (res commandResult) {
	id, revision := d.topicID(), d.uvarint()
	r := m.present.retention(id, d.retention())
	t := m.topics[id]
	if d.err != nil {
		return res
	}
	if t == nil {
		res.err = kernel.Errorf(kernel.CodeNotFound, "topic", id.String(), "it is not in the placement group")
		return res
	}
	if revision < t.revision {
		return res // overtaken by a later command
	}
	m.table.mu.Lock()
	defer m.table.mu.Unlock()
	t.revision = revision
	for _, p := range t.parts {
		if end := p.log.End(); p.retention.Age == 0 && r.Age > 0 && end > p.log.Start() {
			p.age.append(m.time, end, r.Age) // when they came is not known: it counts from now
		}
		p.retention = r
		m.tell(t.shard, event{kind: evRetention, part: p, retention: r})
	}
	return res
}

func (m *machine) createGroup(d *decoder) (res commandResult) {
	revision, spec := d.uvarint(), d.groupSpec()
	return m.makeGroup(d, spec, nil, revision)
}

// makeGroup makes a group that begins at offsets, if there are any, else as spec
// says.
func (m *machine) makeGroup(d *decoder, spec GroupSpec, offsets map[int32]int64, revision uint64) (res commandResult) {
	t := m.topics[spec.Topic]
	if d.err != nil {
		return res
	}
	if t == nil {
		res.err = noTopic(spec.Address.Topic)
		return res
	}
	if g := m.names[groupName{spec.Topic, spec.Address}]; g != nil {
		return commandResult{ids: []uint64{uint64(g.id)}}
	}
	m.table.mu.Lock()
	defer m.table.mu.Unlock()
	g := m.addGroup(t, m.nextGroup, spec, revision)
	m.nextGroup++
	for _, p := range t.parts {
		start := p.log.End()
		if spec.FromStart {
			start = p.log.Start()
		}
		if at, ok := offsets[p.index]; ok { // the log may have been cut since
			start = min(max(at, p.log.Start()), p.log.End())
		}
		m.addWindow(g, p, sharegroup.New(start))
	}
	g.limited = revision
	t.measure(m.time)
	return commandResult{ids: []uint64{uint64(g.id)}}
}

// addGroup makes a share group without windows. The caller holds the table's
// lock.
func (m *machine) addGroup(t *topic, id GroupID, spec GroupSpec, revision uint64) *share {
	g := newShare(id, t, spec, revision)
	m.groups[id] = g
	m.names[groupName{t.id, spec.Address}] = g
	t.groups = addShare(t.groups, g)
	m.tell(t.shard, event{kind: evGroup, share: g})
	return g
}

func (m *machine) setOwner(d *decoder) (res commandResult) {
	id, owner := GroupID(d.uvarint()), d.bool()
	if d.err != nil {
		return res
	}
	g := m.groups[id]
	if g == nil {
		res.err = noGroup(id)
		return res
	}
	m.table.mu.Lock()
	g.spec.Owner = owner
	m.table.mu.Unlock()
	m.tell(g.topic.shard, event{kind: evOwner, share: g, on: owner})
	return res
}

func (m *machine) dropGroup(id GroupID) {
	g := m.groups[id]
	if g == nil {
		return
	}
	m.dropPins(g)
	m.table.mu.Lock()
	delete(m.groups, id)
	delete(m.names, groupName{g.topic.id, g.spec.Address})
	g.topic.groups = removeShare(g.topic.groups, g)
	m.table.mu.Unlock()
	g.topic.measure(m.time)
	m.tell(g.topic.shard, event{kind: evDropped, share: g})
}
