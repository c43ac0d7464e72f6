package placement

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/keyfile"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// Inspection is what the files of a stopped group hold: see Inspect.
type Inspection struct {
	Index    uint64  // of the newest checkpoint that is whole, 0 = there is none
	Aside    []error // one for each checkpoint that is damaged
	Segments []BadSegment
}

// BadSegment is a segment that the checkpoint names and that is missing or damaged.
type BadSegment struct {
	File string
	Err  error
	Gone bool // nothing in it can be read; else a reader skips what is damaged
	Lost []LostRange
}

// LostRange is offsets of a partition of which some cannot be read any more.
type LostRange struct {
	Topic       kernel.TopicID
	Partition   int32
	First, Last int64
}

// Inspect reads the checkpoints and the keyed files below dir, where damaged ones
// are set aside, and compares the segments below segments with what the newest
// whole checkpoint says, without changing them. It is for a group that is stopped.
func Inspect(fsys vfs.FS, dir, segments string) (*Inspection, error) {
	store, err := checkpoint.Open(fsys, path.Join(dir, "checkpoints"))
	if err != nil {
		return nil, fmt.Errorf("placement: inspect: %w", err)
	}
	in := new(Inspection)
	var sv *saved
	for sv == nil {
		meta, r, err := store.Latest()
		if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("placement: inspect: %w", err)
		}
		s, rest, err := readSaved(r, meta.Size)
		if err == nil {
			err = readKeys(fsys, path.Join(dir, "keys"), s, rest)
		}
		if err = errors.Join(err, r.Close()); err == nil {
			sv, in.Index = s, meta.Index
			break
		}
		if !errors.Is(err, keyfile.ErrDamaged) {
			return nil, fmt.Errorf("placement: inspect: checkpoint %s: %w", meta.ID(), err)
		}
		if err := store.SetAside(meta.ID(), err); err != nil {
			return nil, err
		}
	}
	in.Aside = store.Damage()
	if sv == nil {
		return in, nil
	}
	return in, in.lookAt(fsys, segments, sv)
}

// readKeys reads the keyed state of a checkpoint.
func readKeys(fsys vfs.FS, dir string, sv *saved, rest *bufio.Reader) error {
	if sv.inline {
		return nil // its checksum is the checkpoint's
	}
	if _, err := rest.Peek(1); !errors.Is(err, io.EOF) {
		return err
	}
	return keyfile.ReadChain(fsys, dir, sv.chain, func(keyfile.Entry) error { return nil })
}

// lookAt verifies the segments that a checkpoint names.
func (in *Inspection) lookAt(fsys vfs.FS, dir string, sv *saved) error {
	names, err := partitionNames(sv)
	if err != nil {
		return err
	}
	covered := make(map[uint64][]segment.Run)
	var bad []*BadSegment
	for _, meta := range sv.manifest.Segments {
		b, runs := verify(fsys, path.Join(dir, slog.SegmentName(meta.ID)), meta)
		for _, r := range runs {
			covered[r.Partition] = append(covered[r.Partition], r)
		}
		if b == nil {
			continue
		}
		if b.Gone {
			bad = append(bad, b)
			continue
		}
		for _, r := range runs { // of the damaged file itself
			if at, ok := names[r.Partition]; ok {
				b.Lost = append(b.Lost, LostRange{at.Topic, at.Partition, r.Base, r.End - 1})
			}
		}
		in.Segments = append(in.Segments, *b)
	}
	for _, b := range bad { // what no other file has
		for _, p := range sv.manifest.Partitions {
			at, ok := names[p.ID]
			if !ok {
				continue
			}
			for _, gap := range gaps(p, covered[p.ID]) {
				b.Lost = append(b.Lost, LostRange{at.Topic, at.Partition, gap[0], gap[1]})
			}
		}
		in.Segments = append(in.Segments, *b)
	}
	return nil
}

// verify reads a segment file; nil: it is whole. The runs are those that can be
// told.
func verify(fsys vfs.FS, name string, meta slog.SegmentMeta) (*BadSegment, []segment.Run) {
	f, err := segment.Open(fsys, name)
	if err != nil {
		return &BadSegment{File: name, Err: err, Gone: true}, nil
	}
	runs := f.TakeRuns()
	err = f.Verify()
	if err == nil && (f.Checksum() != meta.Checksum || f.Size() != meta.Size) {
		err = fmt.Errorf("%w: another content than the checkpoint names", slog.ErrDamaged)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return &BadSegment{File: name, Err: err}, runs
	}
	return nil, runs
}

// gaps are the offsets of a partition that no run has.
func gaps(p slog.PartitionMeta, runs []segment.Run) (out [][2]int64) {
	next := p.Start
	for next < p.End {
		reach, begin := next, p.End
		for _, r := range runs {
			switch {
			case r.Base <= next && r.End > reach:
				reach = r.End
			case r.Base > next:
				begin = min(begin, r.Base)
			}
		}
		if reach > next {
			next = reach
			continue
		}
		out = append(out, [2]int64{next, begin - 1})
		next = begin
	}
	return out
}

// partitionNames tells what the partitions of a checkpoint are.
func partitionNames(sv *saved) (map[uint64]LostRange, error) {
	names := make(map[uint64]LostRange)
	if sv.machine == nil {
		return names, nil
	}
	log := slog.NewVolatile()
	for _, p := range sv.manifest.Partitions {
		if _, err := log.Create(p.ID, p.Start); err != nil {
			return nil, err
		}
	}
	g := newGroup(Config{Shards: 1})
	m := g.machine
	m.log = log
	if err := m.restore(sv); err != nil {
		return nil, err
	}
	for _, t := range m.topicInfos() {
		for _, p := range t.Partitions {
			names[uint64(p.ID)] = LostRange{Topic: t.ID, Partition: p.Index}
		}
	}
	return names, log.Close()
}
