package placement

import (
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// Partition reads one partition's log. Safe for concurrent use.
type Partition struct{ p *partition }

// PartitionOf opens the partition of a topic with that number in it, on any replica:
// CodeNotFound.
func (g *Group) PartitionOf(id kernel.TopicID, index int32) (*Partition, error) {
	for _, p := range g.partitions(id) {
		if p.index == index {
			return &Partition{p}, nil
		}
	}
	return nil, kernel.Errorf(kernel.CodeNotFound, "topic", id.String(), "the replica has no partition %d of it", index)
}

// ID returns the partition's number.
func (p *Partition) ID() PartitionID { return p.p.id }

// Bounds returns the first readable offset and the next offset to be given.
func (p *Partition) Bounds() (start, end int64) { return p.p.log.Start(), p.p.log.End() }

// Read appends whole stored batches to dst, beginning with the one that
// contains offset, until maxBytes is reached; at least one batch if there is
// any, even if larger. Nothing is appended at end. CodeOutOfRange,
// CodeCorrupt, CodeDropped, CodeUnavailable (not at the moment).
func (p *Partition) Read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	dst, err := p.p.log.Read(offset, maxBytes, dst)
	return dst, p.translate(err)
}

// Index returns the partition's number in its topic.
func (p *Partition) Index() int32 { return p.p.index }

// Damaged reads at offset once more and says what is damaged there; ok is false if
// nothing is (any more).
func (p *Partition) Damaged(offset int64) (d Damage, ok bool) {
	_, err := p.p.log.Read(offset, 1, nil)
	if err == nil {
		return d, false
	}
	d.First, d.Alone, d.Wrong = offset, p.p.log.Alone() || p.puller().lost(err), wrong(err)
	d.Last, ok = badEnd(err, offset)
	return d, ok
}

func (p *Partition) puller() *puller { return p.p.topic.shard.puller }

// translate makes a kernel error of one of the log.
func (p *Partition) translate(err error) error {
	if err == nil {
		return nil
	}
	code := kernel.CodeInternal
	switch {
	case errors.Is(err, slog.ErrOutOfRange):
		code = kernel.CodeOutOfRange
	case errors.Is(err, slog.ErrDropped):
		if code = kernel.CodeDropped; p.p.replaced.Load() {
			code = kernel.CodeUnavailable // it is to be looked up anew
		}
	case errors.Is(err, slog.ErrDamaged):
		code = kernel.CodeCorrupt
		if p.puller().mend(err) {
			code = kernel.CodeUnavailable // it comes from another replica
		}
	case errors.Is(err, slog.ErrMissing):
		code = kernel.CodeUnavailable
		p.puller().hurry()
	}
	return kernel.Errorf(code, "partition", fmt.Sprint(p.p.id), "%v", err)
}

// TimeOffset returns the first offset whose record timestamp (ms) is at least
// ts, with that timestamp, or the end and -1 when there is none. Errors are those of
// Read: what is unknown because it cannot be read is not taken for absent.
func (p *Partition) TimeOffset(ts int64) (offset, timestamp int64, err error) {
	offset, timestamp, err = p.p.log.TimeOffset(ts)
	return offset, timestamp, p.translate(err)
}

// Watch sends on ready (without blocking; give it capacity 1) as soon as end >
// offset, the start moves or the partition is dropped, at once if there is
// something to read already. cancel ends the watch.
func (p *Partition) Watch(offset int64, ready chan<- struct{}) (cancel func()) {
	p.p.log.Watch(offset, ready)
	return func() { p.p.log.Unwatch(ready) }
}
