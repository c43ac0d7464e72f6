package forward

import (
	"math"
	"slices"
)

// stored looks at a record that is there. mu is held.
func (t *truth) stored(q *wqueue, r *wrecord, at int64) {
	a := t.attempts[r.attempt]
	switch {
	case a == nil:
		t.fail("%s/%d is %q, which nobody has sent", q.name, at, r.attempt)
	case a.fate == isRefused:
		t.fail("%s/%d is %s, which was refused", q.name, at, a.name)
	case !slices.Contains(a.of.queues, q.name):
		t.fail("%s is in %s", a.name, q.name)
	case len(q.of[a.name]) > 1:
		t.fail("%s is in %s at %d", a.name, q.name, q.of[a.name])
	}
}

// sends notes an attempt that is about to be made.
func (t *truth) sends(m *wmessage, name, order string) *wattempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	a := &wattempt{name: name, of: m, sent: t.clock, order: order}
	t.attempts[name] = a
	t.messages[m.name] = m
	return a
}

// tells notes what a publisher was told of an attempt.
func (t *truth) tells(a *wattempt, f fate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.fate != isOpen && f != isUnknown {
		t.fail("%s is %v, and was %v", a.name, f, a.fate)
	}
	t.clock++
	a.fate, a.confirmed = f, t.clock
	switch f {
	case isConfirmed:
		t.seen["confirmed"]++
		a.of.done = true
	case isRefused:
		t.seen["refused"]++
		for _, name := range a.of.queues {
			if n := t.queues[name].of[a.name]; len(n) > 0 {
				t.fail("%s is refused, and is in %s at %d", a.name, name, n)
			}
		}
	case isUnknown:
		t.seen["unknown"]++
	}
}

// abandons notes that the publisher of an attempt will be told nothing of it.
func (t *truth) abandons(a *wattempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.fate == isOpen {
		a.fate = isUnknown
	}
}

// judge looks at everything when all was consumed.
func (t *truth) judge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.messages {
		if !m.done {
			t.fail("%s was never confirmed", m.name)
		}
	}
	copies := make(map[string]int)
	for _, a := range t.attempts {
		for _, name := range a.of.queues {
			n := len(t.queues[name].of[a.name])
			if a.fate == isConfirmed && n == 0 && !a.of.once {
				t.fail("%s was confirmed, and is not in %s", a.name, name)
			}
			if a.of.once {
				copies[name+" "+a.of.name] += n
			}
		}
	}
	for _, m := range t.messages {
		for _, name := range m.queues {
			if n := copies[name+" "+m.name]; m.once && n != 1 {
				t.fail("%s has an id, and is in %s %d times", m.name, name, n)
			}
		}
	}
	for _, q := range t.queues {
		t.order(q)
	}
}

// order looks at the order of a queue. What was sent after something was confirmed is
// behind that, and what one publisher has sent is in that order.
func (t *truth) order(q *wqueue) {
	offsets := make([]int64, 0, len(q.records))
	for at := range q.records {
		offsets = append(offsets, at)
	}
	slices.Sort(offsets)
	last := make(map[string]*wattempt)
	for _, at := range offsets {
		a := t.attempts[q.records[at].attempt]
		if a == nil {
			continue
		}
		if before := last[a.order]; before != nil && before.sent > a.sent {
			t.fail("%s is behind %s in %s", a.name, before.name, q.name)
		}
		last[a.order] = a
	}
	first, who := int64(math.MaxInt64), ""
	for _, at := range slices.Backward(offsets) {
		a := t.attempts[q.records[at].attempt]
		if a == nil {
			continue
		}
		if a.sent > first {
			t.fail("%s was sent after %s was confirmed, and is before it in %s", a.name, who, q.name)
		}
		if a.fate == isConfirmed && a.confirmed < first {
			first, who = a.confirmed, a.name
		}
	}
}
