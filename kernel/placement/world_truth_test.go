package placement

import (
	"hash/fnv"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/sharegroup"
	"github.com/trivium-mq/trivium/storage/record"
)

// truth is what is known for certain in a world: what was committed, what clients were
// told. All that happens is compared with it at once.
type truth struct {
	w       *world
	events  int               // ordinal of what happens
	entries map[uint64]uint64 // committed: hash by index
	tokens  map[uint64]bool   // of the records in them
	tombed  map[uint64]bool   // whose dead letters are in them
	sent    []*wsent          // by token
	content map[place]uint64  // token at an offset
	parts   []PartitionID
	topics  map[PartitionID]kernel.TopicID
	starts  map[PartitionID]int64 // as of what is committed
	tomb    PartitionID
	groups  []*wgroup
	byID    map[GroupID]*wgroup
}

// wsent is a message of a publisher.
type wsent struct {
	token     uint64
	parts     []PartitionID
	tries     []*attempt
	began     int // events
	confirmed int // events; 0 = never
}

// attempt is one publish of a message.
type attempt struct {
	t        *truth
	s        *wsent
	boot     uint64
	conn     *int // the connection
	answered bool
	refused  bool // certainly not in the log
	then     func(kernel.Result)
}

// wgroup is what is known of a share group.
type wgroup struct {
	id           GroupID
	owner, dying bool
	turns        bool // it is an owner at times
	pins         bool // for a session
	epochs       map[PartitionID]uint32
	topic        kernel.TopicID
	delivered    map[place]bool
	handed       map[place]uint64    // the highest term of a leader who has handed it out
	held         map[place]client    // in that term
	heldIn       map[place]uint32    // after so many moves
	pinned       map[place]bool      // to a session: nobody else gets it
	said         map[place][]wordlet // what members have said of it
	settled      map[place]uint64    // index of the entry that settled it
	purged       map[uint64]bool     // terms
}

// wordlet is an outcome that a member has given, in the term of its leader.
type wordlet struct {
	term    uint64
	epoch   uint32
	outcome kernel.Outcome
}

func (t *truth) init(w *world) {
	t.w, t.entries, t.tokens, t.tombed, t.content = w, map[uint64]uint64{}, map[uint64]bool{}, map[uint64]bool{}, map[place]uint64{}
	t.byID, t.topics, t.starts = map[GroupID]*wgroup{}, map[PartitionID]kernel.TopicID{}, map[PartitionID]int64{}
}

func (t *truth) addPart(id PartitionID, topic kernel.TopicID) {
	t.parts = append(t.parts, id)
	t.topics[id] = topic
}

func (t *truth) addGroup(id GroupID, topic kernel.TopicID, owner, dying bool) {
	g := &wgroup{id: id, topic: topic, owner: owner, dying: dying, delivered: map[place]bool{}, handed: map[place]uint64{}, held: map[place]client{}, heldIn: map[place]uint32{}, epochs: map[PartitionID]uint32{}, pinned: map[place]bool{},
		said: map[place][]wordlet{}, settled: map[place]uint64{}, purged: map[uint64]bool{}}
	t.groups, t.byID[id] = append(t.groups, g), g
}

func (t *truth) event() int {
	t.events++
	return t.events
}

func entryHash(term uint64, data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(term), byte(term >> 8)})
	_, _ = h.Write(data)
	return h.Sum64()
}

// applied sees that a replica applies what was committed.
func (t *truth) applied(n *wlife, e raftgroup.Entry) {
	if h, ok := t.entries[e.Index]; !ok || h != entryHash(e.Term, e.Data) {
		t.w.failf("node %d applies something else at %d than was committed (%v)", n.i, e.Index, ok)
	}
}

// committed takes in an entry that a majority has. From here on it is there for ever.
func (t *truth) committed(l *raft.Log) {
	if l.Type != raft.LogCommand {
		return
	}
	t.w.note(int(l.Index), int(l.Term))
	t.entries[l.Index] = entryHash(l.Term, l.Data)
	var r entryReader
	if err := r.reset(l.Data); err != nil {
		t.w.failf("entry %d: %v", l.Index, err)
		return
	}
	for r.next() {
		switch r.kind {
		case sectionBatch:
			t.batch(&r)
		case sectionSettlement:
			if r.term != l.Term {
				t.w.seen.late++
				continue
			}
			t.settlement(r.group, r.partition, r.body, l)
		case sectionTrim:
			if r.term == l.Term {
				t.trim(r.partition, r.start)
			}
		case sectionCommand:
			t.command(r.body)
		}
	}
	if r.err != nil {
		t.w.failf("entry %d: %v", l.Index, r.err)
	}
}

func (t *truth) batch(r *entryReader) {
	var it record.Iter
	if err := it.Reset(r.body, nil); err != nil {
		t.w.failf("batch: %v", err)
		return
	}
	for it.Next() {
		token := numberOf(it.View())
		if slices.Contains(r.targets, t.tomb) {
			t.tombed[token] = true
			continue
		}
		if token >= uint64(len(t.sent)) {
			continue // nobody looks at it
		}
		t.tokens[token] = true
		tries := t.sent[token].tries
		if !slices.ContainsFunc(tries, func(a *attempt) bool { return a.boot == r.boot && !a.refused }) {
			t.w.failf("record %d was refused, and is committed", token)
		}
	}
}

