package broker

import (
	"context"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// Member is one consumer's place in a share group. Its methods are safe for
// concurrent use.
type Member struct {
	m        *placement.Member
	conn     *Conn
	group    *group
	about    kernel.MemberOptions
	kind     kernel.QueueType
	pull     bool
	hold     bool // it keeps an automatic group alive
	settles  bool // not AutoSettle
	counted  bool // as one of the group's consumers; tenant.mu
	left     sync.Once
	tap      *tap // nil without a consumer
	counters *Counters
}

// Join adds a member to a share group. c owns it. Deliveries begin with the
// first Credit.
func (c *Conn) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, to kernel.Consumer) (*Member, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if err := c.allowGroup(addr); err != nil {
		return nil, err
	}
	return c.join(addr, opt, opt.Create, to)
}

// join joins a group, made with opt.Create if it is missing. hold counts the
// member as a subscription.
func (c *Conn) join(addr kernel.GroupAddress, opt kernel.MemberOptions, hold bool, to kernel.Consumer) (*Member, error) {
	t := c.tenant
	key := topicLockKey(addr.Kind == kernel.Filter, addr.Topic)
	unlock := t.names.lock(claim{key, false})
	defer func() { unlock() }()
	g, ok := t.find(addr)
	if !ok && opt.Create {
		unlock()
		unlock = t.names.lock(claim{key, true})
		if g, ok = t.find(addr); !ok {
			ctx, cancel := c.b.changeContext()
			defer cancel()
			var err error
			if g, err = c.joinTopic(ctx, addr, sharedGroup(addr, opt.FromStart), kernel.RetainUsed); err != nil {
				return nil, err
			}
			ok = true
		}
	}
	if !ok {
		return nil, t.noQueue(addr.Topic)
	}
	topic, err := c.topicOf(addr)
	if err != nil {
		return nil, err
	}
	if !topic.ExpiresAt.IsZero() {
		if err := t.keep(topic.Topic); err != nil {
			return nil, err
		}
	}
	return c.joinGroup(g, opt, hold, to)
}

// sharedGroup is a group as a subscription makes it.
func sharedGroup(addr kernel.GroupAddress, fromStart bool) catalog.Group {
	return catalog.Group{Address: addr, Owner: true, Auto: true, FromStart: fromStart || addr.IsOwn()}
}

// keep makes a provisional topic stay, because somebody consumes it.
func (t *tenant) keep(kt *kernel.Topic) error {
	ctx, cancel := t.b.changeContext()
	defer cancel()
	next := *kt
	next.ExpiresAt = time.Time{}
	return t.updateTopic(ctx, &next)
}

// joinGroup joins a group that is there; its topic is locked for reading.
func (c *Conn) joinGroup(g *group, opt kernel.MemberOptions, hold bool, to kernel.Consumer) (*Member, error) {
	m := &Member{conn: c, group: g, about: opt, pull: opt.Pull, hold: hold, settles: !opt.AutoSettle, counters: c.counters}
	if to != nil {
		m.tap = &tap{Consumer: to, counters: c.counters, settles: opt.AutoSettle}
		to = m.tap
	}
	t := c.tenant
	pm, err := g.place.Join(g.id, opt, to)
	if kernel.CodeOf(err) == kernel.CodeAccessRefused {
		name := g.spec.Address.String()
		if g.spec.Address.IsOwn() {
			name = g.spec.Address.Topic
		}
		return nil, kernel.Errorf(kernel.CodeAccessRefused, "queue", name, "queue '%s' in vhost '%s' in exclusive use", name, t.name)
	}
	if err != nil {
		return nil, err
	}
	m.m = pm
	m.kind = t.kind(g)
	t.mu.Lock()
	if !m.pull {
		m.counted = true
		g.members++
		g.used = true
	}
	if hold {
		t.hold(g, +1)
	}
	t.mu.Unlock()
	c.mu.Lock()
	c.member.Add(m)
	c.mu.Unlock()
	return m, nil
}

// Type returns the type that the queue had been declared with at the join,
// Classic for a group that nobody declared.
func (m *Member) Type() kernel.QueueType { return m.kind }

// Volatile reports whether the records of the member's queue live in memory only.
func (m *Member) Volatile() bool { return m.group.place == m.conn.b.volatile }

// Credit lets n more records be handed out; a negative n takes back credit that
// has not been used. Never blocks.
func (m *Member) Credit(n int) { m.m.Credit(n) }

// Pool puts the member under a pool. held says how many records the caller
// counts as held by it, which take their units at once; it is called while
// nothing is handed out to the member. It waits for the group's goroutine, as
// Acquire does. A member that has a pool keeps it.
func (m *Member) Pool(pool *kernel.Pool, held func() int) { m.m.Pool(pool, held) }

