package forward

import (
	"context"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// method is what a call is for.
type method byte

// The methods.
const (
	methodHasTag method = 1 + iota
	methodDeclareExchange
	methodExchange
	methodDeleteExchange
	methodSameQueue
	methodDeclareQueue
	methodQueue
	methodDeleteQueue
	methodPurgeQueue
	methodBind
	methodUnbind
	methodAddress
	methodJoin
	methodPool
	methodAcquire
	methodStop
	methodLeave

	methodAttachSession // and from here on, to methodDetach, those that take a session
	methodSubscribe
	methodUnsubscribe
	methodRelease
	methodNext
	methodRetainedAgain
	methodSetWill
	methodDropWill
	methodPins
	methodPinNumber
	methodKeep
	methodKept
	methodHold
	methodRead
	methodDetach

	methodActs // and from here on those about topics as logs
	methodTopic
	methodTopicByID
	methodTopics
	methodAutoCreateTopic
	methodCreateTopic
	methodDeleteTopic
	methodReadLogs
	methodLogOffsets
	methodCommitOffsets
	methodOffsets
	methodOffsetGroups
	methodDeleteOffsets
	methodNewProducerID

	methodOnce // and from here on what has come later: another method, of a call that may be repeated
)

// maxCalls is how many calls of a link may be under way.
const maxCalls = 128

// call is one that is under way.
type call struct {
	end    uint64 // of its frame, in all that was ever appended
	values func(r *reader)
	late   func()      // when it succeeds and nobody waits any more; may be nil
	nobody bool        // waits
	done   chan error  // capacity 1
	then   func(error) // nil, or who is told in place of done
}

// lose ends a call when the stream has ended after so many bytes.
func (c *call) lose(sent uint64) {
	if c.end <= sent {
		c.finish(errBroken())
		return
	}
	c.finish(errGone())
}

func (c *call) finish(err error) {
	if c.then != nil {
		c.then(err)
		return
	}
	c.done <- err
}

// call calls a method. args appends the arguments; values, which may be nil, reads what
// is returned, on the link's reader. When ctx ends, what was asked happens all the same;
// late is called if it does.
func (l *link) call(ctx context.Context, m method, args func(b []byte) []byte, values func(r *reader), late func()) error {
	return l.wait(ctx, nil, m, args, &call{values: values, late: late, done: make(chan error, 1)})
}

// begin begins a call. A method of a session that is not held any more is not called. It
// waits while too many calls are under way.
func (l *link) begin(ctx context.Context, of *attached, m method, args func(b []byte) []byte, c *call) (id uint64, err error) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-l.ended:
		return 0, errGone()
	}
	o := &l.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if err = of.held(); err == nil && (l.broken || o.closing) {
		err = errGone()
	}
	if err != nil {
		<-l.slots
		return 0, err
	}
	id = l.nextID()
	start := o.begin(kindCall)
	o.buf = append(codec.AppendUint(o.buf, id), byte(m))
	if args != nil {
		o.buf = args(o.buf)
	}
	if n := len(o.buf) - start; n > maxFrame {
		o.buf = o.buf[:start]
		<-l.slots
		return 0, kernel.Errorf(kernel.CodeTooLarge, "", "", "what is asked is %d bytes long", n)
	}
	o.end(start)
	c.end = o.appended
	l.calls[id] = c
	return id, nil
}

// wait calls a method, and waits for the end of the call.
func (l *link) wait(ctx context.Context, of *attached, m method, args func(b []byte) []byte, c *call) error {
	id, err := l.begin(ctx, of, m, args, c)
	if err != nil {
		return err
	}
	o := &l.out
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
	}
	o.mu.Lock()
	_, waits := l.calls[id]
	if waits {
		c.nobody = true
	}
	o.mu.Unlock()
	if !waits {
		return <-c.done
	}
	return ctx.Err()
}

