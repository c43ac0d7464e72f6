package placement

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// publication is a publish on its way into a draft: a record, what it is stored once
// for, and keyed writes that go into the same entry.
type publication struct {
	set     *TargetSet // nil: there are only the writes
	r       *kernel.Record
	once    kernel.Once // if that is not zero
	command []byte      // of the writes; nil = none
	done    kernel.Completion
	token   uint64
}

// publish is all kinds of appending one record.
func (g *Group) publish(p *publication) error {
	err := g.prop.append(p, g.limits.RecordBytes)
	switch {
	case err != error(errQueueFull):
		return err
	case p.once.Session == "" && !p.once.Whole:
		return g.appendLacking(p)
	}
	// A refused use of a number leaves nothing behind: it may be used again.
	_, full := g.prop.split(p.set, int64(len(p.r.Value)))
	g.refused(full, p.r)
	return err
}

// appendLacking is appendPartly to the targets that do not have the message yet: those
// that have it do not refuse it.
func (g *Group) appendLacking(p *publication) error {
	if p.once.ID == (kernel.DedupID{}) {
		return g.appendPartly(p)
	}
	missing := g.machine.lacking(p.set, p.once.ID, g.prop.clock.wall())
	switch {
	case len(missing) > 0:
		p.set = g.Targets(missing...)
		if err := g.prop.append(p, g.limits.RecordBytes); err != error(errQueueFull) {
			return err
		}
		return g.appendPartly(p)
	case p.command != nil:
		p.set = nil // the writes are left
		return g.prop.append(p, g.limits.RecordBytes)
	}
	if p.done != nil {
		p.done.Completed(p.token, kernel.Result{Offset: -1})
		p.done.Flush()
	}
	return nil
}

// append adds a publish to the open draft. errQueueFull: a target is full, and
// nothing has been added.
func (p *proposer) append(pub *publication, most int) error {
	size := len(pub.command)
	if pub.set != nil {
		n := record.EncodedSize(pub.r)
		if n > most {
			return errTooLarge
		}
		size += n
	}
	p.mu.Lock()
	if err := p.admit(); err != nil {
		p.mu.Unlock()
		return err
	}
	if pub.set != nil && p.refuses(pub.set, 1, int64(len(pub.r.Value))) {
		p.mu.Unlock()
		return errQueueFull
	}
	d := p.draftFor(size)
	if pub.set != nil {
		p.carry(d, pub)
	}
	if pub.command != nil {
		if pub.set != nil {
			d.post(pub.command, nil, 0) // the record's completion speaks for both
		} else {
			d.post(pub.command, pub.done, pub.token)
		}
		p.added(d, len(pub.command))
	}
	due := p.due()
	p.mu.Unlock()
	if due {
		p.seal()
	}
	return nil
}

// carry adds the record of a publish to a draft. One that is stored once is a batch
// of its own, so that the machine can drop it alone. The caller holds mu.
func (p *proposer) carry(d *draft, pub *publication) {
	var b *batch
	once, extra := !pub.once.IsZero(), 0
	if !once {
		b = d.joinable(pub.set)
	}
	if b == nil {
		b = d.open(pub.set, p.newBatch())
	}
	if once {
		b.set, b.once = nil, pub.once // nothing joins it
		extra = onceSize(&b.once)
	}
	before := b.builder.Size()
	delta := b.builder.Append(pub.r)
	b.expires(pub.r)
	p.enter(pub.set, d.flight, 1, int64(len(pub.r.Value)))
	p.added(d, b.builder.Size()-before+extra)
	d.owe(pub.done, pub.token, b, delta)
}
