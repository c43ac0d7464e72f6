package log

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-mq/trivium/storage/segment"
)

// ErrOrder: a plan is used before it was written, or before an older one was
// installed.
var ErrOrder = errors.New("log: plans are written and installed in order")

// Plan is one seal or merge under way: Capture or Merge, Write, Install, after
// a seal a checkpoint with the Manifest, Release.
type Plan struct {
	log      *Log
	index    uint64
	parts    []capture
	manifest Manifest       // segments: those captured, the plan's own is added
	pinned   []*segmentFile // what the manifest names
	needs    []*Plan        // older plans, not installed at the capture, of which something lived
	ids      []uint64       // of a merge: what it is to replace
	sources  []*segmentFile // of a merge: what it replaces
	pace     func(bytes int) error

	merge     bool
	prepared  bool
	written   bool
	installed bool
	givenUp   bool
	seg       *segmentFile // nil when there was nothing to write
	gone      [][]ref      // what Install took out of the heads
	runs      []segment.Run
}

// capture is a partition's part of a plan: references of its head, or what a
// merge takes of its runs.
type capture struct {
	p          *Partition
	start, end int64
	refs       []ref
	runs       []run
}

// Capture freezes what is to be sealed: everything in the heads, as of the
// log index of the seal command, which is also the number of the segment
// file. It copies no records and does no I/O. Writer only. Several plans may
// be under way; they are installed in order.
func (l *Log) Capture(index uint64) *Plan {
	plan := &Plan{log: l, index: index, manifest: Manifest{Index: index}}
	for _, p := range l.dirty {
		p.mu.Lock()
		// What an older plan has captured and not yet installed is not ours.
		from, _ := slices.BinarySearchFunc(p.head, p.captured, func(r ref, end int64) int { return cmp.Compare(r.base, end) })
		if refs := p.head[from:]; len(refs) > 0 {
			p.captured = p.end.Load()
			plan.parts = append(plan.parts, capture{p: p, start: p.start.Load(), end: p.captured, refs: refs[:len(refs):len(refs)]})
		}
		p.mu.Unlock()
	}
	l.begin(plan)
	return plan
}

// begin puts a plan in the queue and writes down what its manifest says.
func (l *Log) begin(plan *Plan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	plan.manifest.Partitions = make([]PartitionMeta, 0, len(l.parts))
	for id, p := range l.parts {
		plan.manifest.Partitions = append(plan.manifest.Partitions, PartitionMeta{id, p.start.Load(), p.end.Load()})
	}
	for _, s := range l.segments {
		if s.file() == nil || s.runs.Load() > 0 {
			plan.name(s, nil)
		}
	}
	for _, older := range l.plans {
		if older.live() {
			plan.needs = append(plan.needs, older)
		}
	}
	l.plans = append(l.plans, plan)
}

// live tells whether anything that the plan captured is still needed.
func (p *Plan) live() bool {
	return p.merge || slices.ContainsFunc(p.parts, func(c capture) bool {
		return !c.p.dropped.Load() && c.end > c.p.start.Load()
	})
}

// Empty tells whether there is nothing to write.
func (p *Plan) Empty() bool { return len(p.parts) == 0 }

// Write writes the segment file and makes it durable, in any goroutine, while
// the log goes on. After an error, of which a full disk is the usual one, it
// may be called again. An empty plan writes no file.
func (p *Plan) Write() error {
	if p.givenUp {
		return fmt.Errorf("%w: plan %d was given up", ErrOrder, p.index)
	}
	if p.written {
		return nil
	}
	if p.merge {
		if err := p.prepare(); err != nil {
			return fmt.Errorf("log: write segment %s: %w", SegmentName(p.index), err)
		}
	}
	if !p.Empty() {
		if err := p.writeFile(); err != nil {
			return fmt.Errorf("log: write segment %s: %w", SegmentName(p.index), err)
		}
	}
	sortPartitions(p.manifest.Partitions)
	p.written = true
	return nil
}

// WritePaced is Write that calls pace after every few MiB, with how many bytes they
// were. An error of it ends the writing.
func (p *Plan) WritePaced(pace func(bytes int) error) error {
	p.pace = pace
	return p.Write()
}

func (p *Plan) writeFile() error {
	l := p.log
	temp := l.path(p.index) + ".tmp"
	file, err := l.fs.Create(temp)
	if err != nil {
		return err
	}
	err = p.fill(file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, l.fs.Remove(temp))
	}
	if err := l.fs.Rename(temp, l.path(p.index)); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	opened, err := segment.Open(l.fs, l.path(p.index))
	if err != nil {
		return err
	}
	p.runs = opened.TakeRuns()
	p.seg = &segmentFile{meta: SegmentMeta{p.index, opened.Size(), opened.Checksum()}}
	p.seg.open.Store(opened)
	return nil
}

