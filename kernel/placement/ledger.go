package placement

import (
	"encoding/binary"
	"maps"
	"slices"
)

// ledger is what the group remembers of the numbers of one session: those that its
// client has published under and not released, and those under which records are
// pinned to it. It is part of the machine's
// state: every replica recognises the same repeats.
type ledger struct {
	high uint64            // highest count of a use
	used map[uint16]uint64 // count of the present use, by number
	pins map[uint16]*pin   // by number
}

// ledgers are the ledgers of all sessions that have one, by session name. A
// ledger lasts until its session is forgotten.
type ledgers map[string]*ledger

func (ls ledgers) of(session string) *ledger {
	l := ls[session]
	if l == nil {
		l = &ledger{}
		ls[session] = l
	}
	return l
}

// appendTo encodes all, by session.
func (ls ledgers) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(ls)))
	for _, session := range slices.Sorted(maps.Keys(ls)) {
		b = ls[session].appendTo(appendString(b, session))
	}
	return b
}

func (l *ledger) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, l.high)
	b = binary.AppendUvarint(b, uint64(len(l.used)))
	for _, number := range slices.Sorted(maps.Keys(l.used)) {
		b = binary.AppendUvarint(b, uint64(number))
		b = binary.AppendUvarint(b, l.used[number])
	}
	return b
}

func (ls ledgers) decode(d *decoder) {
	for n := d.count(3); n > 0 && d.err == nil; n-- {
		l := ls.of(d.string())
		l.decode(d)
	}
}

func (l *ledger) decode(d *decoder) {
	l.high = d.uvarint()
	for n := d.count(2); n > 0 && d.err == nil; n-- {
		number := d.number()
		l.use(number, d.uvarint())
	}
}

// number reads a number of a session.
func (d *decoder) number() uint16 { return uint16(d.int(1<<16 - 1)) }
