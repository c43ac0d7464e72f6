package sharegroup

import (
	"encoding/binary"
	"fmt"
)

const snapshotVersion = 2

// AppendTo appends a snapshot of the durable layer. Windows that have applied
// the same settlements give the same bytes.
//
// The format is a version byte, then varints: floor, readTo, how often
// that was lowered, term, epoch, the settled spans and the failed counts as distances.
func (w *Window) AppendTo(dst []byte) []byte {
	dst = append(dst, snapshotVersion)
	dst = binary.AppendUvarint(dst, uint64(w.floor))
	dst = binary.AppendUvarint(dst, uint64(w.readTo))
	dst = binary.AppendUvarint(dst, w.lowered)
	dst = binary.AppendUvarint(dst, w.term)
	dst = binary.AppendUvarint(dst, uint64(w.epoch))
	dst = appendSpans(dst, w.floor, w.settled.spans, w.settled.blocks...)
	return appendFailed(dst, w.floor, w.failedCounts())
}

// Decode reads one snapshot from the front of b and returns the rest of b. The
// window does not lead. Nothing of b is retained, and what is allocated is
// bounded by len(b).
func Decode(b []byte) (w *Window, rest []byte, err error) {
	r := reader{b: b}
	if v := r.byte(); r.err == nil && v != snapshotVersion {
		return nil, nil, fmt.Errorf("%w: window version %d, want %d", ErrFormat, v, snapshotVersion)
	}
	w = &Window{}
	w.floor = r.offset(0)
	w.readTo = r.offset(0)
	w.lowered = r.uvarint()
	w.term = r.uvarint()
	w.epoch = r.uint32()
	reach := w.floor
	for _, sp := range r.spans(nil, w.floor) {
		if sp.First == reach {
			r.fail("settled spans touch at %d", reach)
			break
		}
		w.settled.pushBack(sp)
		reach = sp.Last + 1
	}
	for _, f := range r.failed(nil, w.floor) {
		if w.Settled(f.Offset) {
			r.fail("failed count on settled offset %d", f.Offset)
			break
		}
		w.setFailed(f.Offset, f.Count)
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return w, r.b, nil
}
