package placement

import (
	"math"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// handBytes is about how much is handed to a consumer in one call: after it, the
// consumer may have taken back the credit for the rest.
const handBytes = 1 << 20

// give reads the records of a hand-out and calls the consumer, until all are
// handed over or their credit was taken back. What turns out not to be there is
// archived, and the member gets its credit back.
func (s *shard) give(sh *share, m *Member, runs []sharegroup.Run, now int64) {
	for {
		if sh.stalled && sh.patient { // what cannot be read now goes first
			s.withhold(sh, m, runs, now)
			return
		}
		if runs = s.callOff(sh, m, runs, now); len(runs) == 0 {
			return
		}
		var part []sharegroup.Run
		part, runs = s.read(sh, m, runs, handBytes, now)
		if len(s.batch) == 0 {
			continue
		}
		if !s.certain() {
			s.withhold(sh, m, s.unread(part), now)
			s.withhold(sh, m, runs, now)
			s.queue(sh)
			return
		}
		switch m.hand(s.batch, s.bytes) {
		case handStopped: // just now
			s.settleRuns(sh, m, part, sharegroup.Release, now)
			s.settleRuns(sh, m, runs, sharegroup.Release, now)
			return
		case handRefused:
			runs = append(s.unread(part), runs...)
		case handTaken:
			s.handed(sh, m, part, now)
		}
	}
}

// unread returns the runs of what is in s.batch, which was read from part: what
// turned out not to be there is not in them.
func (s *shard) unread(part []sharegroup.Run) (runs []sharegroup.Run) {
	batch := s.batch
	for _, r := range part {
		for from := len(runs); len(batch) > 0; batch = batch[1:] {
			d := &batch[0]
			if d.Partition != r.Partition || d.Offset < r.First || d.Offset > r.Last {
				break
			}
			if n := len(runs); n > from && runs[n-1].Last+1 == d.Offset {
				runs[n-1].Last++
				continue
			}
			one := r
			one.First, one.Last = d.Offset, d.Offset
			runs = append(runs, one)
		}
	}
	return runs
}

// callOff gives back the last of runs as far as the member has taken back its
// credit, and returns the others.
func (s *shard) callOff(sh *share, m *Member, runs []sharegroup.Run, now int64) []sharegroup.Run {
	n := m.withdrawn(records(runs))
	if n == 0 {
		return runs
	}
	m.off += n
	for n > 0 {
		r := &runs[len(runs)-1]
		back := *r
		back.First = max(r.First, r.Last-int64(n)+1)
		n -= back.Len()
		s.settleRuns(sh, m, []sharegroup.Run{back}, sharegroup.Release, now)
		if r.Last = back.First - 1; r.Last < r.First {
			runs = runs[:len(runs)-1]
		}
	}
	s.queue(sh) // there may be others who want them
	return runs
}

func records(runs []sharegroup.Run) (n int) {
	for _, r := range runs {
		n += r.Len()
	}
	return n
}

// handed accounts for the records in s.batch, which the member has got.
func (s *shard) handed(sh *share, m *Member, runs []sharegroup.Run, now int64) {
	n := uint64(len(s.batch))
	m.got += len(s.batch)
	sh.stat.delivered.Add(n)
	s.metrics.Delivered.Add(n)
	if m.auto {
		s.settleRuns(sh, m, runs, sharegroup.Accept, now)
		sh.stat.settled.Add(n)
		s.metrics.Settled.Add(n)
	}
}

func (s *shard) settleRuns(sh *share, m *Member, runs []sharegroup.Run, o sharegroup.Outcome, now int64) {
	for _, r := range runs {
		// What the member does not hold any more is none of our business.
		sh.group.Settle(r.Partition, sharegroup.Ack{Member: m.id, First: r.First, Last: r.Last, Outcome: o}, now) //nolint:errcheck
	}
}

// read makes s.batch of the records in runs, up to limit bytes, and returns those
// that it read and the others. They and the batch are valid until the next read.
func (s *shard) read(sh *share, m *Member, runs []sharegroup.Run, limit int, now int64) (read, rest []sharegroup.Run) {
	clear(s.views)                                    // lets go of the last batch's bytes
	s.views = slices.Grow(s.views[:0], records(runs)) // deliveries point into it: it must not move
	s.batch = s.batch[:0]
	most := limit
	defer func() { s.bytes = most - limit }()
	for i := range runs {
		r := &runs[i]
		next := s.readRun(sh, m, *r, &limit, now)
		if next > r.Last {
			if sh.stalled && sh.patient {
				return runs[:i+1], runs[i+1:]
			}
			continue
		}
		s.parts = append(s.parts[:0], runs[:i+1]...)
		s.parts[i].Last, r.First = next-1, next
		return s.parts, runs[i:]
	}
	return runs, nil
}

// readRun appends the records of one run to s.batch, until limit bytes are used
// up, and returns the offset after the last one it has dealt with.
func (s *shard) readRun(sh *share, m *Member, r sharegroup.Run, limit *int, now int64) int64 {
	next := r.First
	if *limit <= 0 {
		return next
	}
	w := sh.window(r.Partition)
	if w.cursor == nil {
		w.cursor = w.part.log.Cursor()
	}
	w.cursor.SeekTo(next)
	ages := s.ageLimit(sh, w, &r)
	for next <= r.Last && *limit > 0 {
		v, err := w.cursor.Next()
		if err != nil {
			if next = s.unreadable(sh, m, w, next, r.Last, err, now); next <= r.Last {
				w.cursor.SeekTo(next)
			}
			continue
		}
		if v == nil || v.Offset > r.Last {
			w.Hole(next, r.Last)
			return r.Last + 1
		}
		if v.Offset > next {
			w.Hole(next, v.Offset-1)
		}
		next = v.Offset + 1
		if ages.expired(s, v) {
			s.expire(sh, m, w, v.Offset, now)
			continue
		}
		*limit -= v.Size
		s.views = append(s.views, *v)
		s.batch = append(s.batch, kernel.Delivery{
			Record: &s.views[len(s.views)-1], Partition: r.Partition, Offset: v.Offset,
			Acquired: int32(r.Acquired), Failed: int32(r.Failed), Redelivered: r.Redelivered,
		})
	}
	return next
}

// expire lets a record die that the member holds, without handing it over.
func (s *shard) expire(sh *share, m *Member, w *window, offset int64, now int64) {
	ack := sharegroup.Ack{Member: m.id, First: offset, Last: offset, Outcome: sharegroup.Refuse, Reason: sharegroup.Expired}
	if res, err := w.Settle(ack, now); err != nil || res.Records == 0 {
		return
	}
	s.metrics.Expired.Add(1)
	if !m.pull {
		sh.group.Grant(m.id, 1) //nolint:errcheck // it is a member
		s.queue(sh)
	}
}

// rest lets go of the bytes that cursors keep where there is nothing more to
// read for now.
func (s *shard) rest(sh *share) {
	for _, w := range sh.windows {
		if w.cursor != nil && w.cursor.Offset() >= w.known {
			w.cursor.Release()
		}
	}
}

// acquisition is an Acquire call on its way.
type acquisition struct {
	member *Member
	max    int
	fn     func([]kernel.Delivery, int64)
	done   chan<- error
}

// acquire serves an Acquire. If hand-outs wait for a reservation in the log it
// is parked, and retried when that has been applied.
func (s *shard) acquire(a *acquisition) {
	m := a.member
	sh := m.share
	if err := s.present(m); err != nil {
		a.done <- err
		return
	}
	if !s.certain() {
		s.held = append(s.held, a)
		return
	}
	now := s.clock.mono()
	s.touch(sh)
	if sh.minded {
		s.tend(sh)
	}
	var runs []sharegroup.Run
	for s.batch = s.batch[:0]; len(s.batch) == 0 && !sh.stalled && sh.room() > 0; { // all of a hand-out may be expired, or holes
		var err error
		if runs, err = sh.group.Acquire(m.id, a.max, now); err != nil {
			a.done <- err
			return
		}
		if len(runs) == 0 {
			break
		}
		var rest []sharegroup.Run // of a share that is stalled
		runs, rest = s.read(sh, m, runs, math.MaxInt, now)
		s.settleRuns(sh, m, rest, sharegroup.Release, now)
	}
	if s.bytes >= kernel.LargeDelivery && len(s.batch) > 0 && !m.admits(len(s.batch), s.bytes) {
		for _, r := range s.unread(runs) {
			s.settleRuns(sh, m, []sharegroup.Run{r}, sharegroup.Release, now)
		}
		s.queue(sh) // there may be others who want them
		s.rest(sh)
		a.done <- nil
		return
	}
	if len(s.batch) == 0 && sh.reserving() {
		sh.parked = append(sh.parked, a)
		return
	}
	if !s.certain() {
		s.settleRuns(sh, m, runs, sharegroup.Release, now)
		s.held = append(s.held, a)
		return
	}
	a.fn(s.batch, sh.group.Ready())
	s.handed(sh, m, runs, now)
	s.rest(sh)
	a.done <- nil
}

// retry serves parked Acquire calls again.
func (s *shard) retry(sh *share) {
	if len(sh.parked) == 0 || sh.waiting() {
		return
	}
	parked := sh.parked
	sh.parked = nil
	for _, a := range parked {
		s.acquire(a)
	}
}

// present returns why the member may take nothing, or nil.
func (s *shard) present(m *Member) error {
	switch {
	case m.share.gone:
		return kernel.Errorf(kernel.CodeDropped, "group", m.share.spec.Address.Group, "it was deleted")
	case m.share.members[m.id] != m:
		return errNotLeading
	case s.finished:
		return errStopped
	}
	return nil
}