// Settle settles records first..last of a partition that this member holds; any
// it does not hold are ignored. Never blocks. Credit does not come back by
// itself: the edge grants it.
func (m *Member) Settle(o kernel.Outcome, partition int32, first, last int64) {
	if o != kernel.Release && last >= first {
		m.counters.Settled.Add(uint64(last-first) + 1)
	}
	m.m.Settle(o, partition, first, last)
}

// Acquire takes up to max records now and passes them to fn (perhaps none)
// with the number of records still ready. It waits for the group's goroutine,
// so it must not be called from one; fn runs there. It is not called if the
// member's consumer is a kernel.Admitter that does not admit the records.
func (m *Member) Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error {
	m.group.expiry.touch(m.conn.b)
	return m.m.Acquire(max, func(batch []kernel.Delivery, ready int64) {
		m.counters.Delivered(batch, !m.settles)
		fn(batch, ready)
	})
}

// Stop ends hand-outs: after it returns no Deliver call is running or will
// come. What the member holds stays held until settled or Leave. It is no
// consumer any more: an auto-delete queue that loses its last one with it is
// gone when it returns, whatever the member still holds.
func (m *Member) Stop() {
	m.m.Stop()
	m.uncount(false, func() {})
}

// uncount ends the member's count as a consumer, and more under the same lock,
// and deletes the group if nobody is left who keeps it: if its client outlasts the
// connection, unless that is back soon, and the group with it.
func (m *Member) uncount(outlasts bool, more func()) {
	t := m.conn.tenant
	t.mu.Lock()
	if m.counted {
		m.counted = false
		m.group.members--
	}
	more()
	t.unused(m.group)
	idle := t.idle(m.group)
	t.mu.Unlock()
	switch {
	case idle && outlasts:
		t.b.after(t.b.patience, func() { t.reap(m.group) })
	case idle:
		t.reap(m.group)
	}
}

// Leave ends the membership and gives back what it holds, in place. After it
// returns no Deliver call comes. Idempotent. An auto-delete queue that loses
// its last consumer with it is gone when it returns.
func (m *Member) Leave() { m.leave(false) }

// leave is Leave; outlasts says that the client does not leave, but goes on with another
// connection.
func (m *Member) leave(outlasts bool) {
	m.left.Do(func() {
		m.m.Leave()
		m.tap.close()
		c := m.conn
		c.mu.Lock()
		c.member.Remove(m)
		c.mu.Unlock()
		m.uncount(outlasts, func() {
			if m.hold {
				c.tenant.hold(m.group, -1)
			}
		})
	})
}

// idle reports whether a group has nobody left who keeps it: an auto-delete
// queue its consumers, an automatic group its subscriptions. tenant.mu is held.
func (t *tenant) idle(g *group) bool {
	if kq := t.declaration(g); kq != nil {
		return kq.AutoDelete && g.used && g.members == 0
	}
	return g.spec.Auto && g.holds == 0
}

// reap deletes a group that nobody keeps any more, and its topic with it where
// the two go together.
func (t *tenant) reap(g *group) {
	t.mu.Lock()
	addr, id := g.spec.Address, g.spec.Topic
	t.mu.Unlock()
	defer t.lockTopicFor(addr.Kind == kernel.Filter, addr.Topic)()
	topic, ok := t.table.Load().TopicByID(id)
	t.mu.Lock()
	idle := ok && t.groups[addr] == g && t.idle(g)
	t.mu.Unlock()
	if !idle {
		return
	}
	if topic.Queue != nil && addr.IsOwn() {
		t.leftover(topic.Name)
	}
	err := t.dropQueue(topic, g)
	if err != nil && t.b.ctx.Err() == nil {
		t.b.log.Error().Err(err).Stringer("group", addr).Msg("an unused group could not be deleted")
	}
}

// tap counts what passes to a consumer.
type tap struct {
	kernel.Consumer
	counters *Counters
	settles  bool // records are settled as they are handed out

	mu   sync.Mutex // held while Ended is called
	over bool       // Ended is not called any more
}

// Ended implements kernel.Consumer: the first reason counts.
func (t *tap) Ended(reason error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.over {
		t.over = true
		t.Consumer.Ended(reason)
	}
}

// close says that the member has left. t may be nil.
func (t *tap) close() {
	if t != nil {
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
	}
}

// Deliver implements kernel.Consumer.
func (t *tap) Deliver(batch []kernel.Delivery) {
	t.counters.Delivered(batch, t.settles)
	t.Consumer.Deliver(batch)
}

// Admit implements kernel.Admitter for consumers that do.
func (t *tap) Admit(records, bytes int) bool {
	a, ok := t.Consumer.(kernel.Admitter)
	return !ok || a.Admit(records, bytes)
}
