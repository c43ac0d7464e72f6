package edge

import (
	"context"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// member is broker.Member, whichever host serves. It joins anew at each with the credit
// that is left: what the client holds of the last one counts until it settles that.
type member struct {
	c    *Conn
	addr kernel.GroupAddress
	opt  kernel.MemberOptions
	to   kernel.Consumer
	kind kernel.QueueType
	// volatile is Member.Volatile.
	volatile bool

	mu     sync.Mutex
	inner  Member // of the link in use, nil = none
	on     *link  // what inner belongs to
	pool   *pool  // nil = none
	credit int    // granted, and not handed out
	ready  chan struct{}
	over   bool // stopped or left: it joins no more
	shift  shift
}

// Join is broker.Conn.Join.
func (c *Conn) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, under Pool, to kernel.Consumer) (Member, error) {
	m := &member{c: c, addr: addr, opt: opt, to: to, ready: make(chan struct{})}
	if under != nil {
		m.pool = under.(*pool)
	}
	err := c.do(ctx, func(l *link) error {
		in, _, err := m.join(ctx, l)
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.now.Load() != l { // it is over, and the membership with it
			return errMoved
		}
		m.kind, m.volatile = in.Type(), in.Volatile()
		m.install(in, l) // nobody has stopped it yet
		c.members.Add(m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// join joins at the host of a link, and returns the pool that the membership is under.
func (m *member) join(ctx context.Context, l *link) (Member, *pool, error) {
	m.mu.Lock()
	under := m.pool
	m.mu.Unlock()
	var at Pool
	if under != nil {
		if at = under.at(l); at == nil {
			return nil, nil, errMoved
		}
	}
	var to kernel.Consumer = tap{m}
	if a, ok := m.to.(kernel.Admitter); ok {
		to = admitter{tap{m}, a}
	}
	in, err := l.Join(ctx, m.addr, m.opt, at, to)
	return in, under, err
}

// install takes a membership into use, with the credit there is. The caller holds m.mu,
// or is the only one who knows the member.
func (m *member) install(in Member, l *link) {
	m.inner, m.on = in, l
	m.shift.next()
	if m.credit != 0 {
		in.Credit(m.credit)
		if creditTwice && l.number > 1 {
			in.Credit(m.credit)
		}
	}
	close(m.ready)
}

// errExclusive ends a membership that excluded others.
var errExclusive = kernel.Errorf(kernel.CodeFenced, "", "", "the node that served has gone: others may have consumed since")

// fenced reports whether a member is over with its host: it was the only one, and if it
// joined at the next, others could have come and gone before. A queue that only this
// connection may use is its own all the time.
func (c *Conn) fenced(m *member) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return m.opt.Exclusive && !unfenced && !(m.addr.IsOwn() && c.memory.owns(m.addr.Topic))
}

// attach joins at a new host, unless the member has stopped. If that refuses it, the
// membership is over; an error is for CodeUnavailable and the like.
func (m *member) attach(ctx context.Context, l *link) error {
	for !m.stopped() {
		in, under, err := m.join(ctx, l)
		err = inTime(ctx, err)
		switch {
		case again(err):
			return err
		case err != nil:
			m.c.forget(m)
			m.to.Ended(err)
			return nil
		}
		m.mu.Lock()
		usable := !m.over && m.pool == under // neither has changed meanwhile
		if usable {
			m.install(in, l)
		}
		m.mu.Unlock()
		if usable {
			return nil
		}
		in.Leave()
	}
	return nil
}

// detach forgets a membership whose link is closed.
func (m *member) detach() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inner != nil {
		m.inner, m.on, m.ready = nil, nil, make(chan struct{})
	}
}

// forget drops a member, and what has gone with it.
func (c *Conn) forget(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members.Remove(m)
	c.desertLocked(m)
}

// desertLocked forgets the queue that has gone with its last consumer, if m was that.
// c.mu is held.
func (c *Conn) desertLocked(m *member) {
	if m.opt.Pull || !m.addr.IsOwn() {
		return
	}
	if c.members.Has(func(o *member) bool { return o != m && o.addr == m.addr && !o.opt.Pull && !o.stopped() }) {
		return
	}
	c.memory.deserted(m.addr.Topic)
}

func (m *member) stopped() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// tap is what a host hands records out to.
type tap struct{ m *member }

// Deliver implements kernel.Consumer.
func (t tap) Deliver(batch []kernel.Delivery) {
	t.m.to.Deliver(t.m.took(batch, len(batch)))
}

// took counts records that are handed out, on so much credit, and returns what the
// client is told.
func (m *member) took(batch []kernel.Delivery, credit int) []kernel.Delivery {
	m.mu.Lock()
	m.credit -= credit
	under := m.pool
	if m.volatile {
		batch = m.shift.shown(batch)
	}
	m.mu.Unlock()
	if under != nil {
		under.took(len(batch))
	}
	return batch
}

// Ended implements kernel.Consumer. That the host stops ends no membership.
func (t tap) Ended(reason error) {
	if again(reason) {
		return
	}
	t.m.c.forget(t.m)
	t.m.to.Ended(reason)
}

// admitter is a tap for a consumer that has a say.
type admitter struct {
	tap
	to kernel.Admitter
}

// Admit implements kernel.Admitter.
func (a admitter) Admit(records, bytes int) bool { return a.to.Admit(records, bytes) }

// Type is broker.Member.Type.
func (m *member) Type() kernel.QueueType { return m.kind }

// Volatile is broker.Member.Volatile.
func (m *member) Volatile() bool { return m.volatile }

// Credit is broker.Member.Credit.
func (m *member) Credit(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.credit += n
	if m.inner != nil {
		m.inner.Credit(n)
	}
}

// Pool is broker.Member.Pool. held is called again if a host is lost meanwhile.
func (m *member) Pool(under Pool, held func() int) {
	p, counted := under.(*pool), 0
	count := func() int {
		n := held()
		p.took(n - counted)
		counted = n
		return n
	}
	for {
		m.mu.Lock()
		in, l, done := m.inner, m.on, m.pool != nil
		m.mu.Unlock()
		if done {
			return
		}
		if in != nil {
			if at := p.at(l); at != nil {
				in.Pool(at, func() int {
					n := count()
					m.mu.Lock()
					m.pool, done = p, true
					m.mu.Unlock()
					return n
				})
			}
			if done {
				return
			}
		}
		count() // nothing is handed out: there is no link, or none that still works
		m.mu.Lock()
		if m.inner == in {
			m.pool, done = p, true
		}
		m.mu.Unlock()
		if done {
			return
		}
	}
}

// Settle is broker.Member.Settle. What was handed out by a host that serves no more is
// settled if nobody else has got it.
func (m *member) Settle(o kernel.Outcome, partition int32, first, last int64) {
	m.mu.Lock()
	in, held := m.inner, true
	if m.volatile {
		first, last, held = m.shift.meant(first, last)
	}
	m.mu.Unlock()
	if in != nil && held {
		in.Settle(o, partition, first, last)
	}
}

// Acquire is broker.Member.Acquire.
func (m *member) Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error {
	for {
		m.mu.Lock()
		in, on, ready := m.inner, m.on, m.ready
		m.mu.Unlock()
		if in == nil {
			select {
			case <-ready:
				continue
			case <-m.c.stop.Done():
				return errClosed
			}
		}
		err := in.Acquire(max, func(batch []kernel.Delivery, ready int64) {
			fn(m.took(batch, 0), ready)
		})
		if !again(err) || !m.c.left(m.c.stop, on) {
			return err
		}
		if _, err := m.c.linked(m.c.stop); err != nil { // what the link had goes with it, a moment later
			return err
		}
	}
}

// Stop is broker.Member.Stop.
func (m *member) Stop() {
	m.mu.Lock()
	m.over = true
	in := m.inner
	m.mu.Unlock()
	m.c.mu.Lock()
	m.c.desertLocked(m)
	m.c.mu.Unlock()
	if in != nil {
		in.Stop()
	}
}

// Leave is broker.Member.Leave.
func (m *member) Leave() {
	m.mu.Lock()
	m.over = true
	in := m.inner
	m.mu.Unlock()
	m.c.forget(m)
	if in != nil {
		in.Leave()
	}
}
