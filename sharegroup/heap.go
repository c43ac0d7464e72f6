package sharegroup

// mark is an entry of a markHeap: a deadline and the offset it is for, or the
// base of a page.
type mark struct {
	key, offset int64
}

func (m mark) before(o mark) bool {
	return m.key < o.key || m.key == o.key && m.offset < o.offset
}

// markHeap is a binary heap, lowest first. Entries are not removed when they
// have become pointless; whoever meets one drops it.
type markHeap []mark

func (h *markHeap) push(m mark) {
	*h = append(*h, m)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			return
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

func (h *markHeap) pop() {
	s := *h
	n := len(s) - 1
	s[0] = s[n]
	*h = s[:n]
	h.down(0)
	if n == 0 {
		*h = clip(*h)
	}
}

func (h markHeap) down(i int) {
	for {
		kid := 2*i + 1
		if kid >= len(h) {
			return
		}
		if kid+1 < len(h) && h[kid+1].before(h[kid]) {
			kid++
		}
		if !h[kid].before(h[i]) {
			return
		}
		h[i], h[kid] = h[kid], h[i]
		i = kid
	}
}

// filter keeps what keep says and restores the order.
func (h *markHeap) filter(keep func(mark) bool) {
	s := (*h)[:0]
	for _, m := range *h {
		if keep(m) {
			s = append(s, m)
		}
	}
	for i := len(s)/2 - 1; i >= 0; i-- {
		s.down(i)
	}
	*h = clip(s)
}
