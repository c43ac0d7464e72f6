package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// model is what a history knows to be true.
type model struct {
	h      *history
	parts  []PartitionID
	groups []*groupModel

	next      uint64           // token of the next publish
	sent      map[uint64]*sent // by token
	content   map[place]uint64 // token at an offset; never changes
	sequences map[PartitionID]int32
	retry     []*sent // batches of the producer whose outcome is unknown
	named     []*sent // messages with an id

	drops     int
	known     map[PartitionID]int64 // how far content goes
	puts      map[byte][]*put
	groupList []*groupModel
}

type place struct {
	part   PartitionID
	offset int64
}

// sent is one publish.
type sent struct {
	token     uint64
	publisher int // 0..2; 3 is the idempotent producer, 4 has ids
	parts     []PartitionID
	sequence  int32
	answered  bool
	result    kernel.Result
}

type put struct {
	value     byte
	done      <-chan commandResult
	confirmed bool
}

// groupModel is what is known of a share group.
type groupModel struct {
	id        GroupID
	owner     bool
	dying     bool           // what is refused or too old is dead-lettered, and settled only then
	delivered map[place]bool // ever
	held      map[place]*subscriber
	acked     map[place]bool // by its holder, ever
	now       map[place]bool // acked in this life
	settled   map[place]bool // durably, before the last crash
}

func (m *model) init(h *history) {
	m.h, m.sent, m.content = h, make(map[uint64]*sent), make(map[place]uint64)
	m.known = make(map[PartitionID]int64)
	m.puts, m.sequences = make(map[byte][]*put), make(map[PartitionID]int32)
}

func (m *model) addGroup(id GroupID, owner bool) *groupModel {
	for _, g := range m.groupList {
		if g.id == id {
			m.groups = append(m.groups, g)
			return g
		}
	}
	g := &groupModel{id: id, owner: owner, delivered: map[place]bool{}, held: map[place]*subscriber{},
		acked: map[place]bool{}, now: map[place]bool{}, settled: map[place]bool{}}
	m.groupList = append(m.groupList, g)
	m.groups = append(m.groups, g)
	return g
}

// Completed makes the model every publisher's completion.
func (m *model) Completed(token uint64, res kernel.Result) {
	s := m.sent[token]
	if s.answered {
		m.h.failf("publish %d is answered twice", token)
	}
	s.answered, s.result = true, res
	m.h.note(int(token), int(res.Offset), int(kernel.CodeOf(res.Err)))
}

func (m *model) Flush() {}

func (m *model) publish() {
	for n := 1 + m.h.rng.Intn(4); n > 0; n-- {
		set := m.h.sets[m.h.rng.Intn(len(m.h.sets))]
		if m.h.rng.Intn(4) == 0 {
			m.publishNamed(set.parts)
			continue
		}
		s := m.newSent(m.h.rng.Intn(3), set.parts)
		r := numbered(s.token)
		r.Key = make([]byte, m.h.rng.Intn(60))
		if err := m.h.g.Append(set, r, m, s.token); err != nil {
			s.answered, s.result = true, kernel.Result{Offset: -1, Err: err}
		}
	}
}

func (m *model) newSent(publisher int, parts []PartitionID) *sent {
	s := &sent{token: m.next, publisher: publisher, parts: parts}
	m.next++
	m.sent[s.token] = s
	return s
}

// publishBatch sends the next batch of an idempotent producer to one
// partition, or one whose outcome is unknown again.
func (m *model) publishBatch() {
	part := m.parts[0]
	open := 0
	for token := range m.next {
		if s := m.sent[token]; s.publisher == 3 && !s.answered && !slices.Contains(m.retry, s) {
			open++
		}
	}
	if open >= producerBatches {
		return // clients have no more in flight
	}
	var s *sent
	if len(m.retry) > 0 {
		s = m.retry[0]
		m.retry = m.retry[1:]
		s.answered = false
	} else {
		s = m.newSent(3, []PartitionID{part})
		s.sequence = m.sequences[part]
		m.sequences[part]++
	}
	var b record.Builder
	b.SetProducer(7, 0, s.sequence)
	b.Append(numbered(s.token))
	if err := m.h.g.AppendBatch(part, b.Bytes(), m, s.token); err != nil {
		m.h.failf("append batch: %v", err)
	}
}

