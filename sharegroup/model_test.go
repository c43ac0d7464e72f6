package sharegroup

import (
	"maps"
	"slices"
)

// model is a window that is slow and obviously right: one entry per offset.
type model struct {
	policy Policy

	// durable
	settled map[int64]bool
	failed  map[int64]uint16
	readTo  int64
	lowered uint64
	term    uint64
	epoch   uint32

	// overlay
	recs        map[int64]*modelRec // every offset below end
	end         int64
	again       int64
	handed      int64
	lowering    uint64 // number of the last lowering taken
	base        int64  // and to where
	leaderTerm  uint64
	acquisition uint64
	locks       map[MemberID]int64
	accepted    map[int64]bool // gathered since the last Take
	archived    map[int64]bool
	failing     map[int64]uint16
	dead        []Dead
	dying       map[int64]bool // dead, waiting for Archive
}

type modelState int

const (
	unread modelState = iota
	back
	held
	closing // a hole not yet stepped over
	gone    // settled, or on the way there
)

type modelRec struct {
	state       modelState
	member      MemberID
	acquisition uint64
	acquired    uint16
	failed      uint16
	deadline    int64
}

func newModel() *model {
	return &model{settled: map[int64]bool{}, failed: map[int64]uint16{}}
}

func (m *model) floor() int64 {
	f := int64(0)
	for m.settled[f] {
		f++
	}
	return f
}

func (m *model) lead(term uint64, end int64, p Policy) {
	m.policy, m.leaderTerm, m.end = p, term, end
	m.again, m.handed, m.acquisition = m.readTo, 0, 0
	m.lowering = m.lowered
	m.locks = map[MemberID]int64{}
	m.reopen()
}

func (m *model) reopen() {
	m.recs = map[int64]*modelRec{}
	m.gather()
	m.dead, m.dying = nil, map[int64]bool{}
	end := m.end
	m.end = 0
	m.extend(end)
}

func (m *model) gather() {
	m.accepted, m.archived, m.failing = map[int64]bool{}, map[int64]bool{}, map[int64]uint16{}
}

func (m *model) extend(end int64) {
	for ; m.end < end; m.end++ {
		r := &modelRec{failed: m.failed[m.end]}
		if m.settled[m.end] {
			r.state = gone
		}
		m.recs[m.end] = r
	}
	m.step()
}

// next is the lowest unread offset.
func (m *model) next() int64 {
	o := m.end
	for x := m.end - 1; x >= 0; x-- {
		if m.recs[x].state == unread {
			o = x
		}
	}
	return o
}

// step archives the holes below next.
func (m *model) step() {
	n := m.next()
	for o := int64(0); o < n; o++ {
		if m.recs[o].state == closing {
			m.recs[o].state = gone
			m.archived[o] = true
		}
	}
}

func (m *model) count(s modelState) (n int) {
	for _, r := range m.recs {
		if r.state == s {
			n++
		}
	}
	return n
}

func (m *model) lowest(s modelState) (int64, bool) {
	for o := int64(0); o < m.end; o++ {
		if m.recs[o].state == s {
			return o, true
		}
	}
	return 0, false
}

type modelOut struct {
	offset           int64
	acquired, failed uint16
	redelivered      bool
}

func (m *model) acquire(t Taker, n int, now int64) (outs []modelOut) {
	m.acquisition++
	m.locks[t.Member] = t.Lock
	for n > 0 {
		if m.policy.MaxAcquired > 0 && !t.Auto && m.count(held) >= m.policy.MaxAcquired {
			break
		}
		o, given := m.lowest(back)
		if !given {
			var ok bool
			if o, ok = m.lowest(unread); !ok || m.policy.ReadAhead > 0 && o >= m.covered() {
				break
			}
		}
		r := m.recs[o]
		m.handed = max(m.handed, o+1)
		if !given {
			r.acquired = r.failed
		}
		if (given || r.failed > 0) && m.policy.over(r.acquired, r.failed) {
			m.bury(o, OverLimit)
			m.step()
			continue
		}
		r.acquired++
		outs = append(outs, modelOut{o, r.acquired, r.failed, given || o < m.again})
		n--
		if t.Auto {
			r.state = gone
			m.accepted[o] = true
		} else {
			r.state, r.member, r.acquisition, r.deadline = held, t.Member, m.acquisition, 0
			if t.Lock > 0 {
				r.deadline = now + t.Lock
			}
		}
		m.step()
	}
	return outs
}

