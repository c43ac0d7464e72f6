package log

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// ErrOrder: a plan is used before it was written, or before an older one was
// installed.
var ErrOrder = errors.New("log: plans are written and installed in order")

// Plan is one seal under way: Capture, Write, Install, a checkpoint with the
// Manifest, Release.
type Plan struct {
	log      *Log
	index    uint64
	parts    []capture
	manifest Manifest       // segments: those captured, the plan's own is added
	pinned   []*segmentFile // what the manifest names
	needs    []*Plan        // older plans, not installed at the capture, of which something lived

	written   bool
	installed bool
	seg       *segmentFile // nil when there was nothing to write
	runs      []segment.Run
}

// capture is a partition's part of a plan.
type capture struct {
	p   *Partition
	end int64
	ref []ref
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
			plan.parts = append(plan.parts, capture{p, p.captured, refs[:len(refs):len(refs)]})
		}
		p.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	plan.manifest.Partitions = make([]PartitionMeta, 0, len(l.parts))
	for id, p := range l.parts {
		plan.manifest.Partitions = append(plan.manifest.Partitions, PartitionMeta{id, p.start.Load(), p.end.Load()})
	}
	for _, s := range l.segments {
		if s.file == nil || s.runs.Load() > 0 {
			plan.name(s)
		}
	}
	for _, older := range l.plans {
		if older.live() {
			plan.needs = append(plan.needs, older)
		}
	}
	l.plans = append(l.plans, plan)
	return plan
}

// live tells whether anything that the plan captured is still needed.
func (p *Plan) live() bool {
	return slices.ContainsFunc(p.parts, func(c capture) bool {
		return !c.p.dropped.Load() && c.ref[len(c.ref)-1].last() >= c.p.start.Load()
	})
}

// Empty tells whether there is nothing to write.
func (p *Plan) Empty() bool { return len(p.parts) == 0 }

// Write writes the segment file and makes it durable, in any goroutine, while
// the log goes on. After an error, of which a full disk is the usual one, it
// may be called again. An empty plan writes no file.
func (p *Plan) Write() error {
	if p.written {
		return nil
	}
	if !p.Empty() {
		if err := p.writeFile(); err != nil {
			return fmt.Errorf("log: seal %d: %w", p.index, err)
		}
	}
	sortPartitions(p.manifest.Partitions)
	p.written = true
	return nil
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
	p.seg = &segmentFile{file: opened, meta: SegmentMeta{p.index, opened.Size(), opened.Checksum()}}
	return nil
}

// Manifest is the log as of the plan's index, for the checkpoint. The plan
// and all older ones have been installed.
func (p *Plan) Manifest() (*Manifest, error) {
	if !p.installed {
		return nil, fmt.Errorf("%w: manifest of seal %d", ErrOrder, p.index)
	}
	return &p.manifest, nil
}

// Install makes readers find the plan's records in the segment and lets go of
// them in the head. Writer only, after Write and after older plans.
func (l *Log) Install(p *Plan) error {
	if !p.written || len(l.plans) == 0 || l.plans[0] != p {
		return fmt.Errorf("%w: install of seal %d", ErrOrder, p.index)
	}
	l.plans = slices.Delete(l.plans, 0, 1)
	runs := p.runs
	for i := range p.parts {
		c := &p.parts[i]
		var r run
		if len(runs) > 0 && runs[0].Partition == c.p.id {
			r, runs = run{runs[0], p.seg}, runs[1:]
		}
		c.p.install(c.end, r)
	}
	l.dirty = slices.DeleteFunc(l.dirty, func(q *Partition) bool {
		q.dirty = len(q.head) > 0 // only the writer changes head
		return !q.dirty
	})
	p.complete()
	p.parts, p.runs, p.needs = nil, nil, nil
	l.sealed.Store(p.index)
	return nil
}

// complete puts the plan's segment into the log and into the manifests of
// the plan and of those captured before it was installed.
func (p *Plan) complete() {
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()
	p.installed = true
	if p.seg == nil {
		return
	}
	l.segments = append(slices.Clone(l.segments), p.seg)
	p.name(p.seg)
	for _, later := range l.plans {
		if slices.Contains(later.needs, p) {
			later.name(p.seg)
		}
	}
}

// name puts a segment into the plan's manifest. Under Log.mu.
func (p *Plan) name(s *segmentFile) {
	s.pins++
	p.pinned = append(p.pinned, s)
	p.manifest.Segments = append(p.manifest.Segments, s.meta)
}

// Release ends the plan: its checkpoint is durable, or there will be none.
// Until then Sweep keeps the files that its manifest names.
func (p *Plan) Release() {
	p.log.unpin(p.pinned...)
	p.pinned = nil
}

// install replaces the references below end by the run.
func (p *Partition) install(end int64, r run) {
	p.mu.Lock()
	n := 0
	for n < len(p.head) && p.head[n].base < end {
		n++
	}
	gone := p.cutHead(n)
	live := n > 0 && r.seg != nil && r.End > p.start.Load()
	if live {
		p.runs = append(slices.Clip(p.runs), r)
		p.size.Add(r.Bytes)
		r.seg.runs.Add(1)
	}
	p.mu.Unlock()
	p.letGo(nil, gone)
}

// windowBytes is how much of the file is put together in memory at a time.
const windowBytes = 8 << 20

// piece is a batch on its way from a body to its place in the window.
type piece struct {
	ref *ref
	at  int // in the window
}

// sharedBatch finds the place of a batch that has several targets.
type sharedBatch struct {
	body *Body
	off  uint32
}

// layout writes the batches and remembers where each went.
type layout struct {
	w      *segment.Writer
	window []byte
	pieces []piece
	shared map[sharedBatch]int64
	at     [][]int64 // by partition and reference: position in the file
}

// fill writes the content of the segment: the batches of each partition in
// turn, in the order of the partitions' numbers, then the runs. Memory is
// bounded by the window, and an evicted body is read once per window, not
// once per partition.
func (p *Plan) fill(file vfs.File) error {
	slices.SortFunc(p.parts, func(a, b capture) int { return cmp.Compare(a.p.id, b.p.id) })
	lay := layout{w: segment.NewWriter(file, p.index), shared: make(map[sharedBatch]int64)}
	for _, c := range p.parts {
		at := make([]int64, len(c.ref))
		for i := range c.ref {
			pos, err := lay.place(&c.ref[i])
			if err != nil {
				return err
			}
			at[i] = pos
		}
		lay.at = append(lay.at, at)
	}
	if err := lay.flush(); err != nil {
		return err
	}
	var entries []segment.Entry
	for i, c := range p.parts {
		entries = entries[:0]
		for j, r := range c.ref {
			entries = append(entries, segment.Entry{Base: r.base, Pos: lay.at[i][j], Length: int32(r.length), LastDelta: r.lastDelta, MaxTime: r.maxTS})
		}
		if _, err := lay.w.AppendRun(c.p.id, entries); err != nil {
			return err
		}
	}
	_, _, err := lay.w.Finish()
	return err
}

// place gives a batch its position, the one it has already if it is shared.
func (lay *layout) place(r *ref) (int64, error) {
	key := sharedBatch{r.body, r.off}
	if r.body.shared {
		if pos, ok := lay.shared[key]; ok {
			return pos, nil
		}
	}
	size := len(lay.window)
	if size > 0 && size+int(r.length) > windowBytes {
		if err := lay.flush(); err != nil {
			return 0, err
		}
		size = 0
	}
	pos := lay.w.Pos() + int64(size)
	lay.window = slices.Grow(lay.window, int(r.length))[:size+int(r.length)]
	lay.pieces = append(lay.pieces, piece{r, size})
	if r.body.shared {
		lay.shared[key] = pos
	}
	return pos, nil
}

// flush copies the pieces of the window out of their bodies, each body opened
// once, and writes the window.
func (lay *layout) flush() error {
	slices.SortFunc(lay.pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.ref.body.index, b.ref.body.index), cmp.Compare(a.at, b.at))
	})
	var body *Body
	var data []byte
	for _, pc := range lay.pieces {
		if pc.ref.body != body {
			body = pc.ref.body
			var err error
			if data, err = body.peek(); err != nil {
				return err
			}
		}
		batch := lay.window[pc.at : pc.at+int(pc.ref.length)]
		copy(batch, data[pc.ref.off:pc.ref.off+pc.ref.length])
		record.Stamp(batch, pc.ref.base, body.epoch)
	}
	err := lay.w.Append(lay.window, len(lay.pieces))
	lay.window, lay.pieces = lay.window[:0], lay.pieces[:0]
	return err
}
