package amqp

import (
	"iter"
	"sort"
)

// unackedEntry is one delivery that the client has not settled.
type unackedEntry struct {
	tag       uint64
	offset    int64
	consumer  *consumer // nil once settled
	partition int32
}

// unacked holds the unsettled deliveries of a channel by rising tag. Its memory
// follows what is unsettled and not the span of tags: when more than half of
// the entries are settled they are squeezed out.
type unacked struct {
	entries []unackedEntry // from head on; the first is never settled
	head    int
	settled int // entries from head on that are settled
}

const squeezeFrom = 64

// len is the number of deliveries that are not settled.
func (u *unacked) len() int { return len(u.entries) - u.head - u.settled }

// push adds a delivery with a tag above all others.
func (u *unacked) push(e unackedEntry) {
	if len(u.entries) == cap(u.entries) && u.head > len(u.entries)/2 { // else moving would cost more than it frees
		n := copy(u.entries, u.entries[u.head:])
		clear(u.entries[n:])
		u.entries, u.head = u.entries[:n], 0
	}
	u.entries = append(u.entries, e)
}

// find returns the position of a tag, -1 when it is not there or settled.
func (u *unacked) find(tag uint64) int {
	live := u.entries[u.head:]
	if len(live) == 0 || tag < live[0].tag {
		return -1
	}
	i := int(min(tag-live[0].tag, uint64(len(live)))) // right as long as no entry was squeezed out
	if i >= len(live) || live[i].tag != tag {
		i = sort.Search(len(live), func(i int) bool { return live[i].tag >= tag })
	}
	if i == len(live) || live[i].tag != tag || live[i].consumer == nil {
		return -1
	}
	return u.head + i
}

// remove takes one delivery out.
func (u *unacked) remove(tag uint64) (unackedEntry, bool) {
	i := u.find(tag)
	if i < 0 {
		return unackedEntry{}, false
	}
	e := u.entries[i]
	u.entries[i].consumer = nil
	u.settled++
	u.trim()
	return e, true
}

// removeTo takes out everything up to a tag, which must be there, or with tag
// 0 everything, and appends it to dst.
func (u *unacked) removeTo(tag uint64, dst []unackedEntry) ([]unackedEntry, bool) {
	end := len(u.entries)
	if tag != 0 {
		i := u.find(tag)
		if i < 0 {
			return dst, false
		}
		end = i + 1
	}
	for i := u.head; i < end; i++ {
		if u.entries[i].consumer == nil {
			u.settled--
			continue
		}
		dst = append(dst, u.entries[i])
		u.entries[i].consumer = nil
	}
	u.head = end
	u.trim()
	return dst, true
}

// trim moves head to the first unsettled entry, and squeezes out settled ones
// when they are the most.
func (u *unacked) trim() {
	for u.head < len(u.entries) && u.entries[u.head].consumer == nil {
		u.head++
		u.settled--
	}
	if u.head == len(u.entries) {
		u.entries, u.head, u.settled = u.entries[:0], 0, 0
		return
	}
	if u.settled < squeezeFrom || u.settled*2 < len(u.entries)-u.head {
		return
	}
	kept := u.entries[:0]
	for _, e := range u.entries[u.head:] {
		if e.consumer != nil {
			kept = append(kept, e)
		}
	}
	clear(u.entries[len(kept):])
	u.entries, u.head, u.settled = kept, 0, 0
}

// all yields the unsettled deliveries in order.
func (u *unacked) all() iter.Seq[unackedEntry] {
	return func(yield func(unackedEntry) bool) {
		for _, e := range u.entries[u.head:] {
			if e.consumer != nil && !yield(e) {
				return
			}
		}
	}
}

func (u *unacked) reset() { *u = unacked{} }
