package placement

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	slog "github.com/trivium-mq/trivium/storage/log"
)

// How fast segments are pulled, in bytes a second: a node that serves has better
// things to do, unless somebody waits for them.
const (
	pullServing = 32 << 20
	pullIdle    = 128 << 20
	pullChunk   = 256 << 10
)

// puller brings segments from other replicas: those that are missing since this one
// got a checkpoint, and those whose files are damaged. It is stepped in the
// background; what has come of a segment stays when it is broken off.
type puller struct {
	group   uint32
	source  Source // nil: nothing can be pulled
	machine *machine
	metrics *Metrics
	logger  zerolog.Logger
	peers   func() bool // there are other replicas
	serving func() bool
	pause   func(time.Duration) bool // false: the group stops; nil: nothing waits
	wake    chan struct{}            // capacity 1
	urgent  atomic.Bool              // somebody waits for what is missing

	mu      sync.Mutex
	install func(io.Reader) error // takes a checkpoint that another replica sends; nil: not yet
	damaged map[uint64]bool       // have a file that is to be exchanged; true: it was looked at
	nowhere map[uint64]struct{}   // no other replica has them
	wrong   map[uint64]int        // how often what came was not the segment
}

// pullWrong is how often something else than a segment comes before nobody is taken
// to have it: from each of several replicas twice.
const pullWrong = 6

func newPuller(cfg *Config, m *machine, metrics *Metrics) *puller {
	return &puller{group: cfg.ID, source: cfg.Raft.Source, machine: m, metrics: metrics, logger: cfg.Logger,
		wake: make(chan struct{}, 1), damaged: make(map[uint64]bool), nowhere: make(map[uint64]struct{}),
		wrong: make(map[uint64]int)}
}

// step pulls all that there is to pull. After an error it is to be called again, a
// while later.
func (p *puller) step(ctx context.Context) error {
	if p.source == nil || !p.peers() {
		return nil
	}
	defer signal(p.machine.sealer.wake) // a merge may have waited
	var errs []error
	for _, missing := range p.machine.shown.Load().Missing() {
		if err := p.pull(ctx, missing.ID); err != nil {
			errs = append(errs, err)
		}
	}
	if p.stuck() {
		errs = append(errs, p.rebase(ctx))
	}
	if p.machine.shown.Load().Whole() {
		p.urgent.Store(false)
	}
	for _, id := range p.suspects() {
		if !p.confirmed(id) { // it has passed, or was mended
			p.mended(id)
			continue
		}
		err := p.pull(ctx, id)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			p.mended(id)
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p *puller) suspects() (ids []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.damaged {
		ids = append(ids, id)
	}
	return ids
}

// confirmed says whether a segment is damaged indeed. It reads it, once.
func (p *puller) confirmed(id uint64) bool {
	p.mu.Lock()
	known := p.damaged[id]
	p.mu.Unlock()
	if known {
		return true
	}
	if p.machine.shown.Load().Check(id) == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.damaged[id] = true
	return true
}

func (p *puller) mended(id uint64) {
	p.mu.Lock()
	delete(p.damaged, id)
	p.mu.Unlock()
}

// pull fetches one segment and takes it in.
func (p *puller) pull(ctx context.Context, id uint64) error {
	log := p.machine.shown.Load()
	f, err := log.Fetch(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nobody needs it any more
	}
	if err == nil && f.Offset() < f.Size() {
		if err = p.receive(ctx, id, f); err != nil {
			err = errors.Join(err, f.Stop())
		}
	}
	if err == nil {
		if err = f.Finish(); errors.Is(err, slog.ErrDamaged) && p.fooled(id) {
			return fmt.Errorf("placement: pull segment %s: %w: %w", slog.SegmentName(id), fs.ErrNotExist, err)
		}
	}
	if err != nil {
		return fmt.Errorf("placement: pull segment %s: %w", slog.SegmentName(id), err)
	}
	m := p.machine
	m.mu.Lock()
	if m.log == log { // else another checkpoint has come meanwhile
		err = log.Adopt(id)
	}
	m.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("placement: pull segment %s: %w", slog.SegmentName(id), err)
	}
	p.mu.Lock()
	delete(p.nowhere, id)
	delete(p.wrong, id)
	p.mu.Unlock()
	p.metrics.Pulled.Add(1)
	p.logger.Info().Uint32("placement", p.group).Str("segment", slog.SegmentName(id)).Int64("bytes", f.Size()).Msg("a segment has come from another replica")
	return nil
}

