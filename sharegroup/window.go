package sharegroup

import (
	"iter"
	"slices"
)

// Window is the state of one group on one partition: a durable layer that is
// equal on every replica, and on the leader an overlay. It is not safe for
// concurrent use.
type Window struct {
	floor   int64   // every offset below is settled
	settled spanSet // above floor, never touching it
	failed  map[int64]uint16
	readTo  int64
	lowered uint64 // times readTo was lowered
	term    uint64 // highest term applied
	epoch   uint32 // number of seeks applied

	partition int32
	runnable  bool     // listed by the host as available
	dirty     bool     // listed by the host as dirty
	o         *overlay // nil: this replica does not lead
	host      host     // nil: no Group drives the window
}

// host is what a window tells the Group that drives it.
type host interface {
	available(w *Window)                 // something can be handed out
	dirty(w *Window)                     // something is to be logged or dead-lettered
	locked(deadline int64)               // a lock ends then
	refund(member MemberID, records int) // hand-outs were holes
}

// New returns a window without overlay whose first record is start.
func New(start int64) *Window { return &Window{floor: start, readTo: start} }

// Apply changes the durable layer by one logged settlement, and the overlay with
// it if the window leads. It returns false, having changed nothing, if the
// settlement was made before a seek or by a leader older than one already
// applied. Applying twice is the same as applying once.
func (w *Window) Apply(s *Settlement) bool {
	if s.Term < w.term {
		return false
	}
	if s.Seek {
		return w.applySeek(s)
	}
	if s.Epoch != w.epoch {
		return false
	}
	w.term = s.Term
	w.mark(s)
	for _, sp := range s.Accepted {
		w.settle(sp.First, sp.Last)
	}
	for _, sp := range s.Archived {
		w.settle(sp.First, sp.Last)
	}
	for _, f := range s.Failed {
		if f.Count > w.failed[f.Offset] && !w.Settled(f.Offset) {
			w.setFailed(f.Offset, f.Count)
		}
	}
	if o := w.o; o != nil {
		if o.blocked() && w.covered() > o.next {
			o.waiting = nobody
		}
		w.wake()
	}
	return true
}

// mark moves readTo as a settlement says. Of two marks the one that was lowered
// more often counts, and of equals the higher one: so settlements may be applied
// again and in any order, and nothing comes before a lowering that was made after
// it.
func (w *Window) mark(s *Settlement) {
	switch {
	case s.Lowered > w.lowered:
		w.lowered, w.readTo = s.Lowered, s.ReadTo
	case s.Lowered == w.lowered:
		w.readTo = max(w.readTo, s.ReadTo)
	}
}

func (w *Window) applySeek(s *Settlement) bool {
	if s.Epoch != w.epoch+1 {
		return false
	}
	w.term, w.epoch = s.Term, s.Epoch
	w.mark(s)
	w.floor = s.SeekTo
	w.settled = spanSet{}
	w.failed = nil
	if w.o != nil {
		w.restart()
	}
	return true
}

// TrimTo tells that the log now starts at start: what lies below counts as
// settled. Every replica must call it at the same place in the log.
func (w *Window) TrimTo(start int64) {
	if start > w.floor {
		w.settle(w.floor, start-1)
		w.wake()
	}
}

// settle makes first..last settled, whatever they were.
func (w *Window) settle(first, last int64) {
	if first = max(first, w.floor); first > last {
		return
	}
	if w.o != nil && last >= w.o.next {
		w.settleAhead(first, last)
	} else {
		w.settleSpan(first, last)
	}
	w.clearFailed(first, last)
	if w.o != nil {
		w.dropTracked(first, last, false)
	}
}

// settleSpan adds first..last to the durable layer; first >= floor.
func (w *Window) settleSpan(first, last int64) {
	if first > w.floor {
		w.settled.add(first, last)
		return
	}
	w.floor = last + 1
	for {
		sp, ok := w.settled.front()
		if !ok || sp.First > w.floor {
			return
		}
		w.floor = max(w.floor, sp.Last+1)
		w.settled.popFront()
	}
}

func (w *Window) setFailed(offset int64, count uint16) {
	if w.failed == nil {
		w.failed = make(map[int64]uint16)
	}
	w.failed[offset] = count
}

// clearFailed forgets the counts of settled records.
func (w *Window) clearFailed(first, last int64) {
	if len(w.failed) == 0 {
		return
	}
	if last-first < int64(len(w.failed)) {
		for o := first; o <= last; o++ {
			delete(w.failed, o)
		}
	} else {
		for o := range w.failed {
			if first <= o && o <= last {
				delete(w.failed, o)
			}
		}
	}
	if len(w.failed) == 0 {
		w.failed = nil // a map does not shrink
	}
}

// failedCounts returns the failed counts sorted by offset.
func (w *Window) failedCounts() []FailedCount {
	list := make([]FailedCount, 0, len(w.failed))
	for o, n := range w.failed {
		list = append(list, FailedCount{o, n})
	}
	slices.SortFunc(list, func(a, b FailedCount) int { return compare(a.Offset, b.Offset) })
	return list
}

// Floor returns the lowest offset that is not settled (KIP-932: SPSO). Deletion
// of what lies below does not hurt the group.
func (w *Window) Floor() int64 { return w.floor }

// ReadTo returns the offset below which records may have been handed out.
func (w *Window) ReadTo() int64 { return w.readTo }

// Epoch returns the number of seeks applied.
func (w *Window) Epoch() uint32 { return w.epoch }

// Partition returns the number under which a Group holds the window.
func (w *Window) Partition() int32 { return w.partition }

// Settled says whether the record is accepted or archived, durably.
func (w *Window) Settled(offset int64) bool {
	return offset < w.floor || w.settled.contains(offset)
}

// SettledSpans yields the settled ranges above the floor in order.
func (w *Window) SettledSpans() iter.Seq[Span] { return w.settled.all() }

// Failed returns the durable failed count of a record.
func (w *Window) Failed(offset int64) int { return int(w.failed[offset]) }

// Unsettled returns how many offsets below end are not settled, on any replica.
func (w *Window) Unsettled(end int64) int64 {
	if end <= w.floor {
		return 0
	}
	return end - w.floor - (w.settled.count - w.settled.countFrom(end))
}