// Manifest is the log as of the index of a seal, for the checkpoint. The plan
// and all older ones have been installed. A merge has none, as heads are not
// in segments at its index; the next seal's manifest names what it made.
func (p *Plan) Manifest() (*Manifest, error) {
	if !p.installed || p.merge {
		return nil, fmt.Errorf("%w: manifest of plan %d", ErrOrder, p.index)
	}
	return &p.manifest, nil
}

// Install makes readers find the plan's records in the segment and lets go of
// them in the head. Writer only, after Write and after older plans.
func (l *Log) Install(p *Plan) error {
	if !p.written || len(l.plans) == 0 || l.plans[0] != p {
		return fmt.Errorf("%w: install of plan %d", ErrOrder, p.index)
	}
	l.plans = slices.Delete(l.plans, 0, 1)
	runs := p.runs
	for i := range p.parts {
		c := &p.parts[i]
		var r run
		if len(runs) > 0 && runs[0].Partition == c.p.id {
			r, runs = run{runs[0], p.seg}, runs[1:]
		}
		if p.merge {
			c.p.replace(p.sources, r)
		} else {
			p.gone = append(p.gone, c.p.install(c.end, r))
		}
	}
	l.dirty = slices.DeleteFunc(l.dirty, func(q *Partition) bool {
		q.dirty = len(q.head) > 0 // only the writer changes head
		return !q.dirty
	})
	p.complete()
	if !p.merge {
		l.sealed.Store(p.index)
	}
	p.parts, p.runs, p.needs, p.sources = nil, nil, nil, nil
	return nil
}

// GiveUp ends every plan that is not installed, so that the next Capture takes
// what is still needed of all that they had captured: what they would write
// may not find room, and may not be needed any more. Writer only, while no plan
// is being written. Their Write and Install fail from then on; Release is still
// to be called.
func (l *Log) GiveUp() error {
	var errs []error
	for i := len(l.plans) - 1; i >= 0; i-- { // the oldest last: its references come first
		plan := l.plans[i]
		plan.givenUp = true
		for _, c := range plan.parts {
			if len(c.refs) > 0 {
				c.p.captured = c.refs[0].base
			}
		}
		if plan.seg != nil {
			errs = append(errs, plan.seg.file().Close(), l.fs.Remove(l.path(plan.index)))
		}
		plan.parts, plan.runs, plan.needs, plan.sources, plan.seg = nil, nil, nil, nil, nil
	}
	l.plans = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("log: give up seals: %w", err)
	}
	return nil
}

// GivenUp tells whether GiveUp has ended the plan.
func (p *Plan) GivenUp() bool { return p.givenUp }

// complete puts the plan's segment into the log and into the manifests of
// the plan and of those captured before it was installed.
func (p *Plan) complete() {
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()
	p.installed = true
	for _, s := range p.sources {
		s.over = true
	}
	if p.seg == nil {
		return
	}
	at := len(l.segments) // a seal is the newest content, a merge takes the place of its sources
	for i, s := range l.segments {
		if slices.Contains(p.sources, s) {
			at = i + 1
		}
	}
	l.segments = slices.Insert(slices.Clone(l.segments), at, p.seg)
	p.name(p.seg, p.sources)
	for _, later := range l.plans {
		if slices.Contains(later.needs, p) {
			later.name(p.seg, p.sources)
		}
	}
}

// name puts a segment into the plan's manifest, in the place of those that it
// replaces. Under Log.mu.
func (p *Plan) name(s *segmentFile, instead []*segmentFile) {
	metas := &p.manifest.Segments
	replaced := func(meta SegmentMeta) bool {
		return slices.ContainsFunc(instead, func(old *segmentFile) bool { return old.meta.ID == meta.ID })
	}
	at := slices.IndexFunc(*metas, replaced)
	if at < 0 && len(instead) > 0 {
		return // they were dead as of this manifest
	}
	if at < 0 {
		at = len(*metas)
	}
	s.pins++
	p.pinned = append(p.pinned, s)
	*metas = slices.DeleteFunc(slices.Insert(*metas, at, s.meta), replaced)
}

// Release ends the plan: its checkpoint is durable, or there will be none.
// Until then Sweep keeps the files that its manifest names. It also lets the
// sealed log entries go, which takes time where there are many, and so is
// better called outside of the writer.
func (p *Plan) Release() {
	for _, refs := range p.gone {
		unlink(refs)
	}
	p.gone = nil
	p.log.unpin(p.pinned...)
	p.pinned = nil
}

// install replaces the references below end by the run, and returns them.
func (p *Partition) install(end int64, r run) (gone []ref) {
	p.mu.Lock()
	n, _ := slices.BinarySearchFunc(p.head, end, func(r ref, end int64) int { return cmp.Compare(r.base, end) })
	gone = p.cutHead(n)
	live := n > 0 && r.seg != nil && r.End > p.start.Load()
	if live {
		p.runs = append(slices.Clip(p.runs), r)
		p.hold(&r)
	}
	p.mu.Unlock()
	p.letGo(nil, gone)
	return gone
}