// onResult handles the end of a call.
func (l *link) onResult(r *reader) error {
	id := r.Uint()
	l.out.mu.Lock()
	c := l.calls[id]
	delete(l.calls, id)
	l.out.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%w: the result of no call", errMalformed)
	}
	<-l.slots
	err := r.error()
	switch {
	case c.nobody:
		if err == nil && c.late != nil {
			c.late()
		}
		return nil
	case err == nil && c.values != nil:
		c.values(r)
	}
	wrong := r.done(kindResult)
	if wrong != nil {
		err = errBroken()
	}
	c.finish(err)
	return wrong
}

// text is the arguments of what is called with a name.
func text(name string) func([]byte) []byte {
	return func(b []byte) []byte { return codec.AppendString(b, name) }
}

// HasTag implements edge.Link.
func (l *link) HasTag(tag string) (has bool) {
	err := l.call(context.Background(), methodHasTag, text(tag), func(r *reader) { has = r.flag() }, nil)
	return err == nil && has
}

// DeclareExchange implements edge.Link.
func (l *link) DeclareExchange(ctx context.Context, x kernel.Exchange) error {
	return l.change(ctx, methodDeclareExchange, func(b []byte) []byte { return appendExchange(b, &x) }, nil)
}

// Exchange implements edge.Link.
func (l *link) Exchange(name string) (x kernel.Exchange, err error) {
	err = l.call(context.Background(), methodExchange, text(name), func(r *reader) { x = r.exchange() }, nil)
	return x, err
}

// DeleteExchange implements edge.Link.
func (l *link) DeleteExchange(ctx context.Context, name string, ifUnused bool) error {
	return l.change(ctx, methodDeleteExchange, func(b []byte) []byte { return codec.AppendFlags(codec.AppendString(b, name), ifUnused) }, nil)
}

// SameQueue implements edge.Link.
func (l *link) SameQueue(q broker.QueueSpec) error {
	return l.call(context.Background(), methodSameQueue, func(b []byte) []byte { return appendQueueSpec(b, &q) }, nil, nil)
}

// DeclareQueue implements edge.Link.
func (l *link) DeclareQueue(ctx context.Context, q broker.QueueSpec) (broker.QueueInfo, error) {
	return l.queue(ctx, methodDeclareQueue, func(b []byte) []byte { return appendQueueSpec(b, &q) })
}

// Queue implements edge.Link.
func (l *link) Queue(name string) (broker.QueueInfo, error) {
	return l.queue(context.Background(), methodQueue, text(name))
}

func (l *link) queue(ctx context.Context, m method, args func([]byte) []byte) (broker.QueueInfo, error) {
	var info broker.QueueInfo
	if err := l.change(ctx, m, args, func(r *reader) { info = r.queueInfo() }); err != nil {
		return broker.QueueInfo{}, err
	}
	return info, nil
}

// DeleteQueue implements edge.Link.
func (l *link) DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (int64, error) {
	return l.count(ctx, methodDeleteQueue, func(b []byte) []byte {
		return codec.AppendFlags(codec.AppendString(b, name), ifUnused, ifEmpty)
	})
}

// PurgeQueue implements edge.Link.
func (l *link) PurgeQueue(ctx context.Context, name string) (int64, error) {
	return l.count(ctx, methodPurgeQueue, text(name))
}

func (l *link) count(ctx context.Context, m method, args func([]byte) []byte) (int64, error) {
	var n int64
	if err := l.change(ctx, m, args, func(r *reader) { n = r.Int() }); err != nil {
		return 0, err
	}
	return n, nil
}

// Bind implements edge.Link.
func (l *link) Bind(ctx context.Context, x kernel.Binding) error {
	return l.call(ctx, methodBind, func(b []byte) []byte { return appendBinding(b, &x) }, nil, nil)
}

// Unbind implements edge.Link.
func (l *link) Unbind(ctx context.Context, x kernel.Binding) error {
	return l.call(ctx, methodUnbind, func(b []byte) []byte { return appendBinding(b, &x) }, nil, nil)
}

// Address implements edge.Link.
func (l *link) Address(name string) (addr kernel.GroupAddress, err error) {
	err = l.call(context.Background(), methodAddress, text(name), func(r *reader) { addr = r.address() }, nil)
	return addr, err
}
