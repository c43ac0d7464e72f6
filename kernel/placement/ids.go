package placement

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Bounds of what is remembered of the ids of messages.
const (
	idsInPartition = 100_000
	idsInGroup     = 1 << 20 // about 90 MB of memory
	idsSwept       = 16      // that are too old go at once

	firstIDs = 8   // room of the first chunk of a partition
	chunkIDs = 512 // and of the largest
)

// notedID is an id and when it was noted, in ms by the times of the entries.
type notedID struct {
	id   kernel.DedupID
	time int64
}

// idWindow is the ids of one partition. The chunks have them as they were noted, are
// only appended to and cut off in front: what a checkpoint has taken of them stays as
// it is.
type idWindow struct {
	part       *partition
	at         map[kernel.DedupID]int64 // time that each was last noted
	chunks     [][]notedID              // oldest first
	head       int                      // gone from the first chunk
	len        int
	prev, next *idWindow // ring of those that have any
}

// idWindows remember the ids of messages, by partition. They are part of the machine's
// state, so that every replica recognises the same repeats: whatever changes them
// is a matter of the log. An id too old goes when the next comes to its partition, or
// an entry later in its turn (sweep).
type idWindows struct {
	ring          idWindow // root: next is swept next
	len           int
	inPart, inAll int // bounds
}

func (x *idWindows) init() {
	x.ring.prev, x.ring.next = &x.ring, &x.ring
	x.inPart, x.inAll = idsInPartition, idsInGroup
}

// repeated says whether the message with an id is in the partition, as far as is
// remembered; if not, it is noted: the caller appends it.
func (x *idWindows) repeated(p *partition, id kernel.DedupID, now int64) bool {
	keep := p.idsKept()
	if keep == 0 {
		return false
	}
	w := p.ids
	if w.has(id, now-keep) {
		return true
	}
	if w != nil {
		x.age(w, now-keep)
	}
	x.makeRoom(p.ids)
	if w = p.ids; w == nil {
		w = x.open(p)
	}
	w.note(notedID{id, now})
	x.len++
	return false
}

// open begins to remember ids of a partition.
func (x *idWindows) open(p *partition) *idWindow {
	w := &idWindow{part: p, at: make(map[kernel.DedupID]int64)}
	p.ids = w
	x.enter(w)
	return w
}

// known says whether a partition has the message with an id; if not, it will.
func (m *machine) known(p *partition, id kernel.DedupID) bool {
	known := m.ids.repeated(p, id, m.time)
	if known {
		m.metrics.Repeats.Add(1)
	}
	return known
}

// idsKept is how long the ids of a partition are remembered, in ms.
func (p *partition) idsKept() int64 {
	keep := p.retention.DedupWindow()
	return int64((keep + time.Millisecond - 1) / time.Millisecond)
}

// has says whether an id was noted at from or later. w may be nil.
func (w *idWindow) has(id kernel.DedupID, from int64) bool {
	if w == nil {
		return false
	}
	at, ok := w.at[id]
	return ok && at >= from
}

// note adds an id at the end.
func (w *idWindow) note(n notedID) {
	last := len(w.chunks) - 1
	if last < 0 || len(w.chunks[last]) == cap(w.chunks[last]) {
		size := firstIDs
		if last >= 0 {
			size = min(2*cap(w.chunks[last]), chunkIDs)
		}
		w.chunks = append(w.chunks, make([]notedID, 0, size))
		last++
	}
	w.chunks[last] = append(w.chunks[last], n)
	w.at[n.id] = n.time
	w.len++
}

// oldest returns the id noted first; there is one.
func (w *idWindow) oldest() *notedID { return &w.chunks[0][w.head] }

// makeRoom forgets an id if there are too many: of w if it has any, else of the one whose
// turn it is, so that nobody makes others forget theirs. w may be nil.
func (x *idWindows) makeRoom(w *idWindow) {
	switch {
	case x.len < x.inAll && (w == nil || w.len < x.inPart):
	case w != nil:
		x.forget(w)
	default:
		x.forget(x.ring.next)
	}
}

// age forgets what was noted before from, some of it.
func (x *idWindows) age(w *idWindow, from int64) {
	for n := 0; n < idsSwept && w.len > 0 && w.oldest().time < from; n++ {
		x.forget(w)
	}
}

// forget forgets the oldest id of w. The last one takes w along.
func (x *idWindows) forget(w *idWindow) {
	n := w.oldest()
	if w.at[n.id] == n.time { // else it was too old when it came again
		delete(w.at, n.id)
	}
	x.len--
	w.len--
	if w.len == 0 {
		x.leave(w)
		w.part.ids = nil
		return
	}
	if w.head++; w.head == len(w.chunks[0]) {
		w.chunks[0] = nil
		w.chunks, w.head = w.chunks[1:], 0
	}
}

// sweep is called for every entry: what is too old goes, a little at a time, also
// where nothing comes any more.
func (x *idWindows) sweep(now int64) {
	w := x.ring.next
	if w == &x.ring {
		return
	}
	if x.age(w, now-w.part.idsKept()); w.len > 0 {
		x.leave(w)
		x.enter(w)
	}
}

// drop forgets the ids of a partition.
func (x *idWindows) drop(p *partition) {
	if w := p.ids; w != nil {
		x.leave(w)
		x.len -= w.len
		p.ids = nil
	}
}

// enter puts w where its turn comes last.
func (x *idWindows) enter(w *idWindow) {
	w.prev, w.next = x.ring.prev, &x.ring
	w.prev.next, w.next.prev = w, w
}

func (x *idWindows) leave(w *idWindow) {
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
}
