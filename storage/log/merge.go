package log

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNeighbours: the segments to merge do not follow one another.
var ErrNeighbours = errors.New("log: segments are no neighbours")

// Merge begins the rewriting of segments into one: what still lives in them,
// whole batches, as of the log index of the merge command, which becomes the
// number of the new file. ids are neighbours in the order of Segments; an
// unknown one is a segment in which nothing lives any more. Writer only. The
// plan is carried through like a seal, without a checkpoint of its own; Sweep
// removes the merged segments after the next one.
//
// Merge builds on what older plans install, so it fails with ErrOrder while
// one is under way: the caller finishes that first. ErrMissing: this node
// lacks one of the segments and keeps them as they are.
func (l *Log) Merge(index uint64, ids ...uint64) (*Plan, error) {
	if len(l.plans) > 0 {
		return nil, fmt.Errorf("%w: merge %d while plan %d is under way", ErrOrder, index, l.plans[0].index)
	}
	sources, err := l.neighbours(ids)
	if err != nil {
		return nil, fmt.Errorf("log: merge %d: %w", index, err)
	}
	plan := &Plan{log: l, index: index, manifest: Manifest{Index: index}, sources: sources, merge: true}
	for _, p := range l.parts {
		p.mu.Lock()
		if from, to := p.runsIn(sources); from < to {
			runs := p.runs[from:to:to]
			plan.parts = append(plan.parts, capture{p: p, start: p.start.Load(), end: runs[len(runs)-1].End, runs: runs})
		}
		p.mu.Unlock()
	}
	l.begin(plan)
	return plan, nil
}

// neighbours finds the segments and checks that nothing that lives or may
// live is between them. Dead segments do not count: when they vanish differs
// from node to node.
func (l *Log) neighbours(ids []uint64) ([]*segmentFile, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var found []*segmentFile
	between := false
	for _, s := range l.segments {
		wanted := slices.Contains(ids, s.meta.ID)
		switch {
		case wanted && s.file == nil:
			return nil, fmt.Errorf("%w: %s", ErrMissing, SegmentName(s.meta.ID))
		case s.file != nil && s.runs.Load() == 0:
		case wanted && between:
			return nil, fmt.Errorf("%w: %x", ErrNeighbours, ids)
		case wanted:
			found = append(found, s)
		case len(found) > 0:
			between = true
		}
	}
	return found, nil
}

// runsIn returns the range of the partition's runs that lie in the segments.
// The caller holds mu.
func (p *Partition) runsIn(segments []*segmentFile) (from, to int) {
	in := func(r run) bool { return slices.Contains(segments, r.seg) }
	if from = slices.IndexFunc(p.runs, in); from < 0 {
		return 0, 0
	}
	to = from
	for to < len(p.runs) && in(p.runs[to]) {
		to++
	}
	return from, to
}

// replace puts the merged run in the place of those that it was made of.
// Where they have all been trimmed or dropped, it is dead too.
func (p *Partition) replace(sources []*segmentFile, r run) {
	p.mu.Lock()
	from, to := p.runsIn(sources)
	gone := p.runs[from:to]
	if from < to {
		p.runs = slices.Replace(slices.Clone(p.runs), from, to, r)
		p.hold(&r)
	}
	p.mu.Unlock()
	p.letGo(gone, nil)
}

// Abandon gives up a merge that cannot be written, because a source turned
// out to be damaged: the segments stay as they are. Writer only. Release is
// still to be called.
func (l *Log) Abandon(p *Plan) error {
	at := slices.Index(l.plans, p)
	if at < 0 || !p.merge {
		return fmt.Errorf("%w: plan %d cannot be abandoned", ErrOrder, p.index)
	}
	l.plans = slices.Delete(l.plans, at, at+1)
	for _, later := range l.plans {
		later.needs = slices.DeleteFunc(later.needs, func(q *Plan) bool { return q == p })
	}
	if p.seg != nil {
		return p.seg.file.Close() // the next Open removes the file
	}
	return nil
}
