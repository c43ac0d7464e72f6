package edge

import (
	"context"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// publisher is broker.Publisher, whichever host serves. While none does, publishes are
// refused with CodePressure. Those under way when a host is lost have CodeUnknown as
// their outcome; where nobody asks for outcomes the connection is ended then, because a
// message must not go missing silently.
type publisher struct {
	c    *Conn
	done kernel.Completion

	mu    sync.Mutex // a link that is left settles while the owner publishes
	on    *link      // what inner belongs to
	inner Publisher
	ident kernel.DedupID // of the publish within Identified; the owner's
}

// Publisher is broker.Conn.Publisher.
func (c *Conn) Publisher(done kernel.Completion) Publisher {
	p := &publisher{c: c, done: done}
	switch d := done.(type) {
	case nil:
		p.done = unheard{c: c}
	case Unheard:
		p.done = unheard{c, d}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publishers.Add(p)
	return p
}

// Unheard is for Publisher where nobody asks for outcomes: it is told of what the host
// declines. That the host is lost ends the connection.
type Unheard func(err error)

// Completed implements kernel.Completion.
func (Unheard) Completed(uint64, kernel.Result) {}

// Declined implements Decliner.
func (u Unheard) Declined(_ uint64, err error) { u(err) }

// Flush implements kernel.Completion.
func (Unheard) Flush() {}

// unheard takes the outcomes that nobody asks for.
type unheard struct {
	c        *Conn
	declined func(err error) // may be nil
}

// Declined implements Decliner.
func (u unheard) Declined(token uint64, err error) {
	if u.Completed(token, kernel.Result{Err: err}); !again(err) && u.declined != nil {
		u.declined(err)
	}
}

// Completed implements kernel.Completion.
func (u unheard) Completed(_ uint64, res kernel.Result) {
	if again(res.Err) {
		u.c.end(errLost)
	}
}

// Flush implements kernel.Completion.
func (unheard) Flush() {}

// errLost ends a connection whose publishes may be lost.
var errLost = kernel.Errorf(kernel.CodeUnknown, "", "", "messages that were published without confirms may be lost: the node that served has gone")

// ErrUnlinked refuses a publish while nobody serves: nothing was done.
var ErrUnlinked = &kernel.Error{Code: kernel.CodePressure, Detail: "no node serves now"}

// ToExchange is broker.Publisher.ToExchange.
func (p *publisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	return p.keyed(Publisher.ToExchange, exchange, key, r, opt, token)
}

// RetainAt is broker.Publisher.RetainAt.
func (p *publisher) RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	return p.keyed(Publisher.RetainAt, exchange, key, r, opt, token)
}

// keyed publishes to an exchange. What it does at the host is a method, not a closure: that
// would be an allocation for each message.
func (p *publisher) keyed(publish func(Publisher, string, string, *kernel.Record, kernel.PublishOptions, uint64) (int, error),
	exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.bind()
	if in == nil {
		return 0, ErrUnlinked
	}
	matched, err := publish(in, exchange, key, r, opt, token)
	return matched, p.judge(err)
}

// bind returns the publisher of the link in use, nil = there is none. p.mu is held.
func (p *publisher) bind() Publisher {
	l := p.c.now.Load()
	if l == nil {
		return nil
	}
	if p.on != l {
		p.on, p.inner = l, l.Publisher(p.done)
	}
	return p.inner
}

// judge turns the refusal of a host that does not serve any more into one that passes.
// p.mu is held.
func (p *publisher) judge(err error) error {
	if err != nil && kernel.CodeOf(err) == kernel.CodeUnavailable && p.c.left(p.c.stop, p.on) {
		return ErrUnlinked
	}
	return err
}

// Settle is broker.Publisher.Settle.
func (p *publisher) Settle(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inner == nil {
		return nil
	}
	return p.inner.Settle(ctx)
}

// settleOn waits for what was published through a link that is left, and for the publish
// that is under way there, which a host that hangs may hold up: not longer than ctx. What
// is published meanwhile is refused, and waits for nothing.
func (p *publisher) settleOn(ctx context.Context, l *link) error {
	for !p.mu.TryLock() {
		if err := pass(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	on, in := p.on, p.inner // which nobody publishes to any more
	p.mu.Unlock()
	if on != l {
		return nil
	}
	return in.Settle(ctx)
}

// pass waits for d, or for the end of ctx, which is an error.
func pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close is broker.Publisher.Close. What is published all the same, as front-ends do that
// have held it meanwhile, gets a publisher of its own.
func (p *publisher) Close() {
	p.mu.Lock()
	in := p.inner
	p.on, p.inner = nil, nil
	p.mu.Unlock()
	if in != nil {
		in.Close()
	}
	p.c.mu.Lock()
	p.c.publishers.Remove(p)
	p.c.mu.Unlock()
}
