package placement

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// settleDown has everything heal, the clients come to their end, and what is left
// consumed. Then nothing is missing, and all replicas are equal.
func (w *world) settleDown() {
	w.last = true
	w.net.Heal()
	for _, n := range w.nodes {
		if n.alive() {
			n.life.fault.Clear()
		} else {
			n.start()
		}
	}
	w.net.Advance(400 * time.Millisecond) // who sleeps wakes
	for _, c := range w.clients {
		if l := c.at(); l != nil {
			c.leave()
		}
	}
	for _, g := range w.truth.groups {
		w.subscribe(g, false)
	}
	for round := 0; !w.done(); round++ {
		if w.leader() == nil {
			return
		}
		if round == 60 {
			w.failf("%w: %s", errUnsettled, w.stuck())
			return
		}
		for _, c := range w.clients {
			if s, ok := c.(*wmember); ok {
				s.drain()
			}
		}
		w.quiet()
		for _, n := range w.nodes {
			if n.alive() {
				n.life.pull()
				n.life.g.tick()
			}
		}
		w.net.Advance(100 * time.Millisecond)
		w.quiet()
	}
	w.compare()
	w.truth.check()
	for _, n := range w.nodes {
		w.count(n.life)
	}
}

// drain accepts all that there is.
func (s *wmember) drain() {
	switch {
	case s.ended && s.life != nil:
		s.leave()
	case s.life == nil:
		s.join()
		return
	}
	if s.m != nil && s.life != nil {
		s.m.Credit(1 << 10)
		s.settleRun(kernel.Accept, 0, len(s.held))
	}
}

// done says whether there is nothing left to do.
func (w *world) done() bool { return w.stuck() == "" }

// stuck says what is to be waited for.
func (w *world) stuck() string {
	for _, c := range w.clients {
		if p, ok := c.(interface{ done() bool }); ok && !p.done() {
			return fmt.Sprintf("%T", c)
		}
	}
	for _, n := range w.nodes {
		l := n.life
		switch {
		case l == nil || l.raft.Behind() || l.raft.AppliedIndex() != w.nodes[0].life.raft.AppliedIndex():
			return "a replica that is behind"
		case !l.g.Whole():
			return "a replica that is not whole"
		}
		for _, g := range w.truth.groups {
			for _, win := range l.g.machine.groups[g.id].windows {
				if win.Unsettled(win.part.log.End()) > 0 {
					return "records that are not settled"
				}
			}
		}
	}
	return ""
}

// compare sees that all replicas are equal.
func (w *world) compare() {
	var want digest
	for i, n := range w.nodes {
		got, err := digestOf(n.life.g)
		if err != nil {
			w.failf("node %d: %v", i, err)
			return
		}
		if i == 0 {
			want = got
		}
		if got != want {
			w.failf("node %d is %x, the first one %x", i, got, want)
		}
		w.note(int(got.tables), int(got.windows), int(got.keys), int(got.records))
		for _, c := range w.clients {
			if k, ok := c.(*wkeys); ok {
				k.check(n.life)
			}
		}
	}
}

// check looks at what is there in the end.
func (t *truth) check() {
	g := t.w.nodes[0].life.g
	for _, id := range t.parts {
		t.checkPartition(g.machine.parts[id])
	}
	for _, x := range t.groups {
		for _, w := range g.machine.groups[x.id].windows {
			t.checkWindow(x, w)
		}
	}
	there := t.read(g.machine.parts[t.tomb])
	for token := range t.tombed {
		if !slices.Contains(there, token) {
			t.w.failf("the dead letter of record %d was committed and is gone", token)
		}
	}
}

// read returns the records of a partition.
func (t *truth) read(p *partition) (tokens []uint64) {
	c := p.log.Cursor()
	for {
		v, err := c.Next()
		if err != nil {
			t.w.failf("partition %d: %v", p.id, err)
			return tokens
		}
		if v == nil {
			return tokens
		}
		tokens = append(tokens, numberOf(v))
	}
}

// checkPartition: what was confirmed is there, once, in the order of each connection, and
// not before what was confirmed before it was sent.
func (t *truth) checkPartition(p *partition) {
	t.read(p)
	places := make(map[uint64]int64)
	last := make(map[*int]uint64)
	began := 0
	for o := range p.log.End() {
		token, ok := t.content[place{p.id, o}]
		if !ok {
			t.w.failf("partition %d: nobody has seen offset %d", p.id, o)
			return
		}
		s := t.sent[token]
		if old, ok := places[token]; ok {
			t.w.failf("partition %d: record %d is at %d and %d", p.id, token, old, o)
		}
		places[token] = o
		if s.confirmed > 0 && s.confirmed < began {
			t.w.failf("partition %d: record %d was confirmed before one was sent that is before it", p.id, token)
		}
		began = max(began, s.began)
		if len(s.tries) == 1 {
			conn := s.tries[0].conn
			if before, ok := last[conn]; ok && before > token {
				t.w.failf("partition %d: record %d comes after %d of the same connection", p.id, token, before)
			}
			last[conn] = token
		}
	}
	for _, s := range t.sent {
		_, there := places[s.token]
		if s.confirmed > 0 && !there && slices.Contains(s.parts, p.id) {
			t.w.failf("partition %d: record %d of %v was confirmed and is missing", p.id, s.token, s.parts)
		}
	}
	t.checkStart(p)
}

// checkWindow: what counts as settled was settled by an entry of the leader who had
// handed it out, see settle.
func (t *truth) checkWindow(g *wgroup, w *window) {
	for o := w.part.log.Start(); o < w.part.log.End(); o++ {
		if w.Settled(o) != (g.settled[place{w.part.id, o}] != 0) {
			t.w.failf("group %d, partition %d: offset %d is settled: %v", g.id, w.part.id, o, w.Settled(o))
		}
	}
}

// checkStart: nothing has gone that somebody who always holds it back has not settled. Of
// the others see trim.
func (t *truth) checkStart(p *partition) {
	for _, g := range t.groups {
		for o := int64(0); g.owner && !g.turns && g.topic == p.topic.id && o < p.log.Start(); o++ {
			if g.settled[place{p.id, o}] == 0 {
				t.w.failf("partition %d: offset %d has gone, group %d has not settled it", p.id, o, g.id)
			}
		}
	}
}
