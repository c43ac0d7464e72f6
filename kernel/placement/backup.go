package placement

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// backupPoll is how often it is looked whether a replica has come far enough.
const backupPoll = 20 * time.Millisecond

// Backup is the newest checkpoint of a replica with all that belongs to it, which stays
// until Close, and the log after it. It is for one goroutine.
type Backup struct {
	Checkpoint checkpoint.Meta
	// First and Last are the entries after the checkpoint that belong to the copy: keyed
	// state may be ahead of it by as much. Last = First - 1: there are none.
	First, Last uint64
	Files       []BackupFile
	// Missing are segments, by their files' names, that are lost already: the node is
	// alone, and nobody has them.
	Missing []string

	group   *Group
	hold    *hold
	release func() // of the checkpoint
}

// BackupFile is a file of a backup. Its content never changes.
type BackupFile struct {
	Name string // below the folder of the group
	Path string

	segment uint64 // number, 0: none
}

// Seal makes a seal due at once, and returns an index of the log at or before which it
// is, and all that was confirmed before. CodeUnavailable: the group does not lead.
func (g *Group) Seal(ctx context.Context) (uint64, error) {
	if _, err := g.do(ctx, sealCommand()); err != nil {
		return 0, err
	}
	return g.Raft().HandedIndex(), nil
}

// Backup waits until the replica has applied the log up to an index and has a checkpoint
// of each seal there, and holds the newest one. CodeUnavailable: it lacks segments
// that others have. CodePressure: there is no room for checkpoints.
func (g *Group) Backup(ctx context.Context, index uint64) (*Backup, error) {
	if g.sealer == nil {
		return nil, kernel.Errorf(kernel.CodeNotAllowed, "", "", "a volatile group has nothing to back up")
	}
	tick := time.NewTicker(backupPoll)
	defer tick.Stop()
	for g.Raft().AppliedIndex() < index {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := g.awaitSeal(ctx); err != nil {
		return nil, err
	}
	meta, h, release, err := g.sealer.hold()
	if err != nil {
		return nil, err
	}
	b := &Backup{Checkpoint: meta, group: g, hold: h, release: release,
		First: meta.Index + 1, Last: max(index, meta.Index, g.Raft().CommitIndex())}
	if err := b.list(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// list names the files.
func (b *Backup) list() error {
	dir, log := b.group.cfg.Dir, b.group.machine.shown.Load()
	add := func(segment uint64, name ...string) {
		rel := path.Join(name...)
		b.Files = append(b.Files, BackupFile{Name: rel, Path: path.Join(dir, rel), segment: segment})
	}
	meta, r, err := b.group.sealer.store.Read(b.Checkpoint.ID())
	if err != nil {
		return fmt.Errorf("placement: backup: %w", err)
	}
	keys, sv, err := b.group.keyed.attached(meta, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("placement: backup: checkpoint %s: %w", meta.ID(), err)
	}
	add(0, "checkpoints", b.Checkpoint.ID()+".ckpt")
	for _, name := range keys {
		add(0, "keys", path.Base(name))
	}
	missing := log.Missing()
	for _, s := range sv.manifest.Segments {
		if !slices.ContainsFunc(missing, func(m slog.MissingSegment) bool { return m.ID == s.ID }) {
			add(s.ID, "segments", slog.SegmentName(s.ID))
			continue
		}
		if !b.group.alone() {
			return kernel.Errorf(kernel.CodeUnavailable, "segment", slog.SegmentName(s.ID), "the node lacks it and is fetching it from another one: try again later, or at a node that has everything")
		}
		b.Missing = append(b.Missing, slog.SegmentName(s.ID))
	}
	return nil
}

// Entries calls fn with the entries First to Last. It must come before the files are
// copied: until it has returned the log is not cut.
func (b *Backup) Entries(fn func(*raft.Log) error) error {
	err := b.group.Raft().Entries(b.First, b.Last, fn)
	b.hold.mu.Lock()
	b.hold.log = false
	b.hold.mu.Unlock()
	return err
}

// Check reads a segment's file and compares it with what it should be. pace is called after every few hundred KiB
// with how many bytes they were; an error of it ends the check. Of what is damaged on a
// node that is alone there is nothing better to have: ErrDamagedSegment.
// Elsewhere it is fetched from another node: CodeUnavailable. Other files are checked when they are read.
func (b *Backup) Check(f BackupFile, pace func(bytes int) error) error {
	if f.segment == 0 {
		return nil
	}
	err := b.group.machine.shown.Load().CheckPaced(f.segment, pace)
	switch {
	case err == nil || !errors.Is(err, slog.ErrDamaged):
		return err
	case b.group.puller.mendSegment(f.segment, err):
		return kernel.Errorf(kernel.CodeUnavailable, "segment", slog.SegmentName(f.segment), "it is damaged and is fetched from another node: try again later, or at another node")
	}
	return fmt.Errorf("%w: %w", ErrDamagedSegment, err)
}

// ErrDamagedSegment: see Backup.Check.
var ErrDamagedSegment = errors.New("placement: a segment is damaged")

// Close lets the files go.
func (b *Backup) Close() {
	b.release()
	b.group.sealer.letGo(b.hold)
}

// hold keeps what a checkpoint needs from being removed.
type hold struct {
	state keptState

	mu  sync.Mutex
	log bool // also the log behind it
}

// hold holds the newest checkpoint.
func (s *sealer) hold() (checkpoint.Meta, *hold, func(), error) {
	s.mu.Lock() // no checkpoint after the next one is noted, and so none removes this one
	defer s.mu.Unlock()
	state := s.kept[len(s.kept)-1]
	for _, m := range s.store.List() {
		if m.Index == state.manifest.Index {
			h := &hold{state: state, log: true}
			s.holds = append(s.holds, h)
			return m, h, s.store.Pin(m.ID()), nil
		}
	}
	return checkpoint.Meta{}, nil, nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "there is no checkpoint yet: %v", fs.ErrNotExist)
}

func (s *sealer) letGo(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = slices.DeleteFunc(s.holds, func(o *hold) bool { return o == h })
}

// withHolds adds to the states that are kept those that are held, before them, and returns
// where the log is to begin.
func (s *sealer) withHolds(kept []keptState) (all []keptState, oldest uint64) {
	oldest = kept[0].manifest.Index
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.holds {
		all = append(all, h.state)
		h.mu.Lock()
		if h.log {
			oldest = min(oldest, h.state.manifest.Index)
		}
		h.mu.Unlock()
	}
	return append(all, kept...), oldest
}
