package placement

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// Shape of the entries. While an entry is in flight the next one gathers, and
// only a large one is sent beside it.
const (
	entryTarget = 128 << 10 // bytes from which an entry is sent beside others
	entryCap    = 512 << 10 // bytes from which no record is added
	entriesMax  = 4         // in flight at the same time

	settleCap   = 64 << 10              // bytes of settlements that do not wait for company
	settleDelay = 10 * time.Millisecond // how long fewer do

	pendingBytes = 48 // what a publish costs in memory beside its bytes

	giveUpAfter = 10 * time.Second // when an outcome that stays unknown is answered so
)

// proposer gathers records, settlements and commands in drafts and proposes
// them. All state is under mu; it is a step function of its calls.
type proposer struct {
	log   replicator
	out   *completer
	clock clock
	limit int64 // budget of bytes in flight
	room  func() error
	boot  uint64
	// delay is called when settlements begin to wait for company.
	delay func()

	sealing sync.Mutex // held while drafts are taken, encoded and proposed, which keeps their order
	mu      sync.Mutex
	term    uint64 // 0 while not leading
	came    uint64 // see reached
	stopped bool
	counter uint64
	open    *draft
	full    []*draft  // cannot be sent yet
	flights []*flight // sent, not resolved
	running int       // of them, those the log works on
	waiting bool      // settleTimeout will be called
	lapsed  bool      // settlements have waited long enough
	bytes   atomic.Int64
	gate    gate

	tails   map[PartitionID]*tail
	changes changes
	batches []*batch // for reuse
	kept    int      // bytes in them
	drafts  []*draft
	spare   []*flight
}

func newProposer(boot uint64, limit int64, out *completer, c clock) *proposer {
	p := &proposer{boot: boot, limit: limit, out: out, clock: c, tails: make(map[PartitionID]*tail), changes: make(changes)}
	p.room = func() error { return nil }
	p.delay = func() {}
	p.open = p.newDraft()
	return p
}

// appendBatch is Group.AppendBatch; set has one partition.
func (p *proposer) appendBatch(set *TargetSet, raw []byte, done kernel.Completion, token uint64) error {
	n, size := p.sizeOf(set, raw)
	p.mu.Lock()
	if err := p.admit(); err != nil {
		p.mu.Unlock()
		return err
	}
	if p.refuses(set, n, size) {
		p.mu.Unlock()
		return errQueueFull
	}
	d := p.draftFor(len(raw))
	p.enter(set, d.flight, n, size)
	b := d.open(set, p.newBatch())
	b.set = nil // nothing joins it
	b.raw = append(b.raw, raw...)
	p.added(d, len(raw))
	d.owe(done, token, b, 0)
	due := p.due()
	p.mu.Unlock()
	if due {
		p.seal()
	}
	return nil
}

// admit says whether something may be added now.
func (p *proposer) admit() error {
	switch {
	case p.stopped:
		return errStopped
	case p.term == 0:
		return errNotLeading
	case p.bytes.Load() > 4*p.limit:
		return errBusy
	}
	return p.room()
}

// draftFor returns the open draft, a new one if the present one is full.
func (p *proposer) draftFor(size int) *draft {
	if d := p.open; d.size+size > entryCap && !d.empty() {
		p.full = append(p.full, d)
		p.open = p.newDraft()
	}
	return p.open
}

// added accounts for something of size bytes that waits for its commit.
func (p *proposer) added(d *draft, size int) {
	d.size += size
	d.urgent = true
	held := int64(size) + pendingBytes
	d.flight.bytes += held
	p.bytes.Add(held)
}

// settle adds a section of settlements made in term. Unless urgent it
// waits a little for company.
func (p *proposer) settle(term uint64, section []byte, urgent bool) {
	p.mu.Lock()
	if p.stopped || p.term == 0 || p.term != term {
		p.mu.Unlock() // its leadership is over, and so is its overlay
		return
	}
	d := p.draftFor(len(section))
	d.settles = append(d.settles, section...)
	d.size += len(section)
	d.urgent = d.urgent || urgent || len(d.settles) >= settleCap
	p.leave(d)
}

