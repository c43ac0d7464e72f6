package placement

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// sealer turns captures into checkpoints: segment, keyed state, install,
// checkpoint, log cut, in this order, so that a crash between any two leaves a
// checkpoint with all it needs. It is stepped in the background, one capture
// after the other.
type sealer struct {
	machine *machine
	log     replicator
	store   *checkpoint.Store
	sync    func() error // of the keyed state
	forget  func(index uint64) error
	clock   clock
	metrics *Metrics
	logger  zerolog.Logger
	kept    []*slog.Manifest // of the checkpoints that are kept, newest last

	mu      sync.Mutex
	queue   []*capture
	waiting atomic.Int32  // length of queue
	wake    chan struct{} // capacity 1
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
// a failure, of which a full disk is the usual one, the capture stays and is
// tried again at the next step.
func (s *sealer) step() (more bool, err error) {
	c := s.front()
	if c == nil {
		return false, nil
	}
	if err := s.checkpoint(c); err != nil {
		return false, fmt.Errorf("placement: seal %d: %w", c.index, err)
	}
	s.mu.Lock()
	if len(s.queue) > 0 && s.queue[0] == c {
		s.queue = s.queue[1:]
	}
	more = len(s.queue) > 0
	s.waiting.Store(int32(len(s.queue)))
	s.mu.Unlock()
	s.metrics.Checkpoints.Add(1)
	return more, nil
}

func (s *sealer) checkpoint(c *capture) error {
	if err := c.plan.Write(); err != nil {
		return err
	}
	if err := s.sync(); err != nil {
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
	payload, err := c.payload()
	if err != nil {
		return err
	}
	err = s.store.Write(meta, func(w io.Writer) error {
		_, err := w.Write(payload)
		return err
	})
	if err != nil {
		return err
	}
	manifest, err := c.plan.Manifest()
	if err != nil {
		return err
	}
	s.kept = append(s.kept, manifest)
	if len(s.kept) > 2 {
		s.kept = s.kept[1:]
	}
	c.plan.Release()
	// From here on a failure costs nothing but disk: the next time makes up.
	if err := s.machine.log.Sweep(s.kept...); err != nil {
		s.logger.Warn().Err(err).Msg("old segment files stay")
	}
	if err := s.forget(s.kept[0].Index); err != nil {
		s.logger.Warn().Err(err).Msg("what is known of deleted keys stays")
	}
	if err := s.log.Cut(c.index); err != nil {
		s.logger.Warn().Err(err).Msg("the log was not cut")
	}
	return nil
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
func (s *sealer) reset(m *slog.Manifest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.kept = nil, []*slog.Manifest{m}
	s.waiting.Store(0)
}
