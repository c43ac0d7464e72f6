package forward

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// maxFeeders bounds the publishers of a client.
const maxFeeders = 1 << 17

// feeder is the broker's end of a publisher. It implements kernel.Completion.
type feeder struct {
	session *session
	id      uint64
	p       *broker.Publisher
	mistake error // of who publishes: nothing that comes later is done; guarded by pressure.mu

	// guarded by session.out.mu
	runs       []run // outcomes that were not flushed
	came, done uint64
	over       bool // nothing more comes
}

// run is a row of publishes with the same outcome.
type run struct {
	first, n uint64
	err      error
}

// feeders makes a publisher, or notes that it is over.
func (c *session) feeders(id uint64, begins bool) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	f := c.publishers[id]
	switch {
	case begins && (f != nil || len(c.publishers) >= maxFeeders):
		return fmt.Errorf("%w: one publisher too many", errMalformed)
	case begins:
		f = &feeder{session: c, id: id}
		f.p = c.conn.Publisher(f)
		c.publishers[id] = f
	case f != nil:
		f.over = true
		f.retire()
	}
	return nil
}

// retire forgets a publisher when it is over and all has its outcome. The caller holds
// out.mu.
func (f *feeder) retire() {
	if f.over && f.came == f.done {
		delete(f.session.publishers, f.id)
	}
}

// Completed implements kernel.Completion.
func (f *feeder) Completed(number uint64, res kernel.Result) {
	f.session.out.mu.Lock()
	defer f.session.out.mu.Unlock()
	f.note(number, res.Err)
}

// note notes an outcome. The caller holds out.mu.
func (f *feeder) note(number uint64, err error) {
	f.done++
	if n := len(f.runs); n > 0 && err == nil {
		if last := &f.runs[n-1]; last.err == nil && last.first+last.n == number {
			last.n++
			return
		}
	}
	f.runs = append(f.runs, run{number, 1, err})
}

// Flush implements kernel.Completion.
func (f *feeder) Flush() {
	f.session.out.mu.Lock()
	defer f.session.out.mu.Unlock()
	f.flush()
}

// flush tells the outcomes. The caller holds out.mu.
func (f *feeder) flush() {
	if len(f.runs) == 0 {
		return
	}
	o := &f.session.out
	start := o.begin(kindOutcomes)
	o.buf = codec.AppendUint(codec.AppendUint(o.buf, f.id), uint64(len(f.runs)))
	for i := range f.runs {
		r := &f.runs[i]
		o.buf = appendError(codec.AppendUint(codec.AppendUint(o.buf, r.first), r.n), r.err)
		r.err = nil
	}
	o.end(start)
	f.runs = f.runs[:0]
	f.retire()
}

// refuse tells that a publish was refused at once.
func (f *feeder) refuse(number uint64, err error) {
	o := &f.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	f.done++
	start := o.begin(kindDeclined)
	o.buf = appendError(codec.AppendUint(codec.AppendUint(o.buf, f.id), number), err)
	o.end(start)
	f.retire()
}

// mistaken reports whether a refusal is for what the client has asked for, and not for
// the state that the broker is in.
func mistaken(err error) bool {
	switch kernel.CodeOf(err) {
	case kernel.CodeNotFound, kernel.CodeAccessRefused, kernel.CodePrecondition, kernel.CodeInvalidName, kernel.CodeInvalid,
		kernel.CodeNotAllowed, kernel.CodeNotImplemented, kernel.CodeTooLarge:
		return true
	}
	return false
}

// answer tells how many targets a mandatory publish has, or why it was refused.
func (f *feeder) answer(number uint64, matched int, err error) {
	o := &f.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if matched == 0 || err != nil {
		f.done++
		f.retire()
	}
	start := o.begin(kindRouted)
	o.buf = codec.AppendUint(codec.AppendUint(o.buf, f.id), number)
	o.buf = appendError(codec.AppendInt(o.buf, int64(matched)), err)
	o.end(start)
}

