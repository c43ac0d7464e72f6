package retain

import "strings"

// due is when a message expires. The message of that name may have another
// expiry by now.
type due struct {
	at   int64 // ms since 1970
	name string
}

// dueHeap has the earliest first.
type dueHeap []due

func (h *dueHeap) push(d due) {
	*h = append(*h, d)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if s[up].at <= s[i].at {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *dueHeap) pop() due {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	s[last] = due{}
	s = s[:last]
	*h = s
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if s[c].at < s[least].at {
				least = c
			}
		}
		if least == i {
			return first
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}

// rebuild leaves out what is outdated.
func (x *Index) rebuild() {
	x.due = x.due[:0]
	for _, b := range x.blocks {
		for i := range b.at {
			if it := b.item(i); it.expires != 0 {
				x.due.push(due{it.expires, strings.Clone(it.name)})
			}
		}
	}
}

// Expired is a topic whose message has expired.
type Expired struct {
	Name  string
	Index uint64 // of the log, that wrote it: a later one is not meant
}

// Expire returns up to max topics whose messages expired at or before now (ms
// since 1970), each once. They stay in the index until Delete. wait is when the next
// one expires, 0 = none does.
func (x *Index) Expire(now int64, max int) (list []Expired, wait int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.due) > 0 && len(list) < max && x.due[0].at <= now {
		d := x.due.pop()
		if b, i, ok := x.find(d.name); ok {
			if it := x.blocks[b].item(i); it.expires == d.at {
				list = append(list, Expired{d.name, it.index})
			}
		}
	}
	if len(x.due) > 0 {
		wait = x.due[0].at
	}
	return list, wait
}

// Again has Expire return a topic once more: it could not be deleted.
func (x *Index) Again(e Expired) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if b, i, ok := x.find(e.Name); ok {
		if it := x.blocks[b].item(i); it.index == e.Index {
			x.due.push(due{it.expires, e.Name})
		}
	}
}
