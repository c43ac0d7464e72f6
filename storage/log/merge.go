package log

import (
	"errors"
	"fmt"
	"slices"
)

// ErrNeighbours: the segments to merge do not follow one another.
var ErrNeighbours = errors.New("log: segments are no neighbours")

// Merge begins the rewriting of segments into one: what lives in them as of the
// log index of the merge command, which becomes the number of the new file; whole
// batches. ids are neighbours in the order of Segments; an unknown one is a segment
// in which nothing lived any more. Writer only. The plan is carried through like a
// seal, in its turn, without a checkpoint of its own; Sweep removes the merged
// segments when no checkpoint that is kept names them any more.
//
// Older plans may be under way and may make the segments: the sources are looked at
// when it is written. What is written follows from the state at the index alone.
func (l *Log) Merge(index uint64, ids ...uint64) *Plan {
	plan := &Plan{log: l, index: index, manifest: Manifest{Index: index}, ids: slices.Clone(ids), merge: true}
	for _, p := range l.parts {
		if start := p.start.Load(); start < p.end.Load() {
			plan.parts = append(plan.parts, capture{p: p, start: start})
		}
	}
	l.begin(plan)
	return plan
}

// prepare finds what a merge is to write, once, after older plans are installed.
// What has been trimmed or dropped since its index is written too.
func (p *Plan) prepare() error {
	if p.prepared {
		return nil
	}
	sources, err := p.neighbours()
	if err != nil {
		return err
	}
	at := make(map[uint64]int, len(p.parts))
	for i := range p.parts {
		at[p.parts[i].p.id] = i
	}
	for _, s := range sources {
		runs, err := s.file().Runs()
		if err != nil {
			return err
		}
		for _, r := range runs {
			i, ok := at[r.Partition]
			if !ok || r.End <= p.parts[i].start {
				continue
			}
			p.parts[i].runs = append(p.parts[i].runs, run{r, s})
			p.parts[i].end = r.End
		}
	}
	p.parts = slices.DeleteFunc(p.parts, func(c capture) bool { return len(c.runs) == 0 })
	p.sources, p.prepared = sources, true
	return nil
}

// neighbours finds the segments that a merge names and checks that nothing that
// lives or may live is between them. Dead segments do not count: when they vanish
// differs from node to node.
func (p *Plan) neighbours() ([]*segmentFile, error) {
	l := p.log
	l.mu.RLock()
	defer l.mu.RUnlock()
	if slices.ContainsFunc(p.needs, func(older *Plan) bool { return !older.installed && !older.givenUp }) {
		return nil, fmt.Errorf("%w: merge %d before an older plan is installed", ErrOrder, p.index)
	}
	var found []*segmentFile
	between, absent := false, false
	for _, s := range l.segments {
		wanted := slices.Contains(p.ids, s.meta.ID)
		switch {
		case s.over:
		case wanted && s.file() == nil:
			return nil, fmt.Errorf("%w: %s", ErrMissing, SegmentName(s.meta.ID))
		case wanted && absent:
			return nil, fmt.Errorf("%w: between %x", ErrMissing, p.ids)
		case wanted && between:
			return nil, fmt.Errorf("%w: %x", ErrNeighbours, p.ids)
		case wanted:
			found = append(found, s)
		case s.file() == nil: // whether it lives is not known
			absent = len(found) > 0
		case s.runs.Load() == 0:
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
// out to be damaged: the segments stay as they are, and so does the damage. Writer
// only. Release is still to be called.
func (l *Log) Abandon(p *Plan) error {
	at := slices.Index(l.plans, p)
	if at < 0 || !p.merge {
		return fmt.Errorf("%w: plan %d cannot be abandoned", ErrOrder, p.index)
	}
	l.plans = slices.Delete(l.plans, at, at+1)
	p.givenUp = true
	for _, later := range l.plans {
		later.needs = slices.DeleteFunc(later.needs, func(q *Plan) bool { return q == p })
	}
	if p.seg != nil {
		return errors.Join(p.seg.file().Close(), l.fs.Remove(l.path(p.index)))
	}
	return nil
}
