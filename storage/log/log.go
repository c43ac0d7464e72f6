// Package log is the stored records of one placement group: per partition a
// head of references into log entries, and runs in segment files.
//
// One goroutine, the state machine of the group, writes: it creates and drops
// partitions, links batches, trims, captures and installs. It never does I/O
// here. Readers are many and concurrent. What is written follows from the
// entries alone, so replicas that apply the same entries write the same
// segment files, byte for byte.
package log

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

var (
	// ErrOutOfRange: the offset is below Start or above End.
	ErrOutOfRange = errors.New("log: offset out of range")
	// ErrDropped: the partition is gone.
	ErrDropped = errors.New("log: partition dropped")
	// ErrMissing: the records may be in a segment file that this node does
	// not have (yet). Retry, or read elsewhere. The error is a *Gap, or with
	// Options.Alone a *Damage.
	ErrMissing = errors.New("log: segment file missing")
	// ErrExists: the partition exists already.
	ErrExists = errors.New("log: partition exists")
	// ErrDamaged matches the error for records lost to damage on disk, which
	// is a *Damage that names their offsets.
	ErrDamaged = segment.ErrDamaged
)

// Damage names records that cannot be read. A reader that wants to serve the
// rest goes on after Last.
type Damage = segment.Damage

// Gap says which offsets cannot be read while a segment file is missing. It
// matches ErrMissing.
type Gap struct {
	First, Last int64
}

func (g *Gap) Error() string {
	return fmt.Sprintf("%v: offsets %d to %d", ErrMissing, g.First, g.Last)
}

func (g *Gap) Unwrap() error { return ErrMissing }

// Options of a log.
type Options struct {
	// Cache is shared by the logs of a node; nil makes one of the default
	// size.
	Cache *Cache
	// Source reads entries back whose bodies were evicted. A log without
	// one is volatile: bodies stay in memory until all their batches are
	// trimmed, and nothing is ever sealed.
	Source Source
	// Kept are the manifests of older checkpoints that are still there to fall
	// back to: Open leaves their segment files in place, until a Sweep that
	// does not name them.
	Kept []*Manifest
	// Alone says that no other node has the records: what is in a missing
	// segment is lost, so that readers get *Damage for it and not ErrMissing.
	Alone bool
	// Decompressor bounds what compressed batches may expand to; nil has
	// record's default limits.
	Decompressor *record.Decompressor
}

// Log is the records of one placement group on this node.
type Log struct {
	fs     vfs.FS
	dir    string
	cache  *Cache
	source Source
	decomp *record.Decompressor
	alone  atomic.Bool

	headBytes atomic.Int64  // of batches in heads
	bytes     atomic.Int64  // of bodies in a volatile log
	sealed    atomic.Uint64 // log index up to which all batches are in segments
	absent    atomic.Int32  // segments that the manifest names and that cannot be read

	repaired []uint64 // at Open

	// For the writer only.
	dirty []*Partition // those with a head
	plans []*Plan      // captured, not yet installed, oldest first

	mu       sync.RWMutex // guards the maps; only the writer changes parts
	parts    map[uint64]*Partition
	segments []*segmentFile          // in the order of their content
	missing  map[uint64]*segmentFile // those of segments without a file
	spare    []uint64                // files on disk that only an older checkpoint names
}

// Open opens the log in dir as the manifest describes it, which is the state
// as of the manifest's log index; the caller then applies what came after.
// Segment files that neither it nor Options.Kept names are removed. Those that it
// names and that are missing or damaged are reported by Missing, and readers
// of what may be in them get ErrMissing. Open fails if they are there and may
// not be opened, and repairs those of which only header and footer are damaged.
func Open(fs vfs.FS, dir string, opts Options, m *Manifest) (*Log, error) {
	l := newLog(opts)
	l.fs, l.dir = fs, dir
	if err := fs.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("log: open %s: %w", dir, err)
	}
	for _, pm := range m.Partitions {
		if _, err := l.Create(pm.ID, pm.Start); err != nil {
			return nil, fmt.Errorf("log: open %s: partition %d: %w", dir, pm.ID, err)
		}
		l.parts[pm.ID].end.Store(pm.End)
		l.parts[pm.ID].captured = pm.End
	}
	l.sealed.Store(m.Index)
	if err := l.openSegments(m, opts.Kept); err != nil {
		l.Close()
		return nil, fmt.Errorf("log: open %s: %w", dir, err)
	}
	return l, nil
}

// SetAlone changes Options.Alone: nodes come and go.
func (l *Log) SetAlone(alone bool) { l.alone.Store(alone) }

// NewVolatile makes a log in memory: no files, no seals.
func NewVolatile() *Log { return newLog(Options{}) }

func newLog(opts Options) *Log {
	l := &Log{cache: opts.Cache, source: opts.Source, decomp: opts.Decompressor,
		parts: make(map[uint64]*Partition), missing: make(map[uint64]*segmentFile)}
	l.alone.Store(opts.Alone)
	if l.cache == nil {
		l.cache = NewCache(0)
	}
	return l
}

// Create makes a partition whose first record will have offset start. The
// numbers of partitions are never used again in a log. Writer only.
func (l *Log) Create(partition uint64, start int64) (*Partition, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parts[partition] != nil {
		return nil, fmt.Errorf("%w: %d", ErrExists, partition)
	}
	p := &Partition{id: partition, log: l, captured: start}
	p.start.Store(start)
	p.end.Store(start)
	l.parts[partition] = p
	return p, nil
}

// Drop removes a partition; its waiting readers wake up. Writer only.
func (l *Log) Drop(partition uint64) {
	l.mu.Lock()
	p := l.parts[partition]
	delete(l.parts, partition)
	l.mu.Unlock()
	if p != nil {
		p.drop()
	}
}

// Partition returns a partition, nil if there is none of that number.
func (l *Log) Partition(partition uint64) *Partition {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.parts[partition]
}

// Bytes is the memory that the bodies of a volatile log take.
func (l *Log) Bytes() int64 { return l.bytes.Load() }

// HeadBytes is the size of the batches that are not yet in a segment.
func (l *Log) HeadBytes() int64 { return l.headBytes.Load() }

// OldestNeededIndex is the lowest log index whose entry readers may still ask
// the Source for. It moves up with Install.
func (l *Log) OldestNeededIndex() uint64 { return l.sealed.Load() + 1 }

// Close closes the segment files. Readers that are still at work get errors;
// nobody writes a plan any more. Writer only.
func (l *Log) Close() error {
	l.mu.Lock()
	segments := l.segments
	l.segments = nil
	segments = slices.Clip(segments)
	l.mu.Unlock()
	var errs []error
	for _, plan := range l.plans {
		if plan.seg != nil {
			segments = append(segments, plan.seg)
		}
	}
	l.plans = nil
	for _, s := range segments {
		if s.file() != nil {
			errs = append(errs, s.file().Close())
		}
	}
	l.cache.forget(l)
	return errors.Join(errs...)
}
