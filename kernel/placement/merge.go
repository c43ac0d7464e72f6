package placement

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// Merges rewrite segments in which little lives, and join small ones: decided by
// the leader, one at a time, logged as a command that names the segments, and
// carried out by the sealer of each replica in its turn. What they replace is
// removed when both kept checkpoints are newer.
const (
	mergeRate    = 32 << 20        // bytes a second while no seal waits
	mergePatient = 2 * time.Minute // until one that was asked for counts as lost
	mergeJoin    = 8               // small neighbours that are joined
	maxMerge     = 64              // segments in one
)

func mergeCommand(ids []uint64) []byte {
	b := binary.AppendUvarint([]byte{cmdMerge}, uint64(len(ids)))
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return b
}

// merge begins a merge. An entry makes one file at most, which has its number: a
// seal goes before, and the leader asks again.
func (m *machine) merge(d *decoder) {
	ids := make([]uint64, 0, maxMerge)
	for n := d.int(maxMerge); n > 0 && d.err == nil; n-- {
		ids = append(ids, d.uint64())
	}
	if d.err == nil {
		m.mergeDue = ids
	}
}

// startMerge freezes what is to be merged as of the entry.
func (m *machine) startMerge(ids []uint64) {
	if m.sealer == nil {
		return
	}
	c := &capture{index: m.entry.Index, merge: true, plan: m.log.Merge(m.entry.Index, ids...), ids: ids, ready: m.sealer.post}
	// Seals before it come to the sealer when all have added their part to them;
	// so does it, to stay behind.
	c.left.Store(int32(len(m.shards)) + 1)
	for _, s := range m.shards {
		m.tell(s, event{kind: evCall, call: c.added})
	}
	m.landed = append(m.landed, errand{call: c.added})
}

// merge carries out the merge at the front of the queue.
func (s *sealer) merge(c *capture) (more bool, err error) {
	defer s.looked()
	err = c.plan.WritePaced(func(n int) error { return s.pace(n) })
	m := s.machine
	m.mu.Lock()
	switch {
	case err == nil:
		err = m.log.Install(c.plan)
	case !s.alone() && s.awaited(err):
		m.mu.Unlock()
		return false, nil // the puller wakes it
	case s.hopeless(err):
		err = errors.Join(err, m.log.Abandon(c.plan))
		m.mu.Unlock()
		s.spoil(c, err)
		return s.finish(c), nil
	}
	m.mu.Unlock()
	if err != nil {
		return false, fmt.Errorf("placement: merge %d: %w", c.index, err)
	}
	s.metrics.Merges.Add(1)
	return s.finish(c), nil
}

// finish ends a merge, and says whether there is more to do.
func (s *sealer) finish(c *capture) (more bool) {
	c.plan.Release()
	more = s.pop(c)
	s.merging.Store(0)
	return more
}

// awaited says whether what a merge lacks comes from another replica. Seals wait
// behind it: each replica merges what the others do.
func (s *sealer) awaited(err error) bool {
	puller := s.machine.puller
	if errors.Is(err, slog.ErrMissing) {
		return puller.coming()
	}
	return puller.mend(err)
}

// hopeless tells errors of a merge that trying again does not help, or not soon.
func (s *sealer) hopeless(err error) bool {
	return errors.Is(err, slog.ErrDamaged) || errors.Is(err, slog.ErrMissing) || errors.Is(err, slog.ErrNeighbours) ||
		s.alone() && errors.Is(err, vfs.ErrNoSpace)
}

// spoil remembers the segments of a merge that met damage: they stay as they are,
// so that their damage is still seen by those who read them.
func (s *sealer) spoil(c *capture, err error) {
	s.logger.Warn().Err(err).Uint64("index", c.index).Msg("segments are not merged")
	if errors.Is(err, vfs.ErrNoSpace) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spoiled == nil {
		s.spoiled = make(map[uint64]bool)
	}
	for _, id := range c.ids {
		s.spoiled[id] = true
	}
}

// pace waits after n bytes of a merge. Publishes are not
// to feel it; when seals wait behind it, it hurries.
func (s *sealer) pace(n int) error {
	s.metrics.MergedBytes.Add(uint64(n))
	if s.pause == nil || s.waiting.Load() > 1 {
		return nil
	}
	if !s.pause(time.Duration(int64(n) * int64(time.Second) / mergeRate)) {
		return errStopped
	}
	return nil
}

// tend is called once a second on the leader: it asks for what gives disk space
// back. free is what the volume has, floor what has to stay.
func (s *sealer) tend(now, free, floor int64) {
	if s.waiting.Load() > 0 || s.full.Load() {
		return
	}
	if s.held() {
		s.ask()
		return
	}
	if asked := s.merging.Load(); asked > 0 && now-asked < int64(mergePatient) {
		return
	}
	if s.sending != nil && s.sending() {
		return
	}
	s.mu.Lock()
	ids := chooseMerge(s.machine.shown.Load().Segments(), s.spoiled, s.machine.sealBytes, max(free-floor, free/4))
	s.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	s.merging.Store(max(now, 1))
	if _, err := s.machine.prop.command(mergeCommand(ids)); err != nil {
		s.merging.Store(0)
	}
}

// held says whether another checkpoint would let much go: segments in which
// nothing lives, and which only the checkpoints name. Somebody else may need
// them: then it is not asked again before they are others.
func (s *sealer) held() bool {
	var dead int64
	for _, st := range s.machine.shown.Load().Segments() {
		if st.Runs == 0 && !st.Missing {
			dead += st.Size
		}
	}
	if dead != s.dead {
		s.dead, s.asked = dead, 0
	}
	if dead < s.machine.sealBytes/2 || s.asked > 2*keptCheckpoints {
		return false
	}
	s.asked++
	return true
}

// keptCheckpoints is how many checkpoints are kept.
const keptCheckpoints = 2

// chooseMerge returns the neighbours that are best merged, none if no merge is worth
// its while: at most two units are written, and either more than that is freed, and
// an eighth of a unit at least, or eight small segments become one. room is how much
// may be written.
func chooseMerge(list []slog.SegmentStat, spoiled map[uint64]bool, unit, room int64) []uint64 {
	var best []uint64
	var bestGain int64
	for i := range list {
		var ids []uint64
		var live, size int64
		small := true
		for _, st := range list[i:] {
			if st.Runs == 0 && !st.Missing {
				continue
			}
			if st.Missing || spoiled[st.ID] || len(ids) == maxMerge {
				break
			}
			l := min(st.LiveBytes, st.Size)
			if live+l > min(2*unit, room) {
				break
			}
			ids, live, size = append(ids, st.ID), live+l, size+st.Size
			small = small && st.Size <= unit/4
			gain := size - live
			if gain < max(live, unit/8) {
				if !small || len(ids) < mergeJoin {
					continue
				}
				gain = 1 // only the number of files
			}
			if gain > bestGain {
				best, bestGain = append(best[:0], ids...), gain
			}
		}
	}
	return best
}
