package placement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// Source fetches segment files from other replicas.
type Source interface {
	// Segment opens the bytes of a segment file of a group, from the offset from
	// to its end, on any other replica that has it, preferably another one at each
	// call: what one sends may be damaged. An error that matches fs.ErrNotExist says
	// that replicas were reached, and that none of them has the segment. The number
	// CheckpointID stands for the newest checkpoint of a replica.
	Segment(ctx context.Context, group uint32, id uint64, from int64) (io.ReadCloser, error)
}

// CheckpointID is the number under which OpenSegment gives the newest checkpoint, with
// all that belongs to it but the segments. No segment has it.
const CheckpointID = 0

// SegmentFile is the raw bytes of a segment.
type SegmentFile interface {
	io.ReaderAt
	io.Closer
}

// Raft returns the group's Raft group, nil for a volatile group.
func (g *Group) Raft() *raftgroup.Group { return g.raft.Load() }

// Whole tells whether all segments are here that the group's records are in. While
// they are not, reads of what is missing get CodeUnavailable.
func (g *Group) Whole() bool { return g.machine.shown.Load().Whole() }

// OpenSegment opens the file of a segment, of size bytes, to send it to another
// replica. The file stays until it is closed, whatever becomes of the segment. The
// error matches fs.ErrNotExist if this replica does not have it.
func (g *Group) OpenSegment(id uint64) (f SegmentFile, size int64, err error) {
	if id == CheckpointID {
		return g.openCheckpoint()
	}
	g.sent.asked(id, g.clock.mono())
	r, release, err := g.machine.shown.Load().Send(id)
	if err != nil {
		return nil, 0, err
	}
	return &sentSegment{SectionReader: r, release: sync.OnceFunc(release)}, r.Size(), nil
}

func (g *Group) openCheckpoint() (SegmentFile, int64, error) {
	if g.sealer == nil {
		return nil, 0, fmt.Errorf("placement: a volatile group has no checkpoint: %w", fs.ErrNotExist)
	}
	s, err := g.sealer.store.Send()
	if errors.Is(err, checkpoint.ErrNone) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, 0, fmt.Errorf("placement: send checkpoint: %w", err)
	}
	return s, s.Size(), nil
}

// sentSegment lets go of its segment when it is closed.
type sentSegment struct {
	*io.SectionReader
	release func()
}

func (s *sentSegment) Close() error {
	s.release()
	return nil
}