// fooled notes that what has come is not the segment. It returns true when that has
// happened too often.
func (p *puller) fooled(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong[id]++; p.wrong[id] < pullWrong {
		return false
	}
	p.wrong[id] = 0
	p.nowhere[id] = struct{}{}
	return true
}

// receive adds to a fetch what another replica sends.
func (p *puller) receive(ctx context.Context, id uint64, f *slog.Fetch) error {
	r, err := p.source.Segment(ctx, p.group, id, f.Offset())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			p.mu.Lock()
			p.nowhere[id] = struct{}{}
			p.mu.Unlock()
		}
		return err
	}
	buf := make([]byte, pullChunk)
	for f.Offset() < f.Size() {
		n, err := r.Read(buf[:min(int64(len(buf)), f.Size()-f.Offset())])
		if n > 0 {
			p.metrics.PulledBytes.Add(uint64(n))
			if _, err := f.Write(buf[:n]); err != nil {
				return errors.Join(err, r.Close())
			}
		}
		if errors.Is(err, io.EOF) && f.Offset() < f.Size() {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = p.pace(n)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("at %d of %d: %w", f.Offset(), f.Size(), err), r.Close())
		}
	}
	return r.Close()
}

func (p *puller) pace(n int) error {
	if p.pause == nil || p.urgent.Load() || n == 0 {
		return nil
	}
	rate := int64(pullIdle)
	if p.serving() {
		rate = pullServing
	}
	if !p.pause(time.Duration(int64(n) * int64(time.Second) / rate)) {
		return errStopped
	}
	return nil
}

// coming says whether what is missing may still come.
func (p *puller) coming() bool {
	if p.source == nil {
		return false
	}
	p.hurry()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.machine.shown.Load().Missing(), func(s slog.MissingSegment) bool {
		_, lost := p.nowhere[s.ID]
		return !lost
	})
}

// hurry is called when somebody waits for what is missing.
func (p *puller) hurry() {
	if p != nil && !p.urgent.Swap(true) {
		signal(p.wake)
	}
}

// damagedSegment returns the number of the segment that an error names.
func damagedSegment(cause error) (id uint64, ok bool) {
	d, ok := errors.AsType[*slog.Damage](cause)
	if !ok {
		return 0, false
	}
	return slog.SegmentID(path.Base(d.File))
}

// lost says whether other replicas were asked for what is damaged here, and have it
// not.
func (p *puller) lost(cause error) bool {
	id, ok := damagedSegment(cause)
	if !ok || p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, lost := p.nowhere[id]
	return lost
}

// mend has a damaged segment fetched anew. It returns false if nobody can have it: if
// there are no other replicas, or if none of them has it.
func (p *puller) mend(cause error) bool {
	id, ok := damagedSegment(cause)
	return ok && p.mendSegment(id, cause)
}

// mendSegment is mend for a segment whose damage is known by other means.
func (p *puller) mendSegment(id uint64, cause error) bool {
	if p == nil || p.source == nil || !p.peers() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.damaged[id]; known {
		return true
	}
	if _, lost := p.nowhere[id]; lost {
		return false
	}
	p.damaged[id] = false
	p.logger.Error().Err(cause).Uint32("placement", p.group).Msg("a segment file is damaged: it is fetched from another replica; see to the disk")
	signal(p.wake)
	return true
}
