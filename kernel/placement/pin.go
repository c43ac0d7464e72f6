package placement

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// A pin ties a record of a share group to a session. It is part of the machine's
// state, so that it outlives members, processes and leaders: see pinned.go for
// what the shard makes of it.
type pin struct {
	kernel.PinID
	group  GroupID
	part   PartitionID
	offset int64
	taken  bool
}

// Changes of pins, in a command.
const (
	opPin   = 1 // the record is pinned
	opTake  = 2 // it is settled, in the same entry; the number stays in use
	opUnpin = 3 // the number is free
)

// appendPin appends opPin, appendPinOp one of the others, appendPinRun a run of
// changes of a session.
func appendPin(b []byte, id kernel.PinID, g GroupID, p PartitionID, offset int64) []byte {
	b = appendPinOp(b, opPin, id)
	b = binary.AppendUvarint(b, uint64(g))
	b = binary.AppendUvarint(b, uint64(p))
	return binary.AppendUvarint(b, uint64(offset))
}

func appendPinOp(b []byte, op byte, id kernel.PinID) []byte {
	b = binary.AppendUvarint(append(b, op), uint64(id.Number))
	return binary.AppendUvarint(b, id.Count)
}

func appendPinRun(b []byte, session string, ops int, changes []byte) []byte {
	b = appendString(b, session)
	b = binary.AppendUvarint(b, uint64(ops))
	return append(b, changes...)
}

// applyPins applies a command of changes.
func (m *machine) applyPins(d *decoder) {
	for len(d.b) > 0 && d.err == nil {
		session := d.string()
		for n := d.count(2); n > 0 && d.err == nil; n-- {
			m.applyPin(session, d)
		}
	}
}

// outdated says whether a command is what the client of a session has said under another
// leadership, as the settlements in its entry: it came to the log after that was over,
// and others may have been handed the record since. Who waits is told that the outcome is
// unknown, along with all that are told nothing else in the entry.
func (m *machine) outdated(command []byte) bool {
	if m.reader.term == m.entry.Term || len(command) == 0 || command[0] != cmdPins && command[0] != cmdRelease {
		return false
	}
	if m.flight != nil {
		m.flight.outdated = true
	}
	return true
}

func (m *machine) applyPin(session string, d *decoder) {
	op, id := d.byte(), d.pinID()
	l := m.ledgers[session]
	var old *pin
	if l != nil {
		old = l.pins[id.Number]
	}
	if op != opPin && old != nil && old.Count != id.Count {
		old = nil // it comes late: the number is in another use
	}
	switch op {
	case opPin:
		p := &pin{PinID: id, group: GroupID(d.uvarint()), part: PartitionID(d.uvarint()), offset: d.offset()}
		if d.err != nil {
			return
		}
		if old != nil {
			m.unpin(old)
		}
		m.ledgers.of(session).pin(p)
		m.pinned(session, p)
	case opTake:
		if old != nil {
			m.unpin(old)
		}
	case opUnpin:
		switch {
		case old == nil:
		case isOrphanage(session):
			m.disown(session, id.Number)
		default:
			delete(l.pins, id.Number)
			m.abandon(session, old)
		}
	default:
		d.fail("change of a pin")
	}
}

func (l *ledger) pin(p *pin) {
	if l.pins == nil {
		l.pins = make(map[uint16]*pin)
	}
	l.pins[p.Number] = p
}

// pinned tells the shard of a new pin. Where there is no such group (any more)
// nothing is left but the number.
func (m *machine) pinned(session string, p *pin) {
	g, part := m.groups[p.group], m.parts[p.part]
	if p.taken || g == nil || part == nil || part.topic != g.topic {
		p.taken = true
		return
	}
	g.pins++
	m.tell(g.topic.shard, event{kind: evPinned, share: g, part: part, n: p.offset, session: session, pin: p.PinID})
}

// unpin makes a pin one that holds no record.
func (m *machine) unpin(p *pin) {
	if p.taken {
		return
	}
	p.taken = true
	if g, part := m.groups[p.group], m.parts[p.part]; g != nil && part != nil {
		g.pins--
		m.tell(g.topic.shard, event{kind: evUnpinned, share: g, part: part, n: p.offset})
	}
}

func (d *decoder) pinID() kernel.PinID { return kernel.PinID{Number: d.number(), Count: d.uvarint()} }

