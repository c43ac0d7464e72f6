package placement

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
	"github.com/trivium-mq/trivium/storage/record"
)

// Shape of a shard's steps.
const (
	pumpBudget = 256 // records handed out by one share before the next one's turn
	pumpShares = 64  // shares served before the mailbox is looked at again
)

// shard owns the windows and dispatchers of the topics assigned to it: the
// durable layer follows the events of the machine, the rest is there while
// this node leads. One goroutine steps it, and is the only caller of the
// consumers.
type shard struct {
	index   int
	clock   clock
	prop    *proposer
	metrics *Metrics
	log     zerolog.Logger
	ahead   int // policies' ReadAhead
	manual  bool

	box postbox

	term     uint64 // 0 while not leading
	topics   []*topic
	line     []*share // with something to hand out, in turn
	spare    []*share
	touched  []*share
	ticks    uint64
	stalled  []*share     // whose records could not be read; the next tick tries again
	trims    []*partition // whose floors have moved
	watched  []*share     // that have reserved ahead
	dues     dueHeap
	under    *undertaker
	mourners []*share // whose burials wait for the next tick

	pins    []byte    // changes of pins of this step, to be logged
	waits   []pinWait // who is to be told when they are
	changes []byte    // scratch of pin

	budget     *budget      // of the node
	settledSum atomic.Int64 // bytes that are settled, while the budget is exceeded

	finished bool // nothing is handed out any more

	puller *puller        // nil: nothing is sealed
	lease  func() int64   // see raftgroup.Group.Lease; nil: nobody else can lead
	lapsed bool           // it had at the last look
	held   []*acquisition // wait for it

	// Scratch of one step.
	settlement sharegroup.Settlement
	applied    sharegroup.Settlement
	encoded    []byte
	section    []byte
	cuts       []cut // trims of this step
	urgent     bool
	dead       []sharegroup.Dead
	views      []record.View
	batch      []kernel.Delivery
	bytes      int              // of the records in batch
	parts      []sharegroup.Run // see read
	recalled   atomic.Bool      // a member has taken back credit
}

func newShard(index int, c clock, p *proposer, m *Metrics) *shard {
	return &shard{
		index: index, clock: c, prop: p, metrics: m,
		box: postbox{wake: make(chan struct{}, 1)},
	}
}

// postbox is a shard's mailbox: events, and members that have something to
// say.
type postbox struct {
	mu      sync.Mutex
	events  []event
	members []*Member
	spareE  []event
	spareM  []*Member
	closed  bool
	wake    chan struct{} // capacity 1
}

func (b *postbox) add(events []event, m *Member) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	was := len(b.events) + len(b.members)
	b.events = append(b.events, events...)
	if m != nil {
		b.members = append(b.members, m)
	}
	b.mu.Unlock()
	if was == 0 {
		signal(b.wake)
	}
	return true
}

func (b *postbox) take() ([]event, []*Member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events, members := b.events, b.members
	b.events, b.members = b.spareE[:0], b.spareM[:0]
	b.spareE, b.spareM = nil, nil
	return events, members
}

func (b *postbox) give(events []event, members []*Member) {
	const keep = 1 << 13
	clear(events)
	clear(members)
	b.mu.Lock()
	defer b.mu.Unlock()
	if cap(events) <= keep {
		b.spareE = events[:0]
	}
	if cap(members) <= keep {
		b.spareM = members[:0]
	}
}

func (b *postbox) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	signal(b.wake)
}

func (s *shard) post(events []event) {
	if len(events) > 0 {
		s.box.add(events, nil)
	}
}

func (s *shard) enlist(m *Member) { s.box.add(nil, m) }

// ask posts a function to be run by the shard; false if it has ended.
func (s *shard) ask(fn func()) bool {
	return s.box.add([]event{{kind: evCall, call: fn}}, nil)
}

// call runs a function on the shard and waits for it; false if it has ended.
func (s *shard) call(fn func()) bool {
	done := make(chan error, 1)
	if !s.ask(func() { fn(); done <- nil }) {
		return false
	}
	return s.await(done) == nil
}

// await waits for what an asked function sends. Without a goroutine of its
// own the shard is stepped here.
func (s *shard) await(done <-chan error) error {
	if s.manual {
		for s.step() {
			select {
			case err := <-done:
				return err
			default:
			}
		}
	}
	return <-done
}

// step handles all that has been posted and serves the line for a while. It
// returns false when there was nothing to do.
func (s *shard) step() bool {
	now := s.clock.mono()
	busy := s.takeIn(now) || len(s.line) > 0 && !s.lapsed
	busy = s.fallDue() || busy
	s.serve(now)
	s.collect()
	return busy
}

// takeIn handles all that has been posted. It returns false when there was
// nothing.
func (s *shard) takeIn(now int64) bool {
	events, members := s.box.take()
	for _, m := range members { // first: what a member settles before it calls counts before
		s.attend(m, now)
	}
	for i := range events {
		s.handle(&events[i])
	}
	s.box.give(events, members)
	return len(events)+len(members) > 0
}

// touch notes that a share has changed in this step.
func (s *shard) touch(sh *share) {
	if !sh.touched {
		sh.touched = true
		s.touched = append(s.touched, sh)
	}
}

