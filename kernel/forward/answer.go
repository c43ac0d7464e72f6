package forward

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// answer does what a call asks for, and returns what appends its values, which may be nil.
type answer func() (values func(b []byte) []byte, err error)

// call handles a call. What may wait gets a goroutine of its own, so that what comes
// after it does not.
func (c *session) call(r *reader) error {
	id, m := r.Uint(), method(r.Byte())
	do, waits := c.answers(id, m, r)
	if err := r.done(kindCall); err != nil || do == nil {
		return fmt.Errorf("%w: a call of method %d: %w", errMalformed, m, err)
	}
	if !waits {
		c.reply(id, do)
		return nil
	}
	c.out.mu.Lock()
	c.calls++
	many := c.calls > 2*maxCalls // a result may be there before it is counted here
	c.out.mu.Unlock()
	if many {
		return fmt.Errorf("%w: too many calls at a time", errMalformed)
	}
	mark := c.line.mark()
	c.work.Go(func() {
		if m.follows() {
			c.line.wait(c.ctx, mark)
		}
		c.reply(id, do)
		c.out.mu.Lock()
		c.calls--
		c.out.mu.Unlock()
	})
	return nil
}

// answers returns what does what a call asks for, nil if there is no such method, or what
// it takes is not there. waits says that it may take its time.
func (c *session) answers(id uint64, m method, r *reader) (do answer, waits bool) {
	if m == methodOnce {
		call := edge.Call{ID: r.Uint(), Below: r.Uint()}
		r.Flags(&call.Again)
		if do = c.slow(method(r.Byte()), r); do == nil {
			return nil, false
		}
		return c.once(call, do), true
	}
	if m > methodDetach {
		return c.logCall(id, m, r)
	}
	if do = c.quick(m, r); do != nil {
		return do, false
	}
	if do = c.slow(m, r); do != nil {
		return do, true
	}
	if m >= methodAttachSession {
		return c.sessionCall(id, m, r)
	}
	return c.memberCall(id, m, r), true
}

// follows says that a method is about what was published to topics before.
func (m method) follows() bool {
	switch m {
	case methodSubscribe, methodUnsubscribe, methodNext, methodRetainedAgain, methodSetWill, methodDropWill, methodDetach:
		return true
	}
	return false
}

// errAnswered says that the result is out already.
var errAnswered = errors.New("forward: answered")

