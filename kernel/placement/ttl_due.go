package placement

import (
	"container/heap"
	"time"
)

// dueHeap is the shares with something to expire, soonest first.
type dueHeap struct{ list []*share }

// Len, Less, Swap, Push and Pop are heap.Interface.
func (h *dueHeap) Len() int           { return len(h.list) }
func (h *dueHeap) Less(i, j int) bool { return h.list[i].due < h.list[j].due }
func (h *dueHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].dueAt, h.list[j].dueAt = i+1, j+1
}
func (h *dueHeap) Push(x any) {
	sh := x.(*share)
	h.list = append(h.list, sh)
	sh.dueAt = len(h.list)
}
func (h *dueHeap) Pop() any {
	n := len(h.list) - 1
	sh := h.list[n]
	h.list[n] = nil
	h.list = h.list[:n]
	sh.dueAt = 0
	return sh
}

// set says when a share is due, in milliseconds of the shard's clock.
func (h *dueHeap) set(sh *share, due int64) {
	switch {
	case due == never:
		h.remove(sh)
	case sh.dueAt == 0:
		sh.due = due
		heap.Push(h, sh)
	case sh.due != due:
		sh.due = due
		heap.Fix(h, sh.dueAt-1)
	}
}

func (h *dueHeap) remove(sh *share) {
	if sh.dueAt > 0 {
		heap.Remove(h, sh.dueAt-1)
	}
}

// fallDue has the shares tended whose time has come, and says whether there were
// any.
func (s *shard) fallDue() bool {
	if len(s.dues.list) == 0 {
		return false
	}
	now, any := s.clock.wall(), false
	for len(s.dues.list) > 0 && s.dues.list[0].due <= now {
		sh := s.dues.list[0]
		s.dues.remove(sh)
		s.touch(sh)
		any = true
	}
	return any
}

// nextDue returns how long nothing is due.
func (s *shard) nextDue() (wait time.Duration, ok bool) {
	if len(s.dues.list) == 0 {
		return 0, false
	}
	return time.Duration(max(s.dues.list[0].due-s.clock.wall(), 0)) * time.Millisecond, true
}