// pressure holds publishes back that the broker does not take for want of disk or
// memory, and all that come after them.
type pressure struct {
	session *session
	wake    chan struct{} // capacity 1

	mu      sync.Mutex // held while something is published
	p       publish
	list    []held
	bytes   int
	waiting bool // retry runs
}

// held is a publish that waits.
type held struct {
	f    *feeder
	body []byte
}

// retryTime is how often what is held is tried without being woken: what refuses and what
// tells of it are not one.
const retryTime = 200 * time.Millisecond

func (h *pressure) init(c *session) { h.session, h.wake = c, make(chan struct{}, 1) }

// publish handles a publish.
func (c *session) publish(body []byte) error {
	h := &c.pressure
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.p.read(body); err != nil {
		return err
	}
	defer h.p.reset()
	c.out.mu.Lock()
	f := c.publishers[h.p.publisher]
	if f == nil || f.over {
		c.out.mu.Unlock()
		return fmt.Errorf("%w: nobody publishes", errMalformed)
	}
	f.came++
	c.out.mu.Unlock()
	if len(h.list) > 0 && h.p.mandatory {
		f.answer(h.p.number, 0, errPressed)
		return nil
	}
	if len(h.list) == 0 {
		if pressed, err := h.try(f); !pressed {
			return err
		}
	}
	if h.bytes += len(body); len(h.list) > 0 && h.bytes > 2*window {
		return fmt.Errorf("%w: more is published than may be under way", errMalformed)
	}
	h.list = append(h.list, held{f, slices.Clone(body)})
	if !h.waiting {
		h.waiting = true
		c.work.Go(h.retry)
	}
	return nil
}

var errPressed = &kernel.Error{Code: kernel.CodePressure, Detail: "the node that serves is short of disk or memory"}

// try publishes h.p, unless it has to wait. The caller holds h.mu.
func (h *pressure) try(f *feeder) (pressed bool, err error) {
	p := &h.p
	var matched int
	if err = f.mistake; err != nil {
		// The client has not heard yet that it may not go on.
	} else if p.retain {
		matched, err = f.p.RetainAt(p.exchange, p.key, &p.record, p.options(), p.number)
	} else {
		matched, err = f.p.ToExchange(p.exchange, p.key, &p.record, p.options(), p.number)
	}
	if mistaken(err) {
		f.mistake = err
	}
	switch {
	case p.fields.err != nil:
		return false, p.fields.err
	case p.mandatory:
		f.answer(p.number, matched, err)
	case err != nil && kernel.CodeOf(err) == kernel.CodePressure:
		return true, nil
	case err != nil:
		f.refuse(p.number, err)
	}
	return false, nil
}

// relieve has what is held tried.
func (h *pressure) relieve() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// retry publishes what is held, as soon as it can, until nothing is or the session ends.
func (h *pressure) retry() {
	tick := time.NewTicker(retryTime)
	defer tick.Stop()
	for {
		select {
		case <-h.wake:
		case <-tick.C:
		case <-h.session.ctx.Done():
			return
		}
		if !h.session.conn.Alarms().Any() && h.drain() {
			return
		}
	}
}

// drain publishes what is held, and reports whether nothing is any more.
func (h *pressure) drain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.p.reset()
	for len(h.list) > 0 {
		one := h.list[0]
		if err := h.p.read(one.body); err != nil { // it was read before
			h.session.stream.Close()
			return true
		}
		pressed, err := h.try(one.f)
		if pressed {
			return false
		}
		if err != nil {
			h.session.stream.Close()
		}
		h.drop()
	}
	h.waiting = false
	return true
}

// drop forgets the first of what is held. The caller holds h.mu.
func (h *pressure) drop() {
	h.bytes -= len(h.list[0].body)
	h.list[0] = held{}
	if h.list = h.list[1:]; len(h.list) == 0 {
		h.list = nil
	}
}

// end refuses what is held: the client leaves.
func (h *pressure) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.p.reset()
	for len(h.list) > 0 {
		if h.p.read(h.list[0].body) == nil {
			h.list[0].f.refuse(h.p.number, errGone())
		}
		h.drop()
	}
}
