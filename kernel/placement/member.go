package placement

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// Member is one consumer's place in a share group. Its methods are safe for
// concurrent use, but Acquire, Stop and Leave wait for the group's goroutine:
// they must not be called from within a Deliver or Ended call or a function
// given to Acquire, nor while holding a lock that one of these takes. Credit and
// Settle may be called from anywhere.
type Member struct {
	share *share
	shard *shard
	id    sharegroup.MemberID
	to    kernel.Consumer
	auto  bool
	pull  bool
	tag   string
	// session is the name of the session that pins are tied to, empty if there is
	// none.
	session string
	pooling

	// busy is held while the consumer is called.
	busy    sync.Mutex
	stopped bool // no more calls

	// mu guards what the shard has not seen yet. Credit below zero is what was
	// taken back and could not be found at the group: it had been used already,
	// for hand-outs under way or over.
	mu     sync.Mutex
	credit int
	acks   []ack
	spare  []ack
	pins   []pinAct
	queued bool // in the shard's mailbox

	leaving sync.Once
}

// ack is the holder's word on a range of records.
type ack struct {
	first, last int64
	partition   int32
	outcome     kernel.Outcome
}

// Tag returns the tag the member joined with.
func (m *Member) Tag() string { return m.tag }

// Credit lets n more records be handed out. A negative n takes back credit that
// was given before: hand-outs on their way to the consumer are called off as far
// as it reaches; what was handed over nevertheless is made up for by the credit
// that comes next. Taken back within Deliver, nothing beyond it follows that
// call. Never blocks.
func (m *Member) Credit(n int) {
	if n == 0 {
		return
	}
	m.mu.Lock()
	m.credit += n
	enlist := !m.queued
	m.queued = true
	m.mu.Unlock()
	if enlist {
		m.shard.enlist(m)
	}
	if n < 0 {
		m.shard.recalled.Store(true)
	}
}

// Settle settles the records first..last of a partition that the member holds;
// any it does not hold are ignored. Never blocks.
func (m *Member) Settle(o kernel.Outcome, partition int32, first, last int64) {
	if first > last {
		return
	}
	m.mu.Lock()
	if n := len(m.acks); n > 0 && m.acks[n-1].continues(o, partition, first) {
		m.acks[n-1].last = last
	} else {
		m.acks = append(m.acks, ack{first, last, partition, o})
	}
	enlist := !m.queued
	m.queued = true
	m.mu.Unlock()
	if enlist {
		m.shard.enlist(m)
	}
}

// continues says whether an ack that begins at first can be joined to a.
func (a *ack) continues(o kernel.Outcome, partition int32, first int64) bool {
	return a.last+1 == first && a.outcome == o && a.partition == partition
}

// fetch takes what has gathered. The acks are valid until the next fetch.
func (m *Member) fetch() (credit int, acks []ack, pins []pinAct) {
	m.mu.Lock()
	defer m.mu.Unlock()
	credit, acks, pins = m.credit, m.acks, m.pins
	m.pins = nil
	m.acks, m.spare = m.spare[:0], m.acks
	m.credit, m.queued = 0, false
	return credit, acks, pins
}

// owe notes that n of the credit taken back had been used.
func (m *Member) owe(n int) {
	m.mu.Lock()
	m.credit -= n
	m.mu.Unlock()
}

// withdrawn returns how many of max hand-outs are not wanted any more, because
// their credit was taken back after it was used for them. It counts as repaid.
func (m *Member) withdrawn(max int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(max, -m.credit)
	if n <= 0 {
		return 0
	}
	m.credit += n
	return n
}

// handing is what came of offering records to a consumer.
type handing uint8

const (
	handTaken   handing = iota
	handRefused         // it has taken back the credit
	handStopped
)

// hand calls the consumer with records of so many bytes, which one that admits
// may refuse when they are large.
func (m *Member) hand(batch []kernel.Delivery, bytes int) handing {
	m.busy.Lock()
	defer m.busy.Unlock()
	if m.stopped {
		return handStopped
	}
	if bytes >= kernel.LargeDelivery && !m.admits(len(batch), bytes) {
		return handRefused
	}
	m.to.Deliver(batch)
	return handTaken
}

// admits asks a consumer that has a say.
func (m *Member) admits(records, bytes int) bool {
	a, ok := m.to.(kernel.Admitter)
	return !ok || a.Admit(records, bytes)
}

// end tells the consumer that the membership is over, unless it has left.
func (m *Member) end(reason error) {
	m.busy.Lock()
	defer m.busy.Unlock()
	if m.stopped {
		return
	}
	m.stopped = true
	if m.to != nil {
		m.to.Ended(reason)
	}
}

// Acquire takes up to max records now, without credit, and passes them to fn
// (perhaps none) with the number of records still ready. fn runs on the
// group's goroutine; Acquire waits for it. Nothing is taken, and fn is not called,
// if the member's consumer is a kernel.Admitter that does not admit them.
func (m *Member) Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error {
	done := make(chan error, 1)
	a := &acquisition{member: m, max: max, fn: fn, done: done}
	if !m.shard.ask(func() { m.shard.acquire(a) }) {
		return errStopped
	}
	return m.shard.await(done)
}

// Stop ends hand-outs: after it returns no Deliver call is running or will
// come. What the member holds stays held until settled or Leave.
func (m *Member) Stop() {
	m.busy.Lock()
	m.stopped = true
	m.busy.Unlock()
	m.shard.call(func() { m.shard.stopMember(m) })
}

// Leave ends the membership, gives back what it holds in place, counted as
// failed, and returns how many members (pull members and stopped ones not
// counted) the group still has. After it returns no Deliver call comes.
// Idempotent; a second call returns the present count.
func (m *Member) Leave() (remaining int) {
	m.leaving.Do(func() {
		m.busy.Lock()
		m.stopped = true
		m.busy.Unlock()
		m.shard.call(func() { m.shard.leave(m) })
	})
	return int(m.share.stat.consumers.Load())
}