func (m *model) put() {
	key, value := byte(m.h.rng.Intn(simKeys)), byte(max(m.h.rng.Intn(256)-64, 0))
	entry := KV{Key: []byte{key}, Value: []byte{value}}
	if value == 0 {
		entry.Value = nil // deletes it
	}
	ch, err := m.h.g.prop.command(putCommand([]KV{entry}))
	if err != nil {
		m.h.failf("put: %v", err)
		return
	}
	m.puts[key] = append(m.puts[key], &put{value: value, done: ch})
}

// remember looks at the dying node: what it has settled durably must stay so.
func (m *model) remember() {
	m.eachWindow(func(g *groupModel, w *window) {
		for off := int64(0); off < w.part.log.End(); off++ {
			if w.Settled(off) {
				g.settled[place{w.part.id, off}] = true
			}
		}
	})
}

func (m *model) eachWindow(fn func(g *groupModel, w *window)) {
	for _, g := range m.groups {
		if sh := m.h.g.machine.groups[g.id]; sh != nil {
			for _, w := range sh.windows {
				fn(g, w)
			}
		}
	}
}

// crash forgets what a crash makes unknown. Keys may be lost: checkpoint and log
// have them.
func (m *model) crash() {
	m.retry = nil
	for token := range m.next {
		if s := m.sent[token]; s.publisher == 3 && (!s.answered || s.result.Err != nil) {
			m.retry = append(m.retry, s)
		}
	}
	clear(m.known) // it is all looked at again
	for _, g := range m.groupList {
		clear(g.held)
		clear(g.now)
	}
	for _, list := range m.puts {
		for _, p := range list {
			p.poll()
			p.done = nil
		}
	}
	if m.h.rng.Intn(2) == 0 {
		m.h.keyID++ // an empty store; else one with more than the log has
	}
}

func (p *put) poll() {
	select {
	case res := <-p.done:
		p.confirmed = p.confirmed || res.err == nil
	default:
	}
}

// check compares the node, which has nothing to do, with what is known.
func (h *history) check() {
	if h.left != nil || h.err != nil {
		return
	}
	for _, id := range h.model.parts {
		h.model.checkPartition(h.g.machine.parts[id])
	}
	h.model.eachWindow(h.model.checkWindow)
	h.model.checkKeys()
	h.checkTomb()
	h.churn.check()
	h.pins.check()
}

// checkPartition: all confirmed records are there, none is invented, none
// twice, each publisher's in order, and an offset keeps its record.
func (m *model) checkPartition(p *partition) {
	h := m.h
	seen := make(map[uint64]bool)
	last := [5]int64{-1, -1, -1, -1, -1}
	start, end := p.log.Start(), p.log.End()
	c := p.log.Cursor()
	next := start
	for {
		v, err := c.Next()
		if h.left != nil {
			return // the power went while we were looking
		}
		if err != nil {
			h.failf("partition %d: read: %v", p.id, err)
			return
		}
		if v == nil {
			break
		}
		if v.Offset != next {
			h.failf("partition %d: offset %d follows %d", p.id, v.Offset, next-1)
		}
		next++
		token := numberOf(v)
		m.checkContent(p.id, v.Offset, token)
		s := m.sent[token]
		if s == nil || !slices.Contains(s.parts, p.id) {
			h.failf("partition %d: record %d was not sent there", p.id, token)
			return
		}
		if seen[token] {
			h.failf("partition %d: record %d is there twice", p.id, token)
		}
		seen[token] = true
		if int64(token) <= last[s.publisher] && s.publisher != namer {
			h.failf("partition %d: record %d of publisher %d comes after %d", p.id, token, s.publisher, last[s.publisher])
		}
		last[s.publisher] = int64(token)
	}
	if next != end {
		h.failf("partition %d: ends at %d, records to %d", p.id, end, next)
	}
	for token := range m.next {
		if s := m.sent[token]; slices.Contains(s.parts, p.id) {
			m.checkSent(p, s, seen[token], start)
		}
	}
}

