package wal

import (
	"time"

	"github.com/hashicorp/raft"
)

// smallData is copied behind its header instead of being written from where it
// lies: fewer vectors for the kernel to walk.
const smallData = 1 << 10

var padding [frameAlign]byte

// round gathers the bytes of one write. Headers and small things lie in the
// arena, large payloads are written from their owners' memory. It is reused, so
// that a round makes no garbage.
type round struct {
	batch    []*request
	accepted []*request

	file  *file
	off   int64 // of the next frame
	arena []byte
	mark  int // begin of the part of the arena that is in no vector yet
	vec   [][]byte
	locs  []loc // of entries, in order
}

// accept picks the requests that fit the state of their groups and gives the
// others their result.
func (r *round) accept(batch []*request) (accepted []*request, total int64) {
	r.accepted = r.accepted[:0]
	for _, q := range batch {
		proceed, err := q.group.check(q)
		if q.err = err; !proceed {
			continue
		}
		r.accepted = append(r.accepted, q)
		total += q.size()
	}
	return r.accepted, total
}

// refuse fails the entries and keeps the control requests.
func (r *round) refuse(accepted []*request, err error) (rest []*request, total int64) {
	rest = accepted[:0]
	for _, q := range accepted {
		if q.control() {
			rest = append(rest, q)
			total += q.size()
		} else {
			q.err = err
		}
	}
	return rest, total
}

func (r *round) refuseAll(accepted []*request, err error) {
	for _, q := range accepted {
		q.err = err
	}
	r.reset()
}

func (r *round) begin(f *file) {
	r.file, r.off = f, f.end
}

// add puts the frames of one request into the round.
func (r *round) add(q *request) {
	if q.control() {
		h := frame{kind: q.kind, group: q.group.id, index: q.index}
		r.frame(&h, q.data)
		return
	}
	for i, l := range q.logs {
		h := frame{kind: q.kind, logType: uint8(l.Type), group: q.group.id,
			index: l.Index, term: l.Term, time: unixNano(l.AppendedAt),
			dataSum: q.sums[i], length: uint32(len(l.Data)), ext: uint16(len(l.Extensions))}
		off := r.off
		r.put(&h, l.Data, l.Extensions)
		r.locs = append(r.locs, loc{file: r.file, off: uint32(off), size: uint32(r.off - off)})
	}
}

// frame puts a frame whose checksum is not yet known.
func (r *round) frame(h *frame, data []byte) {
	h.length, h.dataSum = uint32(len(data)), dataSum(data, nil)
	r.put(h, data, nil)
}

func (r *round) put(h *frame, data, ext []byte) {
	h.durable = uint32(r.file.durable)
	at := len(r.arena)
	r.arena = append(r.arena, make([]byte, frameHeaderSize)...)
	h.put(r.arena[at:], r.file.salt)
	if len(data) <= smallData {
		r.arena = append(r.arena, data...)
	} else {
		r.cutVec()
		r.vec = append(r.vec, data)
	}
	r.arena = append(r.arena, ext...)
	size := h.size()
	pad := size - frameHeaderSize - int64(len(data)) - int64(len(ext))
	r.arena = append(r.arena, padding[:pad]...)
	r.off += size
}

// cutVec moves the new part of the arena into the vectors. When the arena
// grows later, the vector keeps the old array, which stays as it is.
func (r *round) cutVec() {
	if r.mark < len(r.arena) {
		r.vec = append(r.vec, r.arena[r.mark:len(r.arena):len(r.arena)])
		r.mark = len(r.arena)
	}
}

func (r *round) buffers() [][]byte {
	r.cutVec()
	return r.vec
}

// reset lets go of everything that belongs to others.
func (r *round) reset() {
	clear(r.vec)
	clear(r.locs)
	clear(r.accepted)
	r.vec, r.locs, r.accepted = r.vec[:0], r.locs[:0], r.accepted[:0]
	if cap(r.arena) > 4<<20 {
		r.arena = nil
	}
	r.arena, r.mark, r.file = r.arena[:0], 0, nil
}

func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromUnixNano(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// toLog fills l from a frame.
func (f *frame) toLog(data, ext []byte, l *raft.Log) {
	*l = raft.Log{Index: f.index, Term: f.term, Type: raft.LogType(f.logType),
		Data: data, Extensions: ext, AppendedAt: fromUnixNano(f.time)}
}
