package placement

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// sealer turns captures into checkpoints: segment, install, files of keyed state,
// checkpoint, log cut, in this order, so that a crash between any two leaves a
// checkpoint with all it needs. It is stepped in the background, one capture
// after the other.
type sealer struct {
	machine *machine
	log     replicator
	store   *checkpoint.Store
	keys    *keyed
	looked  func()      // after each step that has written: there is more or less room
	sending func() bool // others come for what a checkpoint names; nil: never
	alone   func() bool // no other node has to make the same segments
	clock   clock
	metrics *Metrics
	logger  zerolog.Logger
	again   bool        // a seal is to be asked for
	full    atomic.Bool // the last one found no room
	// pause waits, in a merge; false: the group stops. nil: nothing waits.
	pause   func(time.Duration) bool
	merging atomic.Int64 // when the merge under way was asked for, 0 = none
	dead    int64        // of tend: bytes that only checkpoints hold
	asked   int          // checkpoints made to let them go

	mu      sync.Mutex
	kept    []keptState     // of the checkpoints that are kept, newest last
	holds   []*hold         // further ones, for a while
	spoiled map[uint64]bool // segments that cannot be merged
	queue   []*capture
	waiting atomic.Int32  // length of queue
	wake    chan struct{} // capacity 1
	stepped chan struct{} // capacity 1: a step has ended
}

func (s *sealer) post(c *capture) {
	s.mu.Lock()
	s.queue = append(s.queue, c)
	s.waiting.Store(int32(len(s.queue)))
	s.mu.Unlock()
	signal(s.wake)
}

func (s *sealer) front() *capture {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	return s.queue[0]
}

// step makes the next checkpoint and says whether there was one to make. After
// a failure the capture stays and is tried again at the next step, unless there
// was no room for it.
func (s *sealer) step() (more bool, err error) {
	if s.again {
		s.again = false
		s.ask()
	}
	c := s.front()
	if c == nil {
		return false, nil
	}
	if c.plan.GivenUp() { // it was on its way here when retake gave it up
		if c.merge {
			return s.finish(c), nil
		}
		c.plan.Release()
		s.owe(c.bytes)
		return s.pop(c), nil
	}
	if c.merge {
		return s.merge(c)
	}
	defer s.looked()
	if err := s.checkpoint(c); err != nil {
		if s.alone() && errors.Is(err, vfs.ErrNoSpace) {
			err = errors.Join(err, s.retake())
		}
		return false, fmt.Errorf("placement: seal %d: %w", c.index, err)
	}
	more = s.pop(c)
	s.full.Store(false)
	s.metrics.Checkpoints.Add(1)
	return more, nil
}

// pop takes a capture off the queue and says whether there are more.
func (s *sealer) pop(c *capture) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.queue[0] == c {
		s.queue = s.queue[1:]
	}
	s.waiting.Store(int32(len(s.queue)))
	return len(s.queue) > 0
}

// ask has a seal logged. If that fails, a later Apply asks again.
func (s *sealer) ask() {
	s.machine.prop.command(sealCommand()) //nolint:errcheck // see above
}

// retake gives up all captures, since the disk is full: most of what they hold
// may be settled by the time there is room again, and is in the way until then.
// The next step asks for a seal of what is still needed. What a capture has
// installed already stays in the log, for that seal to name.
func (s *sealer) retake() error {
	m := s.machine
	m.mu.Lock() // no capture comes up in between
	err := m.log.GiveUp()
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.waiting.Store(0)
	s.mu.Unlock()
	m.mu.Unlock()
	var bytes int64
	for _, c := range queue {
		c.plan.Release()
		bytes += c.bytes
	}
	s.merging.Store(0)
	s.owe(bytes)
	s.again = true
	s.full.Store(true)
	kept, _ := s.withHolds(s.keeps())
	return errors.Join(err, m.log.Sweep(manifests(kept)...))
}

// owe counts log as not sealed that an abandoned capture had stood for. It is
// this sealer that asks for the next seal.
func (s *sealer) owe(bytes int64) {
	m := s.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nextSeal = m.sinceSeal.Add(bytes) + m.sealBytes/4
}

// wasteful says whether a seal would free space: there are segments in which
// nothing lives, and only older checkpoints keep them, or much log of which little
// is needed. After one without room this sealer asks for the next.
func (s *sealer) wasteful() bool {
	if s.waiting.Load() > 0 || s.full.Load() {
		return false
	}
	var dead int64
	for _, st := range s.machine.shown.Load().Segments() {
		if st.Runs == 0 && !st.Missing {
			dead += st.Size
		}
	}
	log, needed := s.machine.sinceSeal.Load(), s.machine.shown.Load().HeadBytes()
	return (dead > 0 || log >= s.machine.sealBytes/4) && dead+log > 2*needed
}

func (s *sealer) checkpoint(c *capture) error {
	if err := c.plan.Write(); err != nil {
		return err
	}
	if err := s.install(c.plan); err != nil {
		return err
	}
	// The log may be about to learn that the machine has come this far; then
	// the next try succeeds.
	meta, err := s.log.CheckpointMeta(c.index)
	if err != nil {
		return err
	}
	chain, err := s.keys.save(c.index)
	if err != nil {
		return err
	}
	err = s.store.Write(meta, func(w io.Writer) error { return c.write(w, chain) })
	if err != nil {
		return err
	}
	s.keys.saved(chain, c.index)
	manifest, err := c.plan.Manifest()
	if err != nil {
		return err
	}
	kept := s.keep(c, keptState{manifest, chain})
	c.plan.Release()
	s.clean(kept)
	return nil
}

// keep notes what a checkpoint just written needs, and returns what all that are
// kept do.
func (s *sealer) keep(c *capture, state keptState) []keptState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 && s.queue[0] == c { // else another state was restored meanwhile
		s.kept = append(s.kept, state)
		s.kept = s.kept[max(0, len(s.kept)-keptCheckpoints):]
	}
	return slices.Clone(s.kept)
}

func (s *sealer) keeps() []keptState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

// clean removes what the checkpoints that are kept do not need. The log stays from
// the older one on, so that a start can fall back to it. A failure costs nothing
// but disk: the next time makes up.
func (s *sealer) clean(kept []keptState) {
	kept, oldest := s.withHolds(kept)
	if err := s.machine.shown.Load().Sweep(manifests(kept)...); err != nil {
		s.logger.Warn().Err(err).Msg("old segment files stay")
	}
	if err := s.keys.sweep(kept); err != nil {
		s.logger.Warn().Err(err).Msg("old files of keyed state stay")
	}
	if err := s.keys.forget(oldest); err != nil {
		s.logger.Warn().Err(err).Msg("what is known of deleted keys stays")
	}
	if err := s.log.Cut(oldest); err != nil {
		s.logger.Warn().Err(err).Msg("the log was not cut")
	}
}

// install makes readers find the records in the segment. A plan that was
// installed before an error stays installed.
func (s *sealer) install(p *slog.Plan) error {
	if _, err := p.Manifest(); err == nil {
		return nil
	}
	s.machine.mu.Lock()
	defer s.machine.mu.Unlock()
	return s.machine.log.Install(p)
}

// behind says whether seals pile up because none succeeds.
func (s *sealer) behind() bool { return s.waiting.Load() > maxSeals }

// maxSeals is how many seals may wait for their checkpoint before publishes
// are refused.
const maxSeals = 16

// reset forgets the captures of a state that is gone.
func (s *sealer) reset(state keptState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.kept = nil, []keptState{state}
	s.waiting.Store(0)
	s.merging.Store(0)
}
