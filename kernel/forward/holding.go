package forward

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// maxMembers and maxCursors bound what a client may not have let go of.
	maxMembers = 1 << 17
	maxCursors = 1024
	// maxKept is how many bytes may be left with a session.
	maxKept = 16 << 20
)

// errNoSession ends the stream of a client that does what takes a session.
var errNoSession = fmt.Errorf("%w: of a session that is not attached", errMalformed)

// holding is the session that a client holds, at the broker. A link has one at a time.
type holding struct {
	c  *session
	id uint64
	s  *broker.Session

	cursors map[uint64]*pages // guarded by out.mu
}

// attach attaches a session.
func (c *session) attach(id uint64, a broker.Attaching) (func([]byte) []byte, error) {
	c.out.mu.Lock()
	another := c.attaching || c.holding != nil
	c.attaching = c.attaching || !another
	c.out.mu.Unlock()
	if another {
		return nil, kernel.Errorf(kernel.CodeNotAllowed, "session", a.ClientID, "the connection holds another one already")
	}
	s, present, err := c.conn.AttachSession(c.ctx, a, func() { c.claimed(id) })
	var epoch uint64
	var state kernel.SessionState
	if err == nil {
		epoch, state = s.Epoch(), s.State()
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.attaching = false; err != nil {
		return nil, err
	}
	c.holding = &holding{c: c, id: id, s: s, cursors: make(map[uint64]*pages)}
	return func(b []byte) []byte {
		return appendState(codec.AppendUint(codec.AppendFlags(b, present), epoch), &state)
	}, nil
}

// claimed tells the client that another connection wants its session.
func (c *session) claimed(id uint64) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	start := c.out.begin(kindClaimed)
	c.out.buf = codec.AppendUint(c.out.buf, id)
	c.out.end(start)
}

// held returns the session that the client holds, nil if there is none.
func (c *session) held() *holding {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.holding
}

// letGo ends what the client has of its session: what still comes for it means nothing.
func (c *session) letGo() *holding {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	h := c.holding
	if c.holding = nil; h != nil {
		for id, k := range c.members {
			if k.holding == h {
				delete(c.members, id)
			}
		}
	}
	return h
}

// suspend leaves the session of a stream that has broken as it is, also one that is being
// attached, for the client to come back through another one. If its node has gone nobody
// does.
func (c *session) suspend() {
	if c.letGo(); c.relinks && c.conn != nil {
		c.conn.Suspend()
	}
}

// sessionCall returns what concerns the session, nil if there is no such method or no
// session. waits says that it may take its time.
func (c *session) sessionCall(call uint64, m method, r *reader) (do answer, waits bool) {
	if m == methodAttachSession {
		id, a := r.Uint(), r.attaching()
		return func() (func([]byte) []byte, error) { return c.attach(id, a) }, true
	}
	if m < methodAttachSession {
		return nil, false
	}
	h := c.held()
	if h == nil {
		return nil, false
	}
	switch m {
	case methodRelease:
		numbers := r.numbers(nil)
		return h.release(call, numbers), false
	case methodPinNumber:
		id := r.pinID()
		return h.pinNumber(call, id), false
	case methodSubscribe:
		again, list := r.flag(), r.asked()
		return func() (func([]byte) []byte, error) { return h.subscribe(again, list) }, true
	case methodUnsubscribe:
		filter := r.String()
		return func() (func([]byte) []byte, error) {
			existed, err := h.s.Unsubscribe(c.ctx, filter)
			return func(b []byte) []byte { return codec.AppendFlags(b, existed) }, err
		}, true
	case methodDetach:
		expiry, suspends := time.Duration(r.Int()), r.flag()
		c.letGo()
		return func() (func([]byte) []byte, error) {
			if suspends {
				h.s.Suspend()
			} else {
				h.s.Detach(expiry)
			}
			return nil, nil
		}, true
	case methodNext:
		return h.next(r), true
	case methodHold, methodRead:
		return c.placeCall(call, m, r), true
	}
	return h.belongings(m, r), true
}

// belongings returns what concerns what a session has: its will, pins, retained messages
// and what is left with it. What the body holds is copied.
func (h *holding) belongings(m method, r *reader) answer {
	switch m {
	case methodSetWill:
		r.B = slices.Clone(r.B)
		w := r.will()
		return func() (func([]byte) []byte, error) { return nil, h.s.SetWill(h.c.ctx, &w) }
	case methodDropWill:
		return func() (func([]byte) []byte, error) { return nil, h.s.DropWill() }
	case methodPins:
		return func() (func([]byte) []byte, error) {
			list, err := h.s.Pins(h.c.ctx)
			return func(b []byte) []byte { return appendPins(b, list) }, err
		}
	case methodRetainedAgain:
		name, version := r.String(), r.Uint()
		return func() (func([]byte) []byte, error) {
			rec, ok, err := h.s.RetainedAgain(name, version)
			return func(b []byte) []byte {
				if b = codec.AppendFlags(b, ok); ok {
					b = appendRecord(slices.Grow(b, recordSize(&rec)), &rec)
				}
				return b
			}, err
		}
	case methodKeep:
		text := slices.Clone(r.bytes())
		if len(text) > maxKept {
			return nil
		}
		return func() (func([]byte) []byte, error) { h.s.Keep(text); return nil, nil }
	case methodKept:
		return func() (func([]byte) []byte, error) {
			text := h.s.Kept()
			return func(b []byte) []byte { return appendBytes(b, text) }, nil
		}
	}
	return nil
}

