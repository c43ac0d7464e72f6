package placement

import "github.com/trivium-mq/trivium/kernel"

// A leader decides what of a topic may go by the state that its shard knows. What is on
// its way may change that: a group that begins with what is there, or becomes an owner, or
// is moved back, holds records that nobody held before; another retention keeps them
// longer. So the proposer knows of these changes of a topic from before they are in a draft
// until the topic's shard has taken them in, or they have failed, and adds no trim of it
// meanwhile. All changes and trims that count in a term are of one proposer, and a trim is
// in the log before every change that was proposed later: replicas need not check anything.

// changes is how many changes of topics are on their way. It belongs to the proposer.
type changes map[kernel.TopicID]int

func (c changes) begin(topics ...kernel.TopicID) {
	for _, id := range topics {
		c[id]++
	}
}

func (c changes) end(id kernel.TopicID) {
	if c[id]--; c[id] <= 0 {
		delete(c, id)
	}
}

// changed is told by the shard of a topic that a change has come to it, or has failed.
func (p *proposer) changed(id kernel.TopicID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes.end(id)
}

// changed ends the changes of flights that are resolved: each in its shard, which has
// been told by the machine before what they were.
func (g *Group) changed(flights []*flight) {
	for _, f := range flights {
		for _, id := range f.changes {
			t := g.machine.topic(id)
			if t == nil || !t.shard.ask(func() { t.shard.changed(id) }) {
				g.prop.changed(id)
			}
		}
	}
}

// changed ends a change. Trims of this step may have been decided before it came.
func (s *shard) changed(id kernel.TopicID) {
	s.commitTrims()
	s.prop.changed(id)
}

// move adds the moves of a group's windows, made in term, and returns where it is told
// that they are applied, or were refused.
func (p *proposer) move(term uint64, section []byte, topic kernel.TopicID) (<-chan commandResult, error) {
	p.mu.Lock()
	if p.stopped || p.term == 0 || p.term != term {
		p.mu.Unlock()
		return nil, errNotLeading
	}
	barrier := barrierCommand()
	d := p.draftFor(len(section) + len(barrier))
	d.settles = append(d.settles, section...)
	d.size += len(section)
	ch := p.request(d, barrier, topic)
	due := p.due()
	p.mu.Unlock()
	if due {
		p.seal()
	}
	return ch, nil
}

// unlessChanging is command for what a shard has decided about a topic: errChanging while
// changes of the topic are on their way.
func (p *proposer) unlessChanging(body []byte, topic kernel.TopicID) (<-chan commandResult, error) {
	p.mu.Lock()
	changing := p.changes[topic] > 0
	p.mu.Unlock()
	if changing { // else the shard has taken in all moves, which only it makes
		return nil, errChanging
	}
	return p.command(body)
}

// cut is a trim that is to be logged.
type cut struct {
	part  *partition
	start int64
}

// trim adds trims decided in term, and returns those that it has not added because their
// topics change: they are to be decided again. It leaves cuts alone.
func (p *proposer) trim(term uint64, cuts []cut) (left []cut) {
	p.mu.Lock()
	if p.stopped || p.term == 0 || p.term != term {
		p.mu.Unlock() // its leadership is over
		return nil
	}
	d := p.draftFor(len(cuts) * trimSectionSize)
	before := len(d.trims)
	for _, c := range cuts {
		if p.changes[c.part.topic.id] > 0 && !staleTrims {
			left = append(left, c)
			continue
		}
		d.trims = appendTrimSection(d.trims, c.part.id, c.start)
	}
	d.size += len(d.trims) - before
	p.leave(d)
	return left
}

// again puts the settlements of a flight that was refused into the open draft. Its trims
// are not repeated: changes may have overtaken them.
func (p *proposer) again(f *flight) {
	d := p.draftFor(len(f.settles))
	d.settles = append(d.settles, f.settles...)
	d.size += len(f.settles)
	d.flight.changes = append(d.flight.changes, f.changes...) // moves are among the settlements
	f.changes = f.changes[:0]
}

// belowEnd says whether a group may begin with records that are there.
func (s *GroupSpec) belowEnd() bool {
	return s.FromStart && s.Start.Kind == 0 || s.Start.Kind != 0 && s.Start.Kind != kernel.AtEnd
}

// changing lists the topics that a new group changes.
func (s *GroupSpec) changing() []kernel.TopicID {
	if !s.belowEnd() {
		return nil // whatever is trimmed lies below
	}
	return []kernel.TopicID{s.Topic}
}

// commitTrims hands over the trims of this step.
func (s *shard) commitTrims() {
	if len(s.cuts) == 0 {
		return
	}
	for _, c := range s.prop.trim(s.term, s.cuts) {
		c.part.cut.asked = 0
		s.list(c.part)
	}
	clear(s.cuts)
	s.cuts = s.cuts[:0]
}
