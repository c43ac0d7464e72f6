package placement

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	slog "github.com/trivium-mq/trivium/storage/log"
)

const (
	scrubDelay = time.Minute // from the start, which has enough to do, to the first pass
	scrubTries = 3           // of what cannot be read, a second apart
	scrubRetry = time.Second
)

// errScrubStopped ends a pass with the group.
var errScrubStopped = errors.New("placement: the scrub has been stopped")

// scrubber reads the segments from time to time, slowly, and says what is damaged in
// them before somebody needs it. It changes nothing. One goroutine.
type scrubber struct {
	log     func() *slog.Log
	part    func(PartitionID) *partition
	tell    func(*partition, Damage)
	mend    func(id uint64, cause error) bool // false: nobody else has it
	rate    int64                             // bytes a second
	sleep   func(time.Duration) bool          // false: the group stops
	metrics *Metrics
	logger  zerolog.Logger
}

func newScrubber(g *Group, sleep func(time.Duration) bool) *scrubber {
	s := &scrubber{part: g.machine.partition, rate: g.limits.ScrubRate, sleep: sleep, metrics: &g.metrics, logger: g.cfg.Logger}
	s.log = func() *slog.Log { // another one after a checkpoint from elsewhere
		g.machine.mu.Lock()
		defer g.machine.mu.Unlock()
		return g.machine.log
	}
	s.mend = g.puller.mendSegment
	s.tell = func(p *partition, bad Damage) {
		if g.cfg.OnDamage != nil {
			g.cfg.OnDamage(p.topic.id, p.index, bad)
		}
	}
	return s
}

// run makes a pass after every so often, from the begin of the one before, until the
// group stops.
func (s *scrubber) run(every time.Duration) {
	if every <= 0 {
		return
	}
	for wait := min(scrubDelay, every); s.sleep(wait); {
		begin := time.Now()
		if s.pass() != nil {
			return
		}
		wait = max(every-time.Since(begin), scrubRetry)
	}
}

// pass reads all segments there are. It begins with any of them, so that all have
// their turn on a node that is often started. The error is errScrubStopped.
func (s *scrubber) pass() error {
	log := s.log()
	list := log.Segments()
	first, damaged := 0, int64(0)
	if len(list) > 0 {
		first = rand.IntN(len(list))
	}
	for i := range list {
		st := list[(first+i)%len(list)]
		if st.Missing {
			damaged++ // that has been said at the start
			continue
		}
		bad, err := s.segment(log, st.ID)
		if err != nil {
			return err
		}
		if bad {
			damaged++
			s.metrics.ScrubDamaged.Store(max(damaged, s.metrics.ScrubDamaged.Load()))
		}
	}
	s.metrics.ScrubDamaged.Store(damaged)
	s.metrics.ScrubPasses.Add(1)
	return nil
}

// segment reads a segment, and what lives in it one by one if it is not whole.
func (s *scrubber) segment(log *slog.Log, id uint64) (bad bool, err error) {
	err = log.CheckPaced(id, s.pace)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, errScrubStopped):
		return false, errScrubStopped
	case errors.Is(err, fs.ErrNotExist): // merged, or nobody needs it any more
		return false, nil
	}
	s.logger.Error().Err(err).Str("segment", slog.SegmentName(id)).Msg("the scrub has found a damaged segment; see to the disk")
	if s.mend(id, err) {
		return true, nil // it comes from another replica
	}
	for _, held := range log.Holds(id) {
		p := s.part(PartitionID(held.Partition.ID()))
		if p == nil {
			continue
		}
		var list []Damage
		err := held.Damaged(s.pace, func(d *slog.Damage) { list = append(list, Damage{d.First, d.Last, d.Wrong, held.Partition.Alone()}) })
		if errors.Is(err, errScrubStopped) {
			return true, err
		} else if err != nil {
			s.logger.Error().Err(err).Str("segment", slog.SegmentName(id)).Msg("a damaged segment cannot be read")
		}
		for _, d := range list {
			if d, err = s.confirm(p, d); err != nil {
				return true, err
			}
			if d.First <= d.Last {
				s.tell(p, d)
			}
		}
	}
	return true, nil
}

// confirm tries again what could not be read: an error of the disk may pass. The
// result is without offsets if it has.
func (s *scrubber) confirm(p *partition, d Damage) (Damage, error) {
	for range scrubTries - 1 {
		if d.Wrong {
			return d, nil
		}
		if !s.sleep(scrubRetry) {
			return d, errScrubStopped
		}
		again, ok := (&Partition{p}).Damaged(d.First)
		if !ok {
			return Damage{First: 0, Last: -1}, nil
		}
		d = again
	}
	return d, nil
}

// pace waits after n bytes.
func (s *scrubber) pace(n int) error {
	s.metrics.ScrubBytes.Add(uint64(n))
	if !s.sleep(time.Duration(int64(n) * int64(time.Second) / s.rate)) {
		return errScrubStopped
	}
	return nil
}