// begin counts a call whose result comes later.
func (c *session) begin() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.calls++; c.calls > 2*maxCalls {
		c.stream.Close()
	}
}

// release frees numbers. The result comes when that is known.
func (h *holding) release(call uint64, numbers []uint16) answer {
	return func() (func([]byte) []byte, error) {
		h.c.begin()
		h.s.Release(numbers, func(unknown []uint16, err error) {
			h.c.out.mu.Lock()
			defer h.c.out.mu.Unlock()
			h.c.calls--
			h.c.result(call, err, func(b []byte) []byte { return appendNumbers(b, unknown) })
		})
		return nil, errAnswered
	}
}

// pinNumber keeps a number in use. The result comes when that is known.
func (h *holding) pinNumber(call uint64, id kernel.PinID) answer {
	return func() (func([]byte) []byte, error) {
		h.c.begin()
		n := &numbering{h.c, call}
		if err := h.s.PinNumber(id, n); err != nil {
			n.Completed(0, kernel.Result{Err: err})
		}
		return nil, errAnswered
	}
}

// numbering is a PinNumber on its way. It implements kernel.Completion.
type numbering struct {
	c    *session
	call uint64
}

// Completed implements kernel.Completion.
func (n *numbering) Completed(_ uint64, res kernel.Result) {
	n.c.out.mu.Lock()
	defer n.c.out.mu.Unlock()
	n.c.calls--
	n.c.result(n.call, res.Err, nil)
}

// Flush implements kernel.Completion.
func (n *numbering) Flush() {}

// pages is a cursor at the broker.
type pages struct {
	r    *broker.Retained // nil = not begun
	busy bool             // guarded by out.mu: it is for one call at a time

	left []kernel.Retained // read and not sent: they may be larger than they are stored
	more bool              // others follow
	err  error             // in their place
}

const (
	// maxPage and pageBytes bound what a call reads of what is retained; one more
	// message may be in it.
	maxPage   = 4096
	pageBytes = 1 << 20
)

// next reads what is retained. A client that asks twice at a time, or for a cursor that
// has ended, breaks the rules.
func (h *holding) next(r *reader) answer {
	id, first := r.Uint(), r.flag()
	filter, most, bytes, allowed := "", 0, 0, int64(0)
	if first {
		filter = r.String()
	}
	most, bytes, allowed = r.int(), r.int(), r.Int()
	o := &h.c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	p := h.cursors[id]
	switch {
	case r.Err() != nil, p == nil && !first, p != nil && p.busy:
		return nil
	case p == nil && len(h.cursors) >= maxCursors:
		return func() (func([]byte) []byte, error) {
			return nil, kernel.Errorf(kernel.CodeLimit, "session", "", "too much is read of what is retained at a time")
		}
	case p == nil:
		p = &pages{}
		h.cursors[id] = p
	}
	p.busy = true
	return func() (func([]byte) []byte, error) {
		return h.turn(id, p, filter, max(min(most, maxPage), 1), min(bytes, pageBytes), allowed)
	}
}

// turn reads a page. Of the large messages the first is read if it is as large as
// allowed at most; else it is told how large it is.
func (h *holding) turn(id uint64, p *pages, filter string, most, bytes int, allowed int64) (func([]byte) []byte, error) {
	done := false
	defer func() {
		h.c.out.mu.Lock()
		defer h.c.out.mu.Unlock()
		if p.busy = false; done {
			delete(h.cursors, id)
		}
	}()
	if p.r == nil {
		var err error
		if p.r, err = h.s.Retained(h.c.ctx, filter); err != nil {
			done = true
			return nil, err
		}
	}
	wanted := 0
	if len(p.left) == 0 {
		p.left, p.more, p.err = p.r.Next(most, bytes, func(n int) bool {
			if ok := int64(n) <= allowed; ok {
				allowed = 0
				return true
			}
			wanted = n
			return false
		})
	}
	list, more, err := p.cut()
	done = !more && err == nil
	return func(b []byte) []byte {
		b = codec.AppendFlags(slices.Grow(b, retainedSize(list)), more)
		b = appendError(codec.AppendUint(b, uint64(wanted)), err)
		b = codec.AppendUint(b, uint64(len(list)))
		for i := range list {
			b = appendRetained(b, &list[i])
		}
		return b
	}, nil
}

// cut returns what is sent at a time of what was read.
func (p *pages) cut() (list []kernel.Retained, more bool, err error) {
	n := 0
	for size := 0; n < len(p.left) && size < pageBytes; n++ {
		size += recordSize(&p.left[n].Record)
	}
	list, p.left = p.left[:n], p.left[n:]
	if len(p.left) > 0 {
		return list, true, nil
	}
	p.left = nil
	return list, p.more, p.err
}

// let handles the end of what a client has let go of: a member, or a cursor.
func (c *session) let(k kind, id uint64) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if k == kindLetCursor {
		if c.holding != nil {
			delete(c.holding.cursors, id)
		}
		return
	}
	if m := c.members[id]; m != nil && m.holding != nil {
		delete(c.members, id)
	}
}