// observe notes what has just been appended, before retention may take it.
func (m *model) observe() {
	for _, id := range m.parts {
		p := m.h.g.machine.parts[id]
		c := p.log.Cursor()
		c.SeekTo(m.known[id])
		for m.known[id] < p.log.End() {
			v, err := c.Next()
			if v == nil || err != nil {
				break
			}
			m.checkContent(id, v.Offset, numberOf(v))
			m.known[id] = v.Offset + 1
		}
	}
}

func (m *model) checkContent(part PartitionID, offset int64, token uint64) {
	at := place{part, offset}
	if old, ok := m.content[at]; ok && old != token {
		m.h.failf("partition %d: offset %d held record %d, now %d", part, offset, old, token)
	}
	m.content[at] = token
}

func (m *model) checkSent(p *partition, s *sent, there bool, start int64) {
	if !s.answered {
		return
	}
	switch {
	case s.result.Err == nil && !there:
		if off, known := m.offsetOf(p.id, s.token); known && off < start && m.trimmable(p.id, off) {
			return
		}
		m.h.failf("partition %d: confirmed record %d is missing (start %d, end %d)", p.id, s.token, start, p.log.End())
	case s.result.Err == nil && s.result.Offset >= 0 && m.content[place{p.id, s.result.Offset}] != s.token:
		m.h.failf("partition %d: record %d was confirmed at %d", p.id, s.token, s.result.Offset)
	case s.result.Err != nil && kernel.CodeOf(s.result.Err) != kernel.CodeUnknown && there:
		m.h.failf("partition %d: refused record %d is there: %v", p.id, s.token, s.result.Err)
	}
}

// offsetOf returns where a record is or was.
func (m *model) offsetOf(part PartitionID, token uint64) (int64, bool) {
	if s := m.sent[token]; s.answered && s.result.Err == nil && s.result.Offset >= 0 && len(s.parts) == 1 {
		return s.result.Offset, true
	}
	for at, tok := range m.content {
		if at.part == part && tok == token {
			return at.offset, true
		}
	}
	return 0, false
}

// trimmable says whether a record may be gone: its owners have settled it.
func (m *model) trimmable(part PartitionID, offset int64) bool {
	if part == m.parts[0] {
		return false // kept for a day
	}
	for _, g := range m.groups {
		if sh := m.h.g.machine.groups[g.id]; g.owner && sh.topic == m.h.g.machine.parts[part].topic && !g.acked[place{part, offset}] {
			return false
		}
	}
	return true
}

// checkWindow: what was settled durably is, and nothing else than what was
// acked or trimmed.
func (m *model) checkWindow(g *groupModel, w *window) {
	for off := int64(0); off < w.part.log.End(); off++ {
		at := place{w.part.id, off}
		settled := w.Settled(off)
		if g.settled[at] && !settled {
			m.h.failf("group %d, partition %d: offset %d was settled before the crash", g.id, w.part.id, off)
		}
		if settled && !g.acked[at] && off >= w.part.log.Start() {
			m.h.failf("group %d, partition %d: offset %d is settled and nobody did it", g.id, w.part.id, off)
		}
	}
}

// simKeys is how many keys of the keyed state a history uses.
const simKeys = 12