// queue puts a share into the line.
func (s *shard) queue(sh *share) {
	s.touch(sh)
	if !sh.queued && !sh.stalled && sh.active && !s.finished {
		sh.queued = true
		s.line = append(s.line, sh)
	}
}

// attend takes in what a member wants.
func (s *shard) attend(m *Member, now int64) {
	credit, acks, pins := m.fetch()
	sh := m.share
	if sh.gone || sh.members[m.id] != m {
		s.pin(m, pins, now) // what it has begun goes on
		s.unpool(m)
		return
	}
	for i := range acks {
		s.settle(m, &acks[i], now)
	}
	s.pin(m, pins, now)
	if m.units != nil {
		s.credited(m, credit)
		return
	}
	if left := sh.group.Credit(m.id) + credit; left < 0 {
		m.owe(-left)
	}
	if credit != 0 {
		sh.group.Grant(m.id, credit) //nolint:errcheck // it is a member
	}
	s.queue(sh)
}

// outcomes translates what the kernel calls them: a record given back counts
// as failed.
var outcomes = [...]sharegroup.Outcome{
	kernel.Accept:  sharegroup.Accept,
	kernel.Release: sharegroup.Fail,
	kernel.Refuse:  sharegroup.Refuse,
}

func (s *shard) settle(m *Member, a *ack, now int64) {
	if int(a.outcome) >= len(outcomes) {
		return
	}
	if g := m.share.ghosts[m.id]; len(g) > 0 {
		g.lay(a, func(rest *ack) { s.settleHeld(m, rest, now) })
		return
	}
	s.settleHeld(m, a, now)
}

func (s *shard) settleHeld(m *Member, a *ack, now int64) {
	res, err := m.share.group.Settle(a.partition, sharegroup.Ack{
		Member: m.id, First: a.first, Last: a.last, Outcome: outcomes[a.outcome],
	}, now)
	if err == nil && a.outcome != kernel.Release {
		m.share.stat.settled.Add(uint64(res.Records))
		s.metrics.Settled.Add(uint64(res.Records))
	}
}

// serve hands out records of the shares in line, each in turn.
func (s *shard) serve(now int64) {
	line := s.line
	if len(line) == 0 && len(s.held) == 0 || !s.certain() {
		return
	}
	s.resume()
	n := min(len(line), pumpShares)
	s.line = append(s.spare[:0], line[n:]...)
	for _, sh := range line[:n] {
		sh.queued = false
		if sh.active {
			s.pump(sh, now)
		}
		if s.recalled.Swap(false) {
			s.takeIn(now) // before it is used for the next share
		}
	}
	clear(line)
	s.spare = line[:0]
}

// pump hands out records of one share.
func (s *shard) pump(sh *share, now int64) {
	if sh.room() == 0 { // it goes on when a burial is over
		s.touch(sh)
		return
	}
	s.lend(sh)
	outs, more := sh.group.Pump(now, pumpBudget)
	for i := range outs {
		s.give(sh, sh.members[outs[i].Member], outs[i].Runs, now)
	}
	s.repay(sh)
	if len(outs) > 0 {
		s.rest(sh)
	}
	if more {
		s.queue(sh)
	}
	s.touch(sh)
}

// collect gathers what the touched shares have to log, and publishes their
// state.
func (s *shard) collect() {
	for _, sh := range s.touched {
		sh.touched = false
		if sh.gone {
			continue
		}
		if sh.minded {
			s.tend(sh)
		}
		if sh.group != nil && sh.group.IsDirty() {
			s.gather(sh)
		}
		if len(sh.graves) > 0 {
			s.funeral(sh)
		}
		sh.mourned()
		sh.publish()
	}
	clear(s.touched)
	s.touched = s.touched[:0]
	s.commitPins()
	s.commitTrims()
	if len(s.section) > 0 || s.urgent {
		s.prop.settle(s.term, s.section, s.urgent)
		s.section, s.urgent = s.section[:0], false
	}
}

// gather encodes the settlements of a share.
func (s *shard) gather(sh *share) {
	for w := range sh.group.Dirty() {
		s.dead = w.TakeDead(s.dead[:0])
		s.mourn(sh, w.Partition())
		// The mark that hand-outs wait for may be in this settlement or in one
		// that waits for company.
		s.urgent = s.urgent || w.Blocked()
		if !w.Take(&s.settlement) {
			continue
		}
		if w.Ahead() {
			s.watch(sh)
		}
		part := sh.window(w.Partition()).part
		s.encoded = s.settlement.AppendTo(s.encoded[:0])
		s.section = appendSettlementSection(s.section, sh.id, part.id, s.encoded)
	}
}

// settled applies a settlement of the log to the durable layer.
func (s *shard) settled(e *event) error {
	sh := e.share
	w := sh.window(e.part.index)
	if sh.gone || w == nil {
		return nil
	}
	st := &s.applied // windows swap slices with s.settlement
	rest, err := sharegroup.DecodeSettlement(e.data, st)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes after a settlement", errFormat, len(rest))
	}
	if err != nil {
		return err
	}
	floor := w.Floor()
	if st.Seek && st.Epoch == w.Epoch()+1 {
		sh.haunt(w)
	}
	if w.Apply(st) && st.Seek {
		w.sought()
	}
	s.endOrphans(sh, w)
	if w.Floor() != floor {
		s.floorMoved(w.part)
	}
	s.queue(sh)
	s.retry(sh)
	return nil
}
