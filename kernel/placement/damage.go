package placement

import (
	"errors"
	"slices"

	"github.com/trivium-mq/trivium/sharegroup"
	slog "github.com/trivium-mq/trivium/storage/log"
)

const (
	damageTries = 3  // how often damaged records are read, a tick apart, before they are skipped
	badRanges   = 16 // how many a window remembers
)

// Damage is offsets of a partition that cannot be read.
type Damage struct {
	First, Last int64
	// Wrong: what is on the disk was read and is not what was written. Else it could
	// not be read, which may pass.
	Wrong bool
	Alone bool // no other node has them
}

// badRange is records of a partition that could not be read. Its last offset
// names it: where it begins depends on who reads.
type badRange struct {
	last  int64
	tries int
	tick  uint64 // of the shard, at the last try
	from  int64  // the lowest offset skipped; beyond last before it is given up
}

// unreadable deals with records that cannot be read, and returns where to go
// on. What is wrong on the disk is skipped as a whole, loudly, since it stays so.
// What cannot be read is given back, and the share rests until the next tick; at the
// third try it is skipped as well. An error of the disk that passes loses nothing.
func (s *shard) unreadable(sh *share, m *Member, w *window, next, last int64, cause error, now int64) int64 {
	end, damaged := badEnd(cause, next)
	if damaged && s.puller.mend(cause) {
		damaged = false // it comes from another replica
	}
	if errors.Is(cause, slog.ErrMissing) {
		s.puller.hurry()
	}
	b := w.failing(end)
	if b.tries == 0 || b.tick != s.ticks {
		b.tries, b.tick = b.tries+1, s.ticks
	}
	if damaged && (b.from <= b.last || b.tries >= damageTries || wrong(cause) && w.part.log.Alone()) {
		s.skip(w, b, next, cause)
		return end + 1
	}
	w.Settle(sharegroup.Ack{Member: m.id, First: next, Last: last, Outcome: sharegroup.Release}, now) //nolint:errcheck
	if !m.pull {
		sh.group.Grant(m.id, int(last-next+1)) //nolint:errcheck
	}
	if b.tries == 1 && !errors.Is(cause, slog.ErrDropped) {
		s.log.Warn().Err(cause).Uint64("partition", uint64(w.part.id)).Int64("offset", next).Msg("records cannot be read now")
	}
	sh.patient = b.tries <= damageTries
	if !sh.stalled {
		sh.stalled = true
		s.stalled = append(s.stalled, sh)
	}
	return last + 1
}

// skip archives what is left of a lost range from next on. Others may hold parts
// of it; they will come here too.
func (s *shard) skip(w *window, b *badRange, next int64, cause error) {
	if b.from > b.last {
		s.log.Error().Err(cause).Uint64("partition", uint64(w.part.id)).
			Int64("first", next).Int64("last", b.last).Msg("records are lost to damage on disk and are skipped")
	}
	if next < b.from {
		s.metrics.Lost.Add(uint64(w.Unsettled(b.from) - w.Unsettled(next)))
		b.from = next
	}
	w.Hole(next, b.last)
}

// badEnd returns the last offset that an error of reading at next is about, and
// whether what is there is damaged, and not only absent.
func badEnd(cause error, next int64) (end int64, damaged bool) {
	if d, ok := errors.AsType[*slog.Damage](cause); ok {
		return max(d.Last, next), true
	}
	if g, ok := errors.AsType[*slog.Gap](cause); ok {
		return max(g.Last, next), false
	}
	return next, false
}

// wrong says whether reading again would find the same.
func wrong(cause error) bool {
	d, ok := errors.AsType[*slog.Damage](cause)
	return ok && d.Wrong
}

// failing returns the range that ends at last. It is valid until the next call.
func (w *window) failing(last int64) *badRange {
	w.bad = slices.DeleteFunc(w.bad, func(b badRange) bool { return b.last < w.Floor() })
	i := slices.IndexFunc(w.bad, func(b badRange) bool { return b.last == last })
	if i < 0 {
		if len(w.bad) == badRanges {
			w.bad = slices.Delete(w.bad, 0, 1)
		}
		i = len(w.bad)
		w.bad = append(w.bad, badRange{last: last, from: last + 1})
	}
	return &w.bad[i]
}
