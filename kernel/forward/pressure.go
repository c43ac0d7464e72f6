package forward

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

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
	over    bool // nothing is published any more
}

// held is a publish that waits.
type held struct {
	f    *feeder
	s    *broker.Session // that was attached; nil = none
	body []byte
}

// retryTime is how often what is held is tried without being woken: what refuses and what
// tells of it are not one.
const retryTime = 200 * time.Millisecond

func (h *pressure) init(c *session) { h.session, h.wake = c, make(chan struct{}, 1) }

// publish handles a publish, or a batch. Those to topics go by the line.
func (c *session) publish(k kind, body []byte) error {
	if k == kindBatch {
		return c.batch(body)
	}
	r := read(body)
	id, _, named := r.Uint(), r.Uint(), r.Byte()&flagNamed != 0
	if r.Err() != nil {
		return fmt.Errorf("%w: a publish", errMalformed)
	}
	f, s, err := c.publishes(id)
	if err != nil {
		return err
	}
	if named {
		return c.line.add(f, s, body)
	}
	return c.pressure.take(f, nil, body)
}

// publishes returns the publisher of a publish that has come, and the session that is
// attached, nil = none.
func (c *session) publishes(id uint64) (*feeder, *broker.Session, error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	f := c.publishers[id]
	if f == nil || f.over {
		return nil, nil, fmt.Errorf("%w: nobody publishes", errMalformed)
	}
	f.came++
	if c.holding == nil {
		return f, nil, nil
	}
	return f, c.holding.s, nil
}

// take gives a publish to the broker, or holds it. s is the session that is attached.
func (h *pressure) take(f *feeder, s *broker.Session, body []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.p.read(body); err != nil {
		return err
	}
	defer h.p.reset()
	if h.p.once && s == nil {
		return errNoSession
	}
	switch {
	case h.over:
		h.refuse(f, errGone())
		return nil
	case len(h.list) > 0 && h.p.mandatory:
		f.answer(h.p.number, 0, errPressed)
		return nil
	case len(h.list) > 0 && h.p.known:
		f.refuse(h.p.number, errPressed)
		return nil
	case len(h.list) == 0:
		if pressed, err := h.try(f, s); !pressed {
			return err
		}
	}
	if h.bytes += len(body); len(h.list) > 0 && h.bytes > 2*window {
		return fmt.Errorf("%w: more is published than may be under way", errMalformed)
	}
	h.list = append(h.list, held{f, s, slices.Clone(body)})
	if !h.waiting {
		h.waiting = true
		h.session.work.Go(h.retry)
	}
	return nil
}

var errPressed = &kernel.Error{Code: kernel.CodePressure, Detail: "the node that serves is short of disk or memory"}

// named publishes h.p, which is to a topic. A refusal concerns nothing that comes after
// it.
func (h *pressure) named(f *feeder, s *broker.Session) (pressed bool) {
	p := &h.p
	f.begin(p.number)
	var matched int
	var err error
	if p.id == (kernel.DedupID{}) {
		matched, err = p.toTopic(f.p, s)
	} else {
		matched, err = f.p.Identified(p.id, func() (int, error) { return p.toTopic(f.p, s) })
	}
	f.begun(p.number, matched, err)
	if pressed = err != nil && kernel.CodeOf(err) == kernel.CodePressure && !p.known; err != nil && !pressed {
		f.refuse(p.number, err)
	}
	return pressed
}

// toTopic publishes to the topic, under a number of s if it is to be stored once.
func (p *publish) toTopic(to *broker.Publisher, s *broker.Session) (matched int, err error) {
	switch {
	case p.once && p.retain:
		return to.RetainOnce(s, p.use, p.key, &p.record, p.number)
	case p.once:
		return to.ToTopicOnce(s, p.use, p.key, &p.record, p.number)
	case p.retain:
		return to.Retain(p.key, &p.record, p.number)
	}
	return to.ToTopic(p.key, &p.record, p.number)
}

// try publishes h.p, unless it has to wait. s is the session that is attached. The caller
// holds h.mu.
func (h *pressure) try(f *feeder, s *broker.Session) (pressed bool, err error) {
	p := &h.p
	if p.named {
		return h.named(f, s), nil
	}
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
	defer h.session.flushDue()
	for len(h.list) > 0 {
		one := h.list[0]
		if err := h.p.read(one.body); err != nil { // it was read before
			h.session.stream.Close()
			return true
		}
		pressed, err := h.try(one.f, one.s)
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

// stop refuses what is held and all that comes: when it returns nothing is published any
// more.
func (h *pressure) stop() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.end()
}

// refuse refuses h.p. The caller holds h.mu.
func (h *pressure) refuse(f *feeder, err error) {
	if h.p.mandatory {
		f.answer(h.p.number, 0, err)
		return
	}
	f.refuse(h.p.number, err)
}
