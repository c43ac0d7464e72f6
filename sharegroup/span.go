package sharegroup

import (
	"iter"
	"slices"
	"sort"
)

// MaxOffset is the highest offset a window takes; it leaves room for sums.
const MaxOffset = int64(1)<<62 - 1

// Span is a range of offsets, both ends included.
type Span struct {
	First, Last int64
}

// Len returns the number of offsets in the span.
func (s Span) Len() int64 { return s.Last - s.First + 1 }

// spanBlock is the most spans one block of a spanSet holds. An insertion moves
// at most one block, so it costs the same with ten spans and with a million.
const spanBlock = 128

// spanSet is an ordered set of offsets kept as maximal ranges, in two levels: a
// list of blocks of spans. No block is empty, no two spans touch.
type spanSet struct {
	blocks [][]Span
	spans  int
	count  int64 // offsets in the set
}

// find returns where the first span with Last >= offset is; bi == len(blocks) if
// there is none.
func (s *spanSet) find(offset int64) (bi, i int) {
	bi = sort.Search(len(s.blocks), func(k int) bool {
		b := s.blocks[k]
		return b[len(b)-1].Last >= offset
	})
	if bi == len(s.blocks) {
		return bi, 0
	}
	b := s.blocks[bi]
	return bi, sort.Search(len(b), func(k int) bool { return b[k].Last >= offset })
}

// from returns the first span that ends at or after offset.
func (s *spanSet) from(offset int64) (Span, bool) {
	if s.spans == 0 {
		return Span{}, false
	}
	bi, i := s.find(offset)
	if bi == len(s.blocks) {
		return Span{}, false
	}
	return s.blocks[bi][i], true
}

func (s *spanSet) contains(offset int64) bool {
	sp, ok := s.from(offset)
	return ok && sp.First <= offset
}

func (s *spanSet) front() (Span, bool) {
	if s.spans == 0 {
		return Span{}, false
	}
	return s.blocks[0][0], true
}

func (s *spanSet) popFront() {
	s.count -= s.blocks[0][0].Len()
	s.spans--
	if s.blocks[0] = s.blocks[0][1:]; len(s.blocks[0]) > 0 {
		return
	}
	if s.blocks = s.blocks[1:]; len(s.blocks) == 0 {
		s.blocks = nil
	}
}

// add puts first..last in the set and returns how many offsets were new.
func (s *spanSet) add(first, last int64) int64 {
	bi, i := s.find(first - 1)
	if bi == len(s.blocks) {
		s.pushBack(Span{first, last})
		return last - first + 1
	}
	at := &s.blocks[bi][i]
	if at.First > last+1 {
		s.insert(bi, i, Span{first, last})
		return last - first + 1
	}
	before := s.count
	s.count -= at.Len()
	at.First, at.Last = min(at.First, first), max(at.Last, last)
	s.swallow(bi, i)
	s.count += s.blocks[bi][i].Len()
	return s.count - before
}

// swallow merges the spans behind blocks[bi][i] that it now reaches.
func (s *spanSet) swallow(bi, i int) {
	at := &s.blocks[bi][i]
	absorb := func(b []Span) int {
		n := 0
		for n < len(b) && b[n].First <= at.Last+1 {
			at.Last = max(at.Last, b[n].Last)
			s.count -= b[n].Len()
			n++
		}
		s.spans -= n
		return n
	}
	n := absorb(s.blocks[bi][i+1:])
	s.blocks[bi] = slices.Delete(s.blocks[bi], i+1, i+1+n)
	if i+1 < len(s.blocks[bi]) {
		return
	}
	whole := bi + 1
	for whole < len(s.blocks) {
		n := absorb(s.blocks[whole])
		if n < len(s.blocks[whole]) {
			s.blocks[whole] = s.blocks[whole][n:]
			break
		}
		whole++
	}
	s.blocks = slices.Delete(s.blocks, bi+1, whole)
}

// pushBack adds a span that lies behind all others and touches none.
func (s *spanSet) pushBack(sp Span) {
	s.spans++
	s.count += sp.Len()
	if n := len(s.blocks); n > 0 && len(s.blocks[n-1]) < spanBlock {
		s.blocks[n-1] = append(s.blocks[n-1], sp)
		return
	}
	s.blocks = append(s.blocks, []Span{sp})
}

// insert adds a span that touches none before blocks[bi][i].
func (s *spanSet) insert(bi, i int, sp Span) {
	s.spans++
	s.count += sp.Len()
	b := s.blocks[bi]
	if len(b) < spanBlock {
		s.blocks[bi] = slices.Insert(b, i, sp)
		return
	}
	const half = spanBlock / 2
	right := append(make([]Span, 0, spanBlock), b[half:]...)
	s.blocks[bi] = b[:half]
	s.blocks = slices.Insert(s.blocks, bi+1, right)
	if i > half {
		bi, i = bi+1, i-half
	}
	s.blocks[bi] = slices.Insert(s.blocks[bi], i, sp)
}

// countFrom returns how many offsets of the set are at or above offset. It
// walks the spans above it.
func (s *spanSet) countFrom(offset int64) (n int64) {
	bi, i := s.find(offset)
	for ; bi < len(s.blocks); bi, i = bi+1, 0 {
		for _, sp := range s.blocks[bi][i:] {
			n += sp.Last - max(sp.First, offset) + 1
		}
	}
	return n
}

// cut takes first..last out of the set. It rebuilds the set: for small sets.
func (s *spanSet) cut(first, last int64) {
	old := *s
	*s = spanSet{}
	for sp := range old.all() {
		if left := min(sp.Last, first-1); sp.First <= left {
			s.pushBack(Span{sp.First, left})
		}
		if right := max(sp.First, last+1); right <= sp.Last {
			s.pushBack(Span{right, sp.Last})
		}
	}
}

func (s *spanSet) all() iter.Seq[Span] {
	return func(yield func(Span) bool) {
		for _, b := range s.blocks {
			for _, sp := range b {
				if !yield(sp) {
					return
				}
			}
		}
	}
}

// pushSpan appends first..last to a list in arrival order, joined with the last
// one if they touch.
func pushSpan(list []Span, first, last int64) []Span {
	if n := len(list); n > 0 {
		tail := &list[n-1]
		if first == tail.Last+1 {
			tail.Last = last
			return list
		}
		if last == tail.First-1 {
			tail.First = first
			return list
		}
	}
	return append(list, Span{first, last})
}

// normalize sorts a list and joins what touches or overlaps.
func normalize(list []Span) []Span {
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b Span) int { return compare(a.First, b.First) })
	out := list[:1]
	for _, sp := range list[1:] {
		if tail := &out[len(out)-1]; sp.First <= tail.Last+1 {
			tail.Last = max(tail.Last, sp.Last)
		} else {
			out = append(out, sp)
		}
	}
	return out
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