func (t *truth) settlement(group GroupID, part PartitionID, body []byte, l *raft.Log) {
	g := t.byID[group]
	if g == nil {
		return
	}
	var s sharegroup.Settlement
	if _, err := sharegroup.DecodeSettlement(body, &s); err != nil {
		t.w.failf("settlement: %v", err)
		return
	}
	if s.Seek {
		t.moved(g, part, &s, l.Index)
		return
	}
	if s.Epoch != g.epochs[part] {
		return // of before a move
	}
	for _, span := range s.Accepted {
		for o := span.First; o <= span.Last; o++ {
			t.settle(g, place{part, o}, kernel.Accept, l)
		}
	}
	for _, span := range s.Archived {
		for o := span.First; o <= span.Last; o++ {
			if g.settled[place{part, o}] == 0 {
				t.settle(g, place{part, o}, kernel.Refuse, l)
			}
		}
	}
}

// trim takes in that a partition begins elsewhere: nothing goes that a group holds back
// which is an owner at this place in the log.
func (t *truth) trim(part PartitionID, start int64) {
	for _, g := range t.groups {
		for o := t.starts[part]; g.owner && g.topic == t.topics[part] && o < start; o++ {
			if g.settled[place{part, o}] == 0 {
				t.w.failf("partition %d: offset %d goes, group %d has not settled it", part, o, g.id)
			}
		}
	}
	t.starts[part] = max(t.starts[part], start)
}

// command takes in which groups are owners.
func (t *truth) command(body []byte) {
	if d := (&decoder{b: body}); d.byte() == cmdSetOwner {
		id, owner := GroupID(d.uvarint()), d.bool()
		t.byID[id].owner = owner
		t.w.seen.turns++
	}
}

// settle takes in that a record was settled: by who held it last, and nobody else; or
// its dead letter is safe.
func (t *truth) settle(g *wgroup, at place, o kernel.Outcome, l *raft.Log) {
	said := slices.Contains(g.said[at], wordlet{l.Term, g.epochs[at.part], o})
	switch {
	case g.settled[at] != 0:
		t.w.failf("group %d, partition %d: offset %d was settled at %d and is at %d", g.id, at.part, at.offset, g.settled[at], l.Index)
	case g.handed[at] > l.Term:
		t.w.failf("group %d, partition %d: offset %d is settled in term %d and was handed out in %d", g.id, at.part, at.offset, l.Term, g.handed[at])
	case o == kernel.Accept && !said:
		t.w.failf("group %d, partition %d: offset %d is accepted and no member of term %d has done it", g.id, at.part, at.offset, l.Term)
	case o == kernel.Refuse && g.dying:
		if token, ok := t.content[at]; !ok || !t.tombed[token] {
			t.w.failf("group %d: offset %d (record %d) is archived and has no dead letter", g.id, at.offset, token)
		}
	case o == kernel.Refuse && !said && !g.purged[l.Term] && at.offset >= t.starts[at.part]:
		t.w.failf("group %d, partition %d: offset %d is archived and nobody has done it", g.id, at.part, at.offset)
	}
	g.settled[at] = l.Index
}

// observe looks at what a replica has appended.
func (t *truth) observe(n *wlife) {
	for _, id := range t.parts {
		p := n.g.machine.parts[id]
		if p == nil || n.known[id] >= p.log.End() {
			continue
		}
		c := p.log.Cursor()
		c.SeekTo(max(n.known[id], p.log.Start()))
		for {
			v, err := c.Next()
			if v == nil || err != nil {
				break // some segments are missing, or the power is
			}
			at := place{id, v.Offset}
			t.is(at, numberOf(v))
			n.known[id] = v.Offset + 1
		}
	}
}

// is takes note of which record is at an offset, for ever.
func (t *truth) is(at place, token uint64) {
	if old, ok := t.content[at]; ok && old != token {
		t.w.failf("partition %d: offset %d is record %d, and %d", at.part, at.offset, old, token)
	}
	t.content[at] = token
}

func (t *truth) newSent(parts ...PartitionID) *wsent {
	s := &wsent{token: uint64(len(t.sent)), parts: parts, began: t.event()}
	t.sent = append(t.sent, s)
	return s
}

// try makes the completion of a publish at a node.
func (t *truth) try(s *wsent, n *wlife, conn *int, then func(kernel.Result)) *attempt {
	a := &attempt{t: t, s: s, boot: n.g.prop.boot, conn: conn, then: then}
	s.tries = append(s.tries, a)
	return a
}

// Completed is what a publisher is told.
func (a *attempt) Completed(_ uint64, res kernel.Result) {
	w := a.t.w
	w.note(int(a.s.token), int(res.Offset), int(kernel.CodeOf(res.Err)))
	if a.answered {
		w.failf("a publish of record %d is answered twice", a.s.token)
	}
	a.answered = true
	switch code := kernel.CodeOf(res.Err); {
	case res.Err == nil:
		w.seen.confirmed++
		a.t.confirm(a.s)
		if !a.t.tokens[a.s.token] {
			w.failf("record %d is confirmed and not committed", a.s.token)
		}
		if res.Offset >= 0 {
			a.t.is(place{a.s.parts[0], res.Offset}, a.s.token)
		}
	case code == kernel.CodeUnknown:
		w.seen.unknown++
	case code == kernel.CodeUnavailable:
		w.seen.refused++
		a.refused = true
	case code != kernel.CodeSequenceGap:
		w.failf("record %d: %v", a.s.token, res.Err)
	}
	if a.then != nil {
		a.then(res)
	}
}

func (a *attempt) Flush() {}

// confirm notes that a publisher knows that a message is there.
func (t *truth) confirm(s *wsent) {
	if s.confirmed == 0 {
		s.confirmed = t.event()
	}
}