// forget drops the ledger of a session. What was pinned to it are orphans.
func (m *machine) forget(session string) {
	l := m.ledgers[session]
	if l == nil {
		return
	}
	delete(m.ledgers, session)
	var held []*share
	for _, number := range slices.Sorted(maps.Keys(l.pins)) {
		p := l.pins[number]
		if g := m.groups[p.group]; g != nil && !p.taken && !slices.Contains(held, g) {
			held = append(held, g)
		}
		m.abandon(session, p)
	}
	for _, g := range held { // when the records have left its vaults
		m.tell(g.topic.shard, event{kind: evForgotten, share: g, session: session})
	}
}

// dropPins ends the pins of a group that goes.
func (m *machine) dropPins(g *share) {
	g.going.Store(true)
	if g.pins == 0 {
		return
	}
	for name, l := range m.ledgers {
		for number, p := range l.pins {
			switch {
			case p.group != g.id:
			case isOrphanage(name):
				m.disown(name, number)
			default:
				p.taken, p.group = true, 0
			}
		}
	}
	g.pins = 0
}

// Pins returns the pins of a session, in the order in which they were made. What is
// on its way to the log is not waited for: Used does that.
func (g *Group) Pins(session string) []kernel.Pin {
	m := g.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.ledgers[session]
	if l == nil {
		return nil
	}
	list := slices.SortedFunc(maps.Values(l.pins), func(a, b *pin) int { return cmp.Compare(a.Count, b.Count) })
	out := make([]kernel.Pin, len(list))
	for i, p := range list {
		out[i] = kernel.Pin{PinID: p.PinID, Taken: p.taken, Offset: p.offset}
		if g, part := m.groups[p.group], m.parts[p.part]; g != nil && part != nil {
			out[i].Group, out[i].Partition = g.spec.Address, part.index
		} else {
			out[i].Taken = true
		}
	}
	return out
}

// PinNumber keeps a number of a session in use that stands for no record of a group:
// to the machine it is a pin whose group has gone. done is told when that is durable.
func (g *Group) PinNumber(session string, id kernel.PinID, done kernel.Completion, token uint64) error {
	return g.prop.post(appendPinRun([]byte{cmdPins}, session, 1, appendPin(nil, id, 0, 0, 0)), done, token)
}

// Unpin ends a pin of a session whatever it is, also when its group has gone: a record
// that it still has is refused. Nobody is told.
func (g *Group) Unpin(session string, id kernel.PinID) error {
	return g.prop.post(appendPinRun([]byte{cmdPins}, session, 1, appendPinOp(nil, opUnpin, id)), nil, 0)
}

// appendPins encodes the pins of all sessions, by session and number.
func (ls ledgers) appendPins(b []byte) []byte {
	var with []string
	for session, l := range ls {
		if len(l.pins) > 0 {
			with = append(with, session)
		}
	}
	slices.Sort(with)
	b = binary.AppendUvarint(b, uint64(len(with)))
	for _, session := range with {
		l := ls[session]
		b = binary.AppendUvarint(appendString(b, session), uint64(len(l.pins)))
		for _, number := range slices.Sorted(maps.Keys(l.pins)) {
			p := l.pins[number]
			b = binary.AppendUvarint(b, uint64(number))
			b = binary.AppendUvarint(b, p.Count)
			b = binary.AppendUvarint(b, uint64(p.group))
			b = binary.AppendUvarint(b, uint64(p.part))
			b = appendBool(binary.AppendUvarint(b, uint64(p.offset)), p.taken)
		}
	}
	return b
}

// decodePins reads them, when the groups are there, and tells the shards.
func (m *machine) decodePins(d *decoder) {
	for n := d.count(3); n > 0 && d.err == nil; n-- {
		session := d.string()
		l := m.ledgers.of(session)
		for k := d.count(6); k > 0 && d.err == nil; k-- {
			p := &pin{
				PinID: d.pinID(), group: GroupID(d.uvarint()), part: PartitionID(d.uvarint()),
				offset: d.offset(), taken: d.bool(),
			}
			if d.err == nil {
				l.pin(p)
				m.pinned(session, p)
				if p.taken && isOrphanage(session) {
					m.disown(session, p.Number)
				}
			}
		}
	}
}