// leave ends a step that has added to d what can wait a little for company, and lets go
// of mu.
func (p *proposer) leave(d *draft) {
	due := p.due()
	wait := !due && !d.urgent && p.later() // also behind an entry in flight: its end does not make them due
	p.mu.Unlock()
	switch {
	case due:
		p.seal()
	case wait:
		p.delay()
	}
}

// later says whether delay is to be called: it is not on its way already.
func (p *proposer) later() bool {
	first := !p.waiting
	p.waiting = true
	return first
}

// settleTimeout is called settleDelay after delay was.
func (p *proposer) settleTimeout() {
	p.mu.Lock()
	p.waiting, p.lapsed = false, !p.open.empty()
	p.mu.Unlock()
	p.seal()
}

// command adds a command, which changes what holds back records of topics (see changes),
// and returns where its result will be sent.
func (p *proposer) command(body []byte, topics ...kernel.TopicID) (<-chan commandResult, error) {
	return p.commandIn(0, body, topics...)
}

// commandIn is command in one term only, unless that is 0.
func (p *proposer) commandIn(term uint64, body []byte, topics ...kernel.TopicID) (<-chan commandResult, error) {
	p.mu.Lock()
	if p.stopped || p.term == 0 || term != 0 && term != p.term {
		err := errNotLeading
		if p.stopped {
			err = errStopped
		}
		p.mu.Unlock()
		return nil, err
	}
	ch := p.request(p.draftFor(len(body)), body, topics...)
	due := p.due()
	p.mu.Unlock()
	if due {
		p.seal()
	}
	return ch, nil
}

// request adds a command to a draft. The caller holds mu.
func (p *proposer) request(d *draft, body []byte, topics ...kernel.TopicID) <-chan commandResult {
	ch := make(chan commandResult, 1)
	d.commands = append(d.commands, body)
	d.flight.commands = append(d.flight.commands, ch)
	d.flight.changes = append(d.flight.changes, topics...)
	p.changes.begin(topics...)
	p.added(d, len(body))
	return ch
}

// due says whether a draft is to be sent now.
func (p *proposer) due() bool {
	switch {
	case p.running >= entriesMax || p.term == 0:
		return false
	case len(p.full) > 0 || p.open.size >= entryTarget:
		return true
	}
	return p.running == 0 && !p.open.empty() && (p.open.urgent || p.lapsed)
}

// seal sends what is due.
func (p *proposer) seal() {
	p.sealing.Lock()
	defer p.sealing.Unlock()
	for {
		p.mu.Lock()
		if !p.due() {
			p.mu.Unlock()
			return
		}
		d := p.take()
		h := header{time: p.clock.wall(), boot: p.boot, counter: d.flight.counter, term: d.flight.term}
		p.mu.Unlock()
		p.send(d, h)
	}
}

// take moves the draft that is due into flight.
func (p *proposer) take() *draft {
	d := p.open
	if len(p.full) > 0 {
		d = p.full[0]
		p.full = slices.Delete(p.full, 0, 1)
	} else {
		p.open = p.newDraft()
		p.lapsed = false
	}
	p.counter++
	f := d.flight
	f.counter, f.term, f.born = p.counter, p.term, p.clock.mono()
	f.settles = append(f.settles, d.settles...)
	p.flights = append(p.flights, f)
	p.running++
	return d
}

// send encodes and proposes a draft. The caller holds sealing.
func (p *proposer) send(d *draft, h header) {
	data := d.encode(h)
	f := d.flight
	if earlyReply {
		p.out.early(f)
	}
	p.recycle(d)
	counter := f.counter
	p.log.Propose(data, func(err error) { p.failed(counter, err) })
}

