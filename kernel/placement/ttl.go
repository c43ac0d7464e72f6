package placement

import (
	"math"
	"sort"
	"strconv"
	"sync"
	"time"

	"encoding/binary"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
	"github.com/trivium-mq/trivium/storage/record"
)

// never is a time that does not come, in milliseconds.
const never = math.MaxInt64

// arrivals remembers when the records of a partition were appended, by the times
// of their entries, which are the leader's clock: the record at marks[i].offset
// and those behind it came at marks[i].time or, by less than a step, later. They
// are kept while a group has a time to live. The machine adds, the shard reads.
type arrivals struct {
	mu    sync.Mutex
	on    bool
	step  int64 // ms
	marks []ageMark
}

// Shape of arrivals: a step is a 512th of the time to live, so the newest half of
// the marks reaches as far back as that; what is older is thinned out.
const (
	arrivalMarks = 1024
	arrivalSteps = 512
)

// start remembers from now on. Records from before count as come now.
func (a *arrivals) start(now, first int64, ttl time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.step = max(ttl.Milliseconds()/arrivalSteps, 1)
	if !a.on {
		a.on = true
		a.marks = append(a.marks[:0], ageMark{now, first})
	}
}

func (a *arrivals) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.on, a.marks = false, nil
}

// append notes that records from offset on come at time.
func (a *arrivals) append(time, offset int64) {
	if !a.on { // only the caller changes it
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.marks)
	if n > 0 && (time < a.marks[n-1].time+a.step || offset <= a.marks[n-1].offset) {
		return
	}
	if n == arrivalMarks {
		for i := range arrivalMarks / 4 {
			a.marks[i] = a.marks[2*i]
		}
		a.marks = append(a.marks[:arrivalMarks/4], a.marks[arrivalMarks/2:]...)
	}
	a.marks = append(a.marks, ageMark{time, offset})
}

// before returns the offset below which all came at or before time.
func (a *arrivals) before(time int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.marks), func(i int) bool { return a.marks[i].time > time })
	switch {
	case i == 0:
		return 0
	case i == len(a.marks):
		return math.MaxInt64
	}
	return a.marks[i].offset
}

// at returns when the record at offset came.
func (a *arrivals) at(offset int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := sort.Search(len(a.marks), func(i int) bool { return a.marks[i].offset > offset })
	switch {
	case i > 0:
		return a.marks[i-1].time
	case len(a.marks) > 0:
		return a.marks[0].time
	}
	return never
}

func (a *arrivals) appendTo(dst []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	dst = binary.AppendUvarint(dst, uint64(a.step))
	return appendMarks(dst, a.marks)
}

func (a *arrivals) decode(d *decoder) {
	a.step = d.offset()
	a.marks = d.marks(a.marks, arrivalMarks)
	a.on = len(a.marks) > 0
}

// expireSteps bounds how many records of one window are looked at in one step of
// the shard.
const expireSteps = 256

// expireHead lets the oldest available records of a window die if their time is
// over, and returns when that of the next one is. A younger record behind it
// waits for its turn.
func (s *shard) expireHead(sh *share, w *window, now int64) (due int64) {
	ttl := int64(-1)
	if sh.limits.MessageTTL >= 0 {
		ttl = sh.limits.MessageTTL.Milliseconds()
	}
	if ttl < 0 && w.part.cut.expiring <= w.Floor() {
		return never
	}
	reach := int64(sharegroup.MaxOffset)
	if w.promised > w.Unread() {
		reach = w.Unread() // members are about to get the others
	}
	defer w.rest()
	for range expireSteps {
		if ttl >= 0 {
			s.expireBelow(sh, w, min(w.part.arrivals.before(now-ttl), reach))
		}
		head, ok := w.Peek()
		if !ok || head >= reach {
			return never
		}
		due = never
		if ttl >= 0 {
			due = w.part.arrivals.at(head) + ttl
		}
		if head < w.part.cut.expiring {
			due = min(due, w.expiry(head))
		}
		if due > now {
			return due
		}
		if s.expireBelow(sh, w, head+1) == 0 {
			return never // it goes on when there is room for the dead
		}
	}
	return now // it goes on in the next step
}

func (s *shard) expireBelow(sh *share, w *window, below int64) int64 {
	n := w.Bury(below, sh.room(), sharegroup.Expired)
	s.metrics.Expired.Add(uint64(n))
	return n
}

// expiry returns when the time of a record is over that has one of its own.
func (w *window) expiry(offset int64) int64 {
	if w.head.offset == offset && w.head.expires != 0 {
		return w.head.expires
	}
	v := w.peek(offset)
	if v == nil {
		return never // hand-outs find out what is wrong
	}
	w.head = headMemo{offset, expiryOf(v)}
	return w.head.expires
}

// headMemo remembers the expiry of the oldest record.
type headMemo struct {
	offset  int64
	expires int64 // 0 is not known
}

// peek reads a record, nil if it is not there or cannot be read now. The view is
// valid until the next peek.
func (w *window) peek(offset int64) *record.View {
	if w.look == nil {
		w.look = w.part.log.Cursor()
	}
	w.look.SeekTo(offset)
	v, err := w.look.Next()
	if err != nil || v == nil || v.Offset != offset {
		return nil
	}
	return v
}

// rest lets go of the bytes that peek keeps.
func (w *window) rest() {
	if w.look != nil {
		w.look.Release()
	}
}

// expiryOf returns when a record's own time is over.
func expiryOf(v *record.View) int64 {
	if !v.IsOwn() || v.HeaderCount() == 0 {
		return never
	}
	value, ok := v.Header(kernel.HeaderExpiresAt)
	if !ok {
		return never
	}
	at, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return never
	}
	return max(at, 1)
}

// promise notes that members who wait take the records that have just come, as far
// as their credit goes: they are handed out as soon as that is logged, whatever
// their time to live.
func (s *shard) promise(sh *share, w *window, end int64) {
	if sh.group.Demand() == 0 {
		return
	}
	if sh.group.Ready() > 0 {
		s.expireHead(sh, w, s.clock.wall()) // they use up no credit
	}
	if spare := sh.group.Demand() - sh.group.Ready(); spare > 0 {
		w.promised = max(w.promised, min(end, w.known+spare))
	}
}

// ageLimit is what read goes by to find expired records in a run.
type ageLimit struct {
	now     int64
	below   int64 // those below have been there for too long
	promise int64 // those below are handed out in any case
}

func (s *shard) ageLimit(sh *share, w *window, r *sharegroup.Run) (l ageLimit) {
	if sh.limits.MessageTTL >= 0 {
		l.now = s.clock.wall()
		l.below = w.part.arrivals.before(l.now - sh.limits.MessageTTL.Milliseconds())
	}
	if r.Acquired == 1 {
		l.promise = w.promised
	}
	return l
}

// expired says whether a record's time is over.
func (l *ageLimit) expired(s *shard, v *record.View) bool {
	if v.Offset < l.promise {
		return false
	}
	if v.Offset < l.below {
		return true
	}
	at := expiryOf(v)
	if at == never {
		return false
	}
	if l.now == 0 {
		l.now = s.clock.wall()
	}
	return l.now >= at
}