// covered is where hand-outs end until a settlement says more.
func (m *model) covered() int64 {
	if m.lowering > m.lowered {
		return min(m.readTo, m.base)
	}
	return m.readTo
}

// exact is the lowest mark under which nothing that may have been seen comes back
// unmarked.
func (m *model) exact() int64 { return max(m.again, m.handed) }

func (m *model) mark(s *Settlement) {
	if s.Lowered > m.lowered {
		m.lowered, m.readTo = s.Lowered, s.ReadTo
	} else if s.Lowered == m.lowered {
		m.readTo = max(m.readTo, s.ReadTo)
	}
}

func (m *model) bury(o int64, why Reason) {
	r := m.recs[o]
	m.dead = append(m.dead, Dead{o, r.acquired, r.failed, why})
	r.state = gone
	if m.policy.DeadLetter {
		m.dying[o] = true
	} else {
		m.archived[o] = true
	}
}

func (m *model) giveBack(o int64, counted bool) {
	r := m.recs[o]
	if counted && m.policy.counts() {
		r.failed++
		m.failing[o] = r.failed
	}
	if m.policy.over(r.acquired, r.failed) {
		m.bury(o, OverLimit)
	} else {
		r.state = back
	}
}

func (m *model) settle(a Ack, now int64) (n int) {
	if a.Term != 0 && a.Term != m.leaderTerm {
		return 0
	}
	var hit []int64
	for o := a.First; o <= a.Last; o++ {
		r := m.recs[o]
		if r != nil && r.state == held && r.member == a.Member && (a.Acquisition == 0 || r.acquisition <= a.Acquisition) {
			hit = append(hit, o)
		}
	}
	if a.Exact && int64(len(hit)) != a.Last-a.First+1 {
		return 0
	}
	for _, o := range hit {
		r := m.recs[o]
		switch a.Outcome {
		case Accept:
			r.state = gone
			m.accepted[o] = true
		case Gap:
			r.state = gone
			m.archived[o] = true
		case Refuse:
			m.bury(o, Refused)
		case Release, Fail:
			m.giveBack(o, a.Outcome == Fail)
		case Renew:
			if lock := m.locks[a.Member]; lock > 0 {
				r.deadline = now + lock
			}
		}
	}
	return len(hit)
}

func (m *model) heldBy(id MemberID) (list []int64) {
	for o, r := range m.recs {
		if r.state == held && r.member == id {
			list = append(list, o)
		}
	}
	slices.Sort(list)
	return list
}

func (m *model) releaseAll(id MemberID, counted bool) int {
	list := m.heldBy(id)
	for _, o := range list {
		m.giveBack(o, counted)
	}
	return len(list)
}

