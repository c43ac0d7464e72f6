package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rules are what is promised to the clients of a topic.
type Rules struct {
	// Grace is how long an acceptance may take from the client to the log while
	// its connection lives, and how long a connection may outlive its leader. After
	// that, a settled message must not come again, and nobody else may get a
	// message that is held.
	Grace time.Duration

	// Once says that producers are idempotent: a message is in the log once at
	// most, whatever its outcomes.
	Once bool
}

// Violation is something that was promised not to happen.
type Violation struct {
	Kind    string // lost, invented, duplicate, order, again, twice, unmarked
	Payload string
	Detail  string
}

// String implements fmt.Stringer.
func (v Violation) String() string { return v.Kind + " " + v.Payload + ": " + v.Detail }

// Check judges the history. The log must have been replayed.
func (t *Topic) Check(r Rules) []Violation {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := checker{rules: r, first: map[string]int{}, count: map[string]int{}}
	if !t.replayed {
		return []Violation{{Kind: "unread", Detail: "the log of " + t.Name + " was not replayed"}}
	}
	for offset, payload := range t.log {
		if c.count[payload]++; c.count[payload] == 1 {
			c.first[payload] = offset
		}
		if m := t.messages[payload]; m == nil || len(m.attempts) == 0 {
			c.add("invented", payload, "in the log at %d, never published", offset)
		}
	}
	for payload, m := range t.messages {
		c.stored(payload, m)
		c.held(payload, m)
	}
	c.realTime(t)
	c.connections(t)
	slices.SortFunc(c.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Payload, b.Payload))
	})
	return c.found
}

type checker struct {
	rules Rules
	first map[string]int // offset of the first copy
	count map[string]int
	found []Violation
}

func (c *checker) add(kind, payload, detail string, args ...any) {
	c.found = append(c.found, Violation{kind, payload, fmt.Sprintf(detail, args...)})
}

// stored: a confirmed message is there, and there are no more copies than
// attempts that may have stored one.
func (c *checker) stored(payload string, m *message) {
	n, ok, unknown := c.count[payload], 0, 0
	for _, a := range m.attempts {
		switch a.Outcome {
		case OK:
			ok++
		case Unknown:
			unknown++
		}
	}
	switch {
	case ok > 0 && n == 0:
		a := m.confirmed()
		c.add("lost", payload, "confirmed to %s at %s, not in the log", a.Producer, clock(a.End))
	case n > ok+unknown, c.rules.Once && n > 1:
		c.add("duplicate", payload, "%d copies of %d confirmed and %d unknown attempts", n, ok, unknown)
	case len(m.attempts) == 0 && len(m.held) > 0 && n == 0:
		c.add("invented", payload, "delivered to %s, never published", m.held[0].Member)
	case len(m.held) > 0 && n == 0:
		// Delivered means committed: what was delivered is in the log for good.
		c.add("lost", payload, "delivered to %s at %s, not in the log", m.held[0].Member, clock(m.held[0].Begin))
	}
}

// held: within a group a settled message does not come again, one member has it
// at a time, and a second delivery is marked.
func (c *checker) held(payload string, m *message) {
	held := slices.Clone(m.held)
	slices.SortStableFunc(held, func(a, b *Holding) int { return a.Begin.Compare(b.Begin) })
	for i, a := range held {
		for _, b := range held[i+1:] {
			if a.Group != b.Group || c.count[payload] > 1 {
				continue // another group, or perhaps another copy
			}
			c.pair(payload, a, b)
		}
	}
}

func (c *checker) pair(payload string, a, b *Holding) {
	alive := a.Over
	if alive.IsZero() {
		alive = time.Now()
	}
	if !a.Settled.IsZero() {
		if sure := a.Settled.Add(c.rules.Grace); alive.After(sure) && b.Begin.After(sure) {
			c.add("again", payload, "%s: settled by %s at %s, delivered to %s at %s",
				a.Group, a.Member, clock(a.Settled), b.Member, clock(b.Begin))
		}
	} else if b.Begin.Add(c.rules.Grace).Before(alive) {
		c.add("twice", payload, "%s: %s has it since %s and is connected until %s, delivered to %s at %s",
			a.Group, a.Member, clock(a.Begin), clock(alive), b.Member, clock(b.Begin))
	}
	// Of two on their way through different nodes the second may arrive first.
	crossed := a.Marked && b.Begin.Before(a.Begin.Add(c.rules.Grace))
	if !b.Marked && a.Member != b.Member && !crossed {
		c.add("unmarked", payload, "%s: to %s at %s (marked: %v), again to %s at %s, not marked as redelivered",
			a.Group, a.Member, clock(a.Begin), a.Marked, b.Member, clock(b.Begin))
	}
}

// realTime: a message whose publishing began after another's was confirmed has
// the higher offset.
func (c *checker) realTime(t *Topic) {
	var latest time.Time // begin of any message at a lower offset
	var who string
	for offset, payload := range t.log {
		m := t.messages[payload]
		if m == nil || len(m.attempts) == 0 || c.first[payload] != offset {
			continue
		}
		if a := m.confirmed(); a != nil && a.End.Before(latest) {
			c.add("order", payload, "at %d, confirmed at %s, behind %s, whose publishing began at %s", offset, clock(a.End), who, clock(latest))
		}
		if begin := m.attempts[0].Begin; begin.After(latest) {
			latest, who = begin, payload
		}
	}
}

// connections: what one producer sent over one connection is in the order sent.
func (c *checker) connections(t *Topic) {
	type connection struct {
		producer string
		epoch    int
	}
	last := map[connection]int{}
	for offset, payload := range t.log {
		m := t.messages[payload]
		if m == nil || len(m.attempts) != 1 || c.first[payload] != offset {
			continue // attempts on several connections: nobody knows which one this is
		}
		a := m.attempts[0]
		by := connection{a.Producer, a.Epoch}
		if before, ok := last[by]; ok && a.Seq < before {
			c.add("order", payload, "at %d: number %d of connection %d of %s, behind number %d", offset, a.Seq, a.Epoch, a.Producer, before)
			continue
		}
		last[by] = a.Seq
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }
