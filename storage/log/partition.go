package log

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/storage/segment"
)

// ref is a batch in the head: what is not yet in a segment. The order of the
// fields keeps it at 40 bytes.
type ref struct {
	base      int64
	maxTS     int64
	body      *Body
	off       uint32
	length    uint32
	lastDelta int32
}

func (r *ref) last() int64 { return r.base + int64(r.lastDelta) }

// run is what a partition has in one segment.
type run struct {
	segment.Run
	seg *segmentFile
}

// watch is a reader that waits for End to go beyond offset.
type watch struct {
	offset int64
	ch     chan<- struct{}
}

// Partition is the ordered records of one partition: runs in segments, oldest
// first, then the head. One goroutine, the log's writer, calls Link and Trim;
// everything else may be called by anybody at any time.
//
// The slices are never changed in place (the head is appended to beyond the
// length that snapshots see), so a reader takes them under the lock and works
// without it.
type Partition struct {
	id    uint64
	log   *Log
	start atomic.Int64
	end   atomic.Int64
	size  atomic.Int64 // bytes of the batches in runs and head

	dropped atomic.Bool

	mu      sync.Mutex
	runs    []run
	head    []ref
	watches []watch

	// For the writer only.
	dirty    bool  // in the log's list of partitions with a head
	captured int64 // end as of the last Capture: what is below is being sealed
	trimmed  int   // references cut off the front of the head's array
}

// ID is the partition's number in its log.
func (p *Partition) ID() uint64 { return p.id }

// Alone is Options.Alone of the log: what is damaged here is lost.
func (p *Partition) Alone() bool { return p.log.alone.Load() }

// Start is the lowest offset that may be read.
func (p *Partition) Start() int64 { return p.start.Load() }

// End is the offset after the last record: the next one to be given.
func (p *Partition) End() int64 { return p.end.Load() }

// Bytes is the size of the batches that the partition refers to. A batch
// counts until all of it is below Start, in a segment until all of the run is.
func (p *Partition) Bytes() int64 { return p.size.Load() }

// Link appends the batch at off in body, of length bytes, whose records take
// up the offsets base to base+lastDelta; maxTS is its highest timestamp in
// ms. The writer has validated the batch. It panics when base is below End:
// offsets are never given twice.
//
// A batch with several targets is linked to one after the other, so that it
// is recognised and stored once.
func (p *Partition) Link(base int64, body *Body, off, length int, lastDelta int32, maxTS int64) {
	if base < p.end.Load() || lastDelta < 0 || off < 0 || length <= 0 || off+length > body.size {
		panic(fmt.Sprintf("log: link of offset %d, end %d, batch [%d,+%d) of %d bytes", base, p.end.Load(), off, length, body.size))
	}
	body.link(off)
	if !p.dirty && p.log.source != nil { // what is volatile is never sealed
		p.dirty = true
		p.log.dirty = append(p.log.dirty, p)
	}
	p.size.Add(int64(length))
	p.log.headBytes.Add(int64(length))

	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.head) == cap(p.head) {
		p.trimmed = 0 // append copies what is left
	}
	p.head = append(p.head, ref{base: base, maxTS: maxTS, body: body, off: uint32(off), length: uint32(length), lastDelta: lastDelta})
	end := base + int64(lastDelta) + 1
	p.end.Store(end)
	if p.watches != nil {
		p.wake(func(w watch) bool { return end > w.offset })
	}
}

// Trim moves the logical start up to start, at most to End: the records below
// are no longer read and what holds nothing else is let go. A lower start
// than the present one changes nothing.
func (p *Partition) Trim(start int64) {
	start = min(start, p.end.Load())
	if start <= p.start.Load() {
		return
	}
	p.mu.Lock()
	p.start.Store(start)
	runs := sort.Search(len(p.runs), func(i int) bool { return p.runs[i].End > start })
	goneRuns := p.runs[:runs]
	p.runs = p.runs[runs:]
	refs := sort.Search(len(p.head), func(i int) bool { return p.head[i].last() >= start })
	goneRefs := p.cutHead(refs)
	p.wake(func(watch) bool { return true })
	p.mu.Unlock()

	p.letGo(goneRuns, goneRefs)
	unlink(goneRefs)
}

// cutHead drops the first n references and returns them. The array behind
// them is replaced when most of it is dead.
func (p *Partition) cutHead(n int) []ref {
	gone := p.head[:n]
	p.head = p.head[n:]
	p.trimmed += n
	if len(p.head) == 0 {
		p.head, p.trimmed = nil, 0
	} else if p.trimmed > len(p.head)+16 {
		p.head, p.trimmed = slices.Clone(p.head), 0
	}
	return gone
}

// unlink gives up the references' bodies.
func unlink(refs []ref) {
	for i := range refs {
		refs[i].body.unlink()
	}
}

// letGo takes dropped runs and references out of the accounts.
func (p *Partition) letGo(runs []run, refs []ref) {
	var bytes int64
	for i := range refs {
		bytes += int64(refs[i].length)
	}
	p.log.headBytes.Add(-bytes)
	for i := range runs {
		bytes += runs[i].Bytes
		runs[i].seg.live.Add(-runs[i].Bytes)
		runs[i].seg.runs.Add(-1)
	}
	p.size.Add(-bytes)
}

// drop ends the partition: readers get ErrDropped.
func (p *Partition) drop() {
	p.mu.Lock()
	runs, head := p.runs, p.head
	p.runs, p.head = nil, nil
	p.dropped.Store(true)
	p.wake(func(watch) bool { return true })
	p.mu.Unlock()
	p.letGo(runs, head)
	unlink(head)
}

// Watch sends on ch, once and without waiting, as soon as End is beyond
// offset, Start moves or the partition is dropped; at once when there is
// something to read already or the partition is gone. ch has capacity 1, and
// may watch many partitions.
func (p *Partition) Watch(offset int64, ch chan<- struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped.Load() || p.end.Load() > offset {
		signal(ch)
		return
	}
	p.watches = append(p.watches, watch{offset, ch})
}

// Unwatch takes back what Watch registered for ch, if it has not fired.
func (p *Partition) Unwatch(ch chan<- struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watches = slices.DeleteFunc(p.watches, func(w watch) bool { return w.ch == ch })
	if len(p.watches) == 0 {
		p.watches = nil
	}
}

// wake fires and forgets the watches that want it. The caller holds mu.
func (p *Partition) wake(wants func(watch) bool) {
	p.watches = slices.DeleteFunc(p.watches, func(w watch) bool {
		if !wants(w) {
			return false
		}
		signal(w.ch)
		return true
	})
	if len(p.watches) == 0 {
		p.watches = nil
	}
}

func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one signal is waiting already
	}
}
