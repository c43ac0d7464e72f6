package placement

import (
	"sync"
	"time"
)

// How much a proposer keeps for reuse.
const (
	keepBatches = 4 << 20 // bytes
	keepDrafts  = 8
)

func (p *proposer) newBatch() *batch {
	if n := len(p.batches); n > 0 {
		b := p.batches[n-1]
		p.batches = p.batches[:n-1]
		p.kept -= b.kept
		return b
	}
	return new(batch)
}

func (p *proposer) newDraft() *draft {
	var d *draft
	if n := len(p.drafts); n > 0 {
		d = p.drafts[n-1]
		p.drafts = p.drafts[:n-1]
	} else {
		d = new(draft)
	}
	if n := len(p.spare); n > 0 {
		d.flight = p.spare[n-1]
		p.spare = p.spare[:n-1]
	} else {
		d.flight = new(flight)
	}
	d.size = headerSize
	return d
}

// recycle takes back a draft that has been encoded.
func (p *proposer) recycle(d *draft) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range d.batches {
		b.set, b.draft, b.targets = nil, nil, nil
		if b.kept = max(b.builder.Size(), cap(b.raw)); p.kept+b.kept <= keepBatches {
			p.kept += b.kept
			p.batches = append(p.batches, b)
		}
	}
	clear(d.batches)
	clear(d.commands)
	settles := d.settles[:0]
	if cap(settles) > 2*settleCap {
		settles = nil
	}
	*d = draft{batches: d.batches[:0], commands: d.commands[:0], settles: settles, trims: d.trims[:0]}
	if len(p.drafts) < keepDrafts {
		p.drafts = append(p.drafts, d)
	}
}

// landed takes back flights that have been answered, and their bytes.
func (p *proposer) landed(flights []*flight) {
	var bytes int64
	p.mu.Lock()
	for _, f := range flights {
		bytes += f.bytes
		f.reset()
		if len(p.spare) < keepDrafts {
			p.spare = append(p.spare, f)
		}
	}
	p.mu.Unlock()
	if p.bytes.Add(-bytes) <= p.limit/2 {
		p.gate.open()
	}
}

// tailOf returns the tail of a partition. The caller holds mu.
func (p *proposer) tailOf(id PartitionID) *tail {
	t := p.tails[id]
	if t == nil {
		t = new(tail)
		p.tails[id] = t
	}
	return t
}

// forget drops the tail of a partition that is gone.
func (p *proposer) forget(id PartitionID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.tails, id)
}

// wait is Group.Wait.
func (p *proposer) wait(stop <-chan struct{}) error {
	if p.bytes.Load() <= p.limit {
		return nil
	}
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	for {
		opened := p.gate.wait()
		if p.bytes.Load() <= p.limit {
			return nil
		}
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped {
			return errStopped
		}
		select {
		case <-opened:
		case <-stop:
			return nil
		case <-timer.C:
			return nil // a slow disk: the publisher goes on slowly, within what Append takes
		}
	}
}

// gate wakes any number of waiters at once.
type gate struct {
	mu sync.Mutex
	ch chan struct{} // nil while nobody waits
}

// wait returns a channel that is closed at the next open.
func (g *gate) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
}