// reply sends the result of a call.
func (c *session) reply(id uint64, do answer) {
	values, err := do()
	if err == errAnswered {
		return
	}
	if c.ctx.Err() != nil && errors.Is(err, context.Canceled) { // the client has left meanwhile, or has another link
		err = errBroken()
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.result(id, err, values)
}

// result appends a result. The caller holds out.mu.
func (c *session) result(id uint64, err error, values func([]byte) []byte) {
	start := c.out.begin(kindResult)
	c.out.buf = appendError(codec.AppendUint(c.out.buf, id), err)
	if err == nil && values != nil {
		c.out.buf = values(c.out.buf)
	}
	if n := len(c.out.buf) - start; n > maxFrame {
		c.out.buf = c.out.buf[:start]
		c.result(id, kernel.Errorf(kernel.CodeTooLarge, "", "", "the answer is %d bytes long", n), nil)
		return
	}
	c.out.end(start)
}

// quick returns what answers at once, nil if the method is another one.
func (c *session) quick(m method, r *reader) answer {
	switch m {
	case methodHasTag:
		tag := r.String()
		return func() (func([]byte) []byte, error) {
			has := c.conn.HasTag(tag)
			return func(b []byte) []byte { return codec.AppendFlags(b, has) }, nil
		}
	case methodExchange:
		name := r.String()
		return func() (func([]byte) []byte, error) {
			x, err := c.conn.Exchange(name)
			return func(b []byte) []byte { return appendExchange(b, &x) }, err
		}
	case methodSameQueue:
		q := r.queueSpec()
		return func() (func([]byte) []byte, error) { return nil, c.conn.SameQueue(q) }
	case methodQueue:
		name := r.String()
		return queueAnswer(func() (broker.QueueInfo, error) { return c.conn.Queue(name) })
	case methodAddress:
		name := r.String()
		return func() (func([]byte) []byte, error) {
			addr, err := c.conn.Address(name)
			return func(b []byte) []byte { return appendAddress(b, &addr) }, err
		}
	}
	return nil
}

func queueAnswer(do func() (broker.QueueInfo, error)) answer {
	return func() (func([]byte) []byte, error) {
		info, err := do()
		return func(b []byte) []byte { return appendQueueInfo(b, &info) }, err
	}
}

func countAnswer(do func() (int64, error)) answer {
	return func() (func([]byte) []byte, error) {
		n, err := do()
		return func(b []byte) []byte { return codec.AppendInt(b, n) }, err
	}
}

// slow returns what changes something, nil if the method is another one.
func (c *session) slow(m method, r *reader) answer {
	switch m {
	case methodDeclareExchange:
		x := r.exchange()
		return func() (func([]byte) []byte, error) { return nil, c.conn.DeclareExchange(c.ctx, x) }
	case methodDeleteExchange:
		name, ifUnused := r.String(), r.flag()
		return func() (func([]byte) []byte, error) { return nil, c.conn.DeleteExchange(c.ctx, name, ifUnused) }
	case methodDeclareQueue:
		q := r.queueSpec()
		return queueAnswer(func() (broker.QueueInfo, error) { return c.conn.DeclareQueue(c.ctx, q) })
	case methodDeleteQueue:
		name, ifUnused, ifEmpty := r.String(), false, false
		r.Flags(&ifUnused, &ifEmpty)
		return countAnswer(func() (int64, error) { return c.conn.DeleteQueue(c.ctx, name, ifUnused, ifEmpty) })
	case methodPurgeQueue:
		name := r.String()
		return countAnswer(func() (int64, error) { return c.conn.PurgeQueue(c.ctx, name) })
	case methodBind:
		x := r.binding()
		return func() (func([]byte) []byte, error) { return nil, c.conn.Bind(c.ctx, x) }
	case methodUnbind:
		x := r.binding()
		return func() (func([]byte) []byte, error) { return nil, c.conn.Unbind(c.ctx, x) }
	}
	return nil
}

// memberCall returns what concerns members, nil if there is no such method.
func (c *session) memberCall(call uint64, m method, r *reader) answer {
	id := r.Uint()
	switch m {
	case methodJoin:
		pool := c.pools[r.Uint()]
		addr, opt, consumes := r.address(), r.memberOptions(), r.flag()
		opt.Pool = pool
		return func() (func([]byte) []byte, error) { return c.join(id, addr, opt, consumes) }
	case methodPool:
		pool, k := c.pools[r.Uint()], c.member(id)
		return func() (func([]byte) []byte, error) { return c.bind(call, k, pool) }
	case methodAcquire:
		most, limit, k := r.int(), r.Int(), c.member(id)
		return func() (func([]byte) []byte, error) { return c.acquire(call, k, most, limit) }
	case methodStop:
		k := c.member(id)
		return func() (func([]byte) []byte, error) {
			if k != nil {
				k.m.Stop()
			}
			return nil, nil
		}
	case methodLeave:
		k := c.remove(id)
		return func() (func([]byte) []byte, error) {
			if k != nil {
				k.m.Leave()
			}
			return nil, nil
		}
	}
	return nil
}

// remove takes a member out: what still comes for it means nothing.
func (c *session) remove(id uint64) *stub {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	k := c.members[id]
	delete(c.members, id)
	return k
}

func (c *session) join(id uint64, addr kernel.GroupAddress, opt kernel.MemberOptions, consumes bool) (func([]byte) []byte, error) {
	k := &stub{session: c, id: id, pull: opt.Pull}
	var to kernel.Consumer
	if consumes {
		to = k
	}
	m, err := c.conn.Join(c.ctx, addr, opt, to)
	if err != nil {
		return nil, err
	}
	k.m = m
	c.out.mu.Lock()
	_, twice := c.members[id]
	if !twice {
		c.members[id] = k
	}
	c.out.mu.Unlock()
	if twice {
		m.Leave()
		c.stream.Close()
	}
	return func(b []byte) []byte { return codec.AppendFlags(append(b, byte(m.Type())), m.Volatile()) }, nil
}

// bind puts a member under a pool. What was handed out before it counts as held until the
// client has said how much of that is.
func (c *session) bind(call uint64, k *stub, pool *kernel.Pool) (func([]byte) []byte, error) {
	answered := false
	if k != nil && pool != nil {
		k.m.Pool(pool, func() int {
			c.out.mu.Lock()
			defer c.out.mu.Unlock()
			answered = true
			n := k.delivered
			c.result(call, nil, func(b []byte) []byte { return codec.AppendInt(codec.AppendFlags(b, true), int64(n)) })
			return n
		})
	}
	if answered {
		return nil, errAnswered
	}
	return func(b []byte) []byte { return codec.AppendInt(codec.AppendFlags(b, false), 0) }, nil
}

// acquire takes records now, if they are not more bytes than the client has room for.
func (c *session) acquire(call uint64, k *stub, most int, limit int64) (func([]byte) []byte, error) {
	if k == nil {
		return nil, kernel.Errorf(kernel.CodeDropped, "", "", "the member has left")
	}
	c.out.mu.Lock()
	k.limit, k.refused.records, k.refused.bytes = limit, 0, 0
	c.out.mu.Unlock()
	answered := false
	err := k.m.Acquire(most, func(batch []kernel.Delivery, ready int64) {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		answered = true
		k.delivered += len(batch)
		c.out.grow(deliveriesSize(batch) + 64)
		c.result(call, nil, func(b []byte) []byte {
			return appendDeliveries(codec.AppendInt(codec.AppendFlags(b, true), ready), batch)
		})
	})
	if answered {
		return nil, errAnswered
	}
	c.out.mu.Lock()
	records, bytes := k.refused.records, k.refused.bytes
	c.out.mu.Unlock()
	return func(b []byte) []byte {
		return codec.AppendInt(codec.AppendInt(codec.AppendFlags(b, false), int64(records)), int64(bytes))
	}, err
}