// failed is told that the log will not, or may not, apply an entry.
func (p *proposer) failed(counter uint64, cause error) {
	p.mu.Lock()
	f := p.find(counter)
	if f == nil || f.unknown {
		p.mu.Unlock()
		return
	}
	p.running--
	if unknownIsDone && errors.Is(cause, raftgroup.ErrUnknown) {
		p.remove(f)
		p.release(f)
		f.answers = make([]commandResult, len(f.commands))
		p.out.post(f)
	} else if errors.Is(cause, raftgroup.ErrNotApplied) {
		p.remove(f)
		p.release(f)
		if f.term == p.term && len(f.settles) > 0 {
			p.again(f)
		}
		f.err = errNotApplied
		p.out.post(f)
	} else {
		f.unknown, f.suspect, f.giveUp = true, max(p.log.Candidacy(), f.term), p.clock.mono()+int64(giveUpAfter)
	}
	wait, came := p.later(), p.came
	p.mu.Unlock()
	p.missing(came) // it may have been there before this call
	if wait {
		p.delay() // what has gathered goes out after a pause; the caller may be inside Propose
	}
}

// applied is called by the machine for every entry of this process that it
// applies. It returns the flight, nil if it was given up.
func (p *proposer) applied(counter uint64) *flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.find(counter)
	if f == nil {
		return nil
	}
	if !f.unknown {
		p.running--
	}
	p.remove(f)
	p.release(f)
	return f
}

// reached tells that everything before an entry or leadership of term has been
// applied: entries of lower terms that are missing will never be.
func (p *proposer) reached(term uint64) {
	p.mu.Lock()
	p.came = max(p.came, term)
	p.mu.Unlock()
	p.missing(term)
}

// missing answers what will never be applied, now that term was reached.
func (p *proposer) missing(term uint64) {
	p.resolve(func(f *flight) bool { return f.unknown && !f.skipped && f.suspect < term }, errNotApplied)
}

// skip tells that a checkpoint takes the place of entries that have not been applied. It
// does not say which they were: what is in flight may be among them.
func (p *proposer) skip() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flights {
		f.skipped = true
	}
}

// tick answers what has been unknown for too long.
func (p *proposer) tick() {
	now := p.clock.mono()
	p.resolve(func(f *flight) bool { return f.unknown && now >= f.giveUp }, errUnknown)
}

// abandon answers everything in flight: the log has ended.
func (p *proposer) abandon() {
	p.resolve(func(*flight) bool { return true }, errUnknown)
}

func (p *proposer) resolve(which func(*flight) bool, err *kernel.Error) {
	var gone []*flight
	p.mu.Lock()
	p.flights = slices.DeleteFunc(p.flights, func(f *flight) bool {
		if !which(f) {
			return false
		}
		if !f.unknown {
			p.running--
		}
		f.err = err
		p.release(f)
		gone = append(gone, f)
		return true
	})
	p.mu.Unlock()
	p.out.post(gone...)
}

func (p *proposer) find(counter uint64) *flight {
	for _, f := range p.flights {
		if f.counter == counter {
			return f
		}
	}
	return nil
}

func (p *proposer) remove(f *flight) {
	p.flights = slices.DeleteFunc(p.flights, func(x *flight) bool { return x == f })
}

// lead begins to accept, in a term of this node's leadership.
func (p *proposer) lead(term uint64) {
	p.mu.Lock()
	if !p.stopped {
		p.term = term
	}
	p.mu.Unlock()
}

// unlead ends accepting and refuses what has not been sent.
func (p *proposer) unlead() { p.drop(errNotLeading, false) }

// stop is unlead for ever.
func (p *proposer) stop() { p.drop(errStopped, true) }

func (p *proposer) drop(err *kernel.Error, stop bool) {
	// A draft on its way from take to Propose stays in order: it is sent first.
	p.sealing.Lock()
	defer p.sealing.Unlock()
	p.mu.Lock()
	p.term, p.stopped = 0, p.stopped || stop
	var gone []*flight
	for _, d := range append(p.full, p.open) {
		d.flight.err = err
		p.release(d.flight)
		gone = append(gone, d.flight)
	}
	clear(p.full)
	p.full, p.open = p.full[:0], p.newDraft()
	stopped := p.stopped
	p.mu.Unlock()
	p.out.post(gone...)
	if stopped {
		p.gate.open()
	}
}