func (m *model) expire(now int64) int {
	var due []mark
	for o, r := range m.recs {
		if r.state == held && r.deadline != 0 && r.deadline <= now {
			due = append(due, mark{r.deadline, o})
		}
	}
	slices.SortFunc(due, func(a, b mark) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for _, d := range due {
		m.giveBack(d.offset, true)
	}
	return len(due)
}

func (m *model) nextDeadline() (at int64, ok bool) {
	for _, r := range m.recs {
		if r.state == held && r.deadline != 0 && (!ok || r.deadline < at) {
			at, ok = r.deadline, true
		}
	}
	return at, ok
}

func (m *model) hole(first, last int64) {
	n := m.next()
	for o := first; o <= min(last, m.end-1); o++ {
		switch r := m.recs[o]; {
		case r.state == unread:
			r.state = closing
		case o < n && r.state != gone:
			r.state = gone
			m.archived[o] = true
		}
	}
	m.step()
}

func (m *model) purge() (n int64) {
	for o, r := range m.recs {
		switch r.state {
		case unread, back:
			n++
			fallthrough
		case closing:
			r.state = gone
			m.archived[o] = true
		}
	}
	return n
}

// buryOldest is Window.Bury.
func (m *model) buryOldest(below, most int64, why Reason) (n int64) {
	for _, state := range []modelState{back, unread} {
		for ; n < most; n++ {
			o, ok := m.lowest(state)
			if !ok || o >= below {
				break
			}
			r := m.recs[o]
			if state == unread {
				r.acquired = r.failed
			}
			if m.policy.DeadLetter {
				m.bury(o, why)
			} else {
				r.state = gone
				m.archived[o] = true
			}
			m.step()
		}
	}
	return n
}

// available lists what is there to be handed out, in order.
func (m *model) available() (list []int64) {
	for o := int64(0); o < m.end; o++ {
		if s := m.recs[o].state; s == back || s == unread {
			list = append(list, o)
		}
	}
	return list
}

func (m *model) trim(start int64) {
	for o := int64(0); o < start; o++ {
		m.settleOne(o)
	}
	if m.recs != nil {
		m.extend(start)
		m.step()
	}
}

func (m *model) settleOne(o int64) {
	m.settled[o] = true
	delete(m.failed, o)
	if r := m.recs[o]; r != nil {
		r.state = gone
	}
}

func (m *model) apply(s *Settlement) bool {
	if s.Term < m.term {
		return false
	}
	if s.Seek {
		if s.Epoch != m.epoch+1 {
			return false
		}
		m.term, m.epoch = s.Term, s.Epoch
		m.mark(s)
		m.settled, m.failed = map[int64]bool{}, map[int64]uint16{}
		for o := int64(0); o < s.SeekTo; o++ {
			m.settled[o] = true
		}
		m.again = max(m.again, m.handed, m.readTo)
		m.lowering = m.lowered
		m.reopen()
		return true
	}
	if s.Epoch != m.epoch {
		return false
	}
	m.term = s.Term
	m.mark(s)
	for _, sp := range slices.Concat(s.Accepted, s.Archived) {
		for o := sp.First; o <= sp.Last; o++ {
			m.settleOne(o)
		}
	}
	for _, f := range s.Failed {
		if !m.settled[f.Offset] {
			m.failed[f.Offset] = max(m.failed[f.Offset], f.Count)
		}
	}
	m.step()
	return true
}

// take checks a settlement against what has been gathered, and begins anew.
func (m *model) take(s *Settlement) string {
	got := map[int64]bool{}
	for _, sp := range s.Accepted {
		for o := sp.First; o <= sp.Last; o++ {
			got[o] = true
		}
	}
	if !maps.Equal(got, m.accepted) {
		return "accepted differ"
	}
	got = map[int64]bool{}
	for _, sp := range s.Archived {
		for o := sp.First; o <= sp.Last; o++ {
			got[o] = true
			if !m.archived[o] && m.recs[o].state != gone {
				return "archived what is not gone"
			}
		}
	}
	for o := range m.archived {
		if !got[o] {
			return "archived missing"
		}
	}
	counts := map[int64]uint16{}
	for _, f := range s.Failed {
		counts[f.Offset] = f.Count
	}
	if !maps.Equal(counts, m.failing) || len(counts) != len(s.Failed) {
		return "failed counts differ"
	}
	m.gather()
	if s.Lowered > m.lowering {
		m.lowering, m.base = s.Lowered, s.ReadTo
	}
	if s.Lowered < m.lowering || m.policy.ReadAhead > 0 && s.ReadTo < m.exact() {
		return "mark below what was handed out"
	}
	return ""
}