// checkKeys: a key has the value confirmed last, or a later one.
func (m *model) checkKeys() {
	for key := range byte(simKeys) {
		value, err := m.h.g.Get([]byte{key})
		if err != nil {
			m.h.failf("get: %v", err)
			return
		}
		list, ok := m.puts[key], false
		for i := len(list) - 1; i >= 0 && !ok; i-- {
			list[i].poll()
			ok = len(value) == 1 && list[i].value == value[0] || value == nil && list[i].value == 0
			if list[i].confirmed {
				break
			}
		}
		confirmed := slices.ContainsFunc(list, func(p *put) bool { return p.confirmed })
		if !ok && (confirmed || value != nil) {
			m.h.failf("key %d: has %v, which is older than what was confirmed or invented", key, value)
		}
	}
}

// nothingLeft: at the end, when everything has been handed out, each confirmed
// record was acked or handed out to every group that was there for it.
func (m *model) nothingLeft() {
	m.eachWindow(func(g *groupModel, w *window) {
		for off := w.part.log.Start(); off < w.part.log.End(); off++ {
			at := place{w.part.id, off}
			if g.held[at] == nil && !g.acked[at] {
				m.h.failf("group %d, partition %d: offset %d was never handed out", g.id, w.part.id, off)
			}
		}
	})
}

// allSettled: what is accepted gets settled, without anything else to push it.
func (m *model) allSettled() {
	m.eachWindow(func(g *groupModel, w *window) {
		if n := w.Unsettled(w.part.log.End()); n != 0 {
			m.h.failf("group %d, partition %d: %d records are accepted and not settled", g.id, w.part.id, n)
		}
	})
}

// purge archives what a group has ready.
func (m *model) purge() {
	g := m.groups[m.h.rng.Intn(len(m.groups))]
	sh := m.h.g.machine.groups[g.id]
	s := sh.topic.shard
	for s.step() { // what members have given back is back
	}
	s.call(func() {
		m.eachWindow(func(of *groupModel, w *window) {
			for off := int64(0); of == g && off < w.part.log.End(); off++ {
				if at := (place{w.part.id, off}); g.held[at] == nil {
					g.acked[at], g.now[at] = true, true
				}
			}
		})
		if _, err := s.purge(sh); err != nil {
			m.h.failf("purge: %v", err)
		}
	})
}

// dropTopic drops a topic that only this is done to, or publishes to it late: it
// is confirmed, and never seen in the topic that is made next.
func (m *model) dropTopic() {
	h := m.h
	id := topicN(100)
	id[0], id[1] = byte(m.drops>>8), byte(m.drops)
	m.drops++
	res, ok := h.do(createPartitionsCommand(id, []PartitionSpec{{Retention: kernel.RetainDay}}, 1))
	if !ok {
		return
	}
	part := PartitionID(res.ids[0])
	res, ok = h.do(createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "d"), Topic: id, FromStart: true}, 1))
	if !ok {
		return
	}
	end := &ending{}
	if _, err := h.g.Join(GroupID(res.ids[0]), kernel.MemberOptions{}, end); err != nil {
		h.failf("join: %v", err)
	}
	set := h.g.Targets(part)
	before := m.newSent(0, nil)
	h.g.Append(set, numbered(before.token), m, before.token) //nolint:errcheck // shows in the answer
	if _, ok = h.do(topicCommand(cmdDropTopic, id, 2)); !ok {
		return
	}
	after := m.newSent(0, nil)
	h.g.Append(set, numbered(after.token), m, after.token) //nolint:errcheck
	if !h.quiet() {
		return
	}
	if !before.answered || !after.answered || before.result.Err != nil || after.result.Err != nil || after.result.Offset != -1 {
		h.failf("publishes around a drop: %+v, %+v", before.result, after.result)
	}
	if kernel.CodeOf(end.reason) != kernel.CodeDropped {
		h.failf("a member of a dropped group was told %v", end.reason)
	}
}

// ending is a consumer that only waits for its end.
type ending struct{ reason error }

func (e *ending) Deliver([]kernel.Delivery) {}
func (e *ending) Ended(reason error)        { e.reason = reason }
