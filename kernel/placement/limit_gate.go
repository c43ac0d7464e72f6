package placement

import (
	"slices"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// errQueueFull is the outcome of a publish that a full queue refuses.
var errQueueFull = &kernel.Error{Code: kernel.CodeLimit, Object: "queue", Detail: "a queue that the message was routed to is full and rejects it"}

// IsQueueFull says whether an outcome is the refusal of a full queue, and not of
// a node that is short of something.
func IsQueueFull(err error) bool { return err == error(errQueueFull) }

// brim refuses publishes to a share that is full. The shard says how many records
// of the topic are not ready any more, as of one moment; what has been appended
// since, and what is on its way, counts as ready. So it errs on the safe side, by
// no more than what is in flight, and not at all for a publisher that waits for
// its confirms.
type brim struct {
	share       *share
	max         int64 // records, negative is no bound
	maxBytes    int64
	deadLetters bool // a record that is refused is dead-lettered
	gone        atomic.Int64
	goneBytes   atomic.Int64

	pending, pendingBytes int64 // accepted and not applied; under the proposer's mutex
}

// guarded is what a flight holds against a gate.
type guarded struct {
	gate  *brim
	n     int64
	bytes int64
}

// full says whether n records of so many bytes are too much. The proposer's mutex
// is held.
func (g *brim) full(n, bytes int64) bool {
	t := g.share.topic
	if g.max >= 0 && t.ends.Load()-g.gone.Load()+g.pending+n > g.max {
		return true
	}
	return g.maxBytes >= 0 && t.tally.load()-g.goneBytes.Load()+g.pendingBytes+bytes > g.maxBytes
}

// guard makes, changes or removes the gate of a share, as its limits are.
func (s *shard) guard(sh *share) {
	l := &sh.limits
	if s.term == 0 || sh.gone || sh.group == nil || l.Overflow == kernel.DropHead || l.MaxLength < 0 && l.MaxBytes < 0 {
		s.unguard(sh)
		return
	}
	old := sh.gate
	sh.gate = &brim{
		share: sh, max: l.MaxLength, maxBytes: l.MaxBytes,
		deadLetters: l.Overflow == kernel.RejectPublishDeadLetter && l.DeadLetter,
	}
	sh.extend()
	sh.tell(sh.gate)
	s.prop.guard(sh.topic.lane.parts, old, sh.gate)
}

func (s *shard) unguard(sh *share) {
	if sh.gate != nil {
		s.prop.guard(sh.topic.lane.parts, sh.gate, nil)
		sh.gate = nil
	}
}

// tell brings a gate up to date.
func (sh *share) tell(g *brim) {
	if sh.group == nil {
		return
	}
	var ends int64
	for _, w := range sh.windows {
		ends += w.known
	}
	ready := sh.group.Ready()
	wanted := max(0, sh.group.Demand()-ready) // members will take so many more at once
	dead := int64(0)
	if sh.limits.AtLeastOnce { // they take up room until their dead letters are safe
		dead = sh.waitingDead()
	}
	if sh.room() == 0 || dead > 0 && g.max >= 0 && dead >= g.max || g.maxBytes >= 0 && sh.graveBytes > 0 && sh.graveBytes >= g.maxBytes {
		wanted = 0
	}
	g.gone.Store(ends - ready - dead + wanted)
	if g.maxBytes >= 0 {
		g.goneBytes.Store(sh.goneBytes(wanted > 0))
	}
}

// goneBytes returns how many of the bytes that the topic has counted are not
// ready.
func (sh *share) goneBytes(wanted bool) int64 {
	t := &sh.topic.tally
	t.mu.Lock()
	gone := t.bytes
	at := make([]int64, len(sh.windows))
	for i, w := range sh.windows {
		at[i] = w.part.tallied
	}
	t.mu.Unlock()
	for i, w := range sh.windows {
		z := w.measured(max(at[i], w.known))
		gone -= w.readyBytes() + z.to(at[i]) - z.to(w.known)
	}
	if wanted {
		gone += sh.limits.MaxBytes
	}
	return gone - sh.graveBytes
}

// guard replaces a gate of partitions by another one. What is in flight stays
// with the old one's count: it is resolved soon.
func (p *proposer) guard(parts []*partition, old, new *brim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old != nil && new != nil {
		new.pending, new.pendingBytes = old.pending, old.pendingBytes
	}
	replace := func(list []guarded) {
		for i := range list {
			if list[i].gate == old && new != nil {
				list[i].gate = new
			}
		}
	}
	if old != nil {
		for _, f := range p.flights {
			replace(f.guards)
		}
		for _, d := range append(p.full, p.open) {
			replace(d.flight.guards)
		}
	}
	for _, part := range parts {
		t := p.tailOf(part.id)
		t.gates = slices.DeleteFunc(slices.Clone(t.gates), func(g *brim) bool { return g == old || g == new })
		if new != nil {
			t.gates = append(t.gates, new)
		}
	}
}

// refuses says whether a target of a set is full. The mutex is held.
func (p *proposer) refuses(set *TargetSet, n, bytes int64) bool {
	for _, t := range set.tails {
		for _, g := range t.gates {
			if g.full(n, bytes) {
				return true
			}
		}
	}
	return false
}

// enter counts what has been accepted at the gates it came through. The mutex is
// held.
func (p *proposer) enter(set *TargetSet, f *flight, n, bytes int64) {
	for _, t := range set.tails {
		for _, g := range t.gates {
			g.pending += n
			g.pendingBytes += bytes
			i := slices.IndexFunc(f.guards, func(x guarded) bool { return x.gate == g })
			if i < 0 {
				i = len(f.guards)
				f.guards = append(f.guards, guarded{gate: g})
			}
			f.guards[i].n += n
			f.guards[i].bytes += bytes
		}
	}
}

// release takes a flight that is resolved off its gates. The mutex is held.
func (p *proposer) release(f *flight) {
	for _, x := range f.guards {
		x.gate.pending -= x.n
		x.gate.pendingBytes -= x.bytes
	}
	clear(f.guards)
	f.guards = f.guards[:0]
}

// sizeOf returns what a ready batch counts at the gates of a set.
func (p *proposer) sizeOf(set *TargetSet, raw []byte) (n, bytes int64) {
	p.mu.Lock()
	sized := slices.ContainsFunc(set.tails, func(t *tail) bool {
		return slices.ContainsFunc(t.gates, func(g *brim) bool { return g.maxBytes >= 0 })
	})
	p.mu.Unlock()
	if sized {
		var it record.Iter
		bytes = payload(raw, &it, &record.Decompressor{})
	}
	return int64(record.Count(raw)), bytes
}

// appendPartly appends to the targets of a set that are not full. The outcome is
// errQueueFull whatever becomes of that.
func (g *Group) appendPartly(p *publication) error {
	for {
		open, full := g.prop.split(p.set, int64(len(p.r.Value)))
		if len(full) > 0 && p.done != nil {
			p.done = &overflowed{to: p.done, token: p.token}
		}
		g.refused(full, p.r)
		switch {
		case len(open) > 0:
			p.set = g.Targets(open...)
		case p.command != nil:
			p.set = nil // the writes are left
		default:
			if p.done != nil {
				p.done.Completed(p.token, kernel.Result{Offset: -1})
				p.done.Flush()
			}
			return nil
		}
		if err := g.prop.append(p, g.limits.RecordBytes); err != error(errQueueFull) {
			return err
		}
	}
}

// Full returns the error of IsQueueFull if a target is full and rejects a record, as of
// now, and makes its dead letters then: who has the record in several groups or in none
// asks those to which it is appended last.
func (g *Group) Full(set *TargetSet, r *kernel.Record) error {
	_, full := g.prop.split(set, int64(len(r.Value)))
	if len(full) == 0 {
		return nil
	}
	g.refused(full, r)
	return errQueueFull
}

// refused makes the dead letters of a record that full queues have refused.
func (g *Group) refused(full []*brim, r *kernel.Record) {
	for _, x := range full {
		if x.deadLetters {
			g.buryRefused(x.share, r)
		}
	}
}

// split returns which targets of a set have room for a record, and the gates of
// those that have not.
func (p *proposer) split(set *TargetSet, bytes int64) (open []PartitionID, full []*brim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range set.tails {
		at := slices.IndexFunc(t.gates, func(g *brim) bool { return g.full(1, bytes) })
		if at < 0 {
			open = append(open, set.parts[i])
		} else {
			full = append(full, t.gates[at])
		}
	}
	return open, full
}

// overflowed is the completion of a publish that a full queue has refused: that
// is its outcome, when the other queues have theirs.
type overflowed struct {
	to    kernel.Completion
	token uint64
}

// Completed implements kernel.Completion.
func (o *overflowed) Completed(_ uint64, res kernel.Result) {
	if res.Err == nil {
		res.Err = errQueueFull
	}
	o.to.Completed(o.token, kernel.Result{Offset: -1, Err: res.Err})
}

// Flush implements kernel.Completion.
func (o *overflowed) Flush() { o.to.Flush() }
