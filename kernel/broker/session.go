package broker

import (
	"context"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/kernel/session"
)

// Session is a client id's attached session. Its methods are safe for
// concurrent use.
type Session struct {
	s     *sessionEntry
	conn  *Conn
	taken func()
	once  sync.Once // of taken

	epoch    uint64        // see Epoch
	released chan struct{} // closed by Detach
	onces    *onces        // the entry's

	slow  route.Slow          // see route.Feed
	over  bool                // the entry's mu guards it and feeds
	feeds map[string]*feeding // by filter
}

// feeding is what feeds one attached subscription.
type feeding struct {
	member *Member
	// retired is the member of a subscription that this one has replaced: it
	// gets nothing more, but what it holds is its until it is settled.
	retired *Member
	live    *route.Live
	to      kernel.Consumer // told when the feed ends by itself
}

// Attaching says which session a connection takes, and how.
type Attaching struct {
	ClientID string
	Clean    bool          // what was there is discarded
	Expiry   time.Duration // what to keep it for after Detach; 0 = not at all
	// Epoch is zero for a client that has just come. Otherwise the attachment with this
	// epoch goes on, which was Suspended or lost its host: it is refused with CodeFenced
	// if a later one has been there since.
	Epoch uint64
	// Numbers returns those of ToTopicOnce that the client knows to be stored and has not
	// released. It is asked with an Epoch: of a message that went to subscribers in
	// memory only the broker before was the only one that knew. It may be nil.
	Numbers func() []uint16
}

// AttachSession takes the session of a client id for c: the present one, or a
// new one when there is none or Clean is set (the old one is then discarded).
// It is refused with CodeLocked if it belongs to another user, and with CodeFenced
// as Attaching says.
// A connection that holds it is told through its taken callback and given a few
// seconds to Detach.
func (c *Conn) AttachSession(ctx context.Context, a Attaching, taken func()) (s *Session, present bool, err error) {
	if err := c.begin(); err != nil {
		return nil, false, err
	}
	defer c.end()
	if err := kernel.CheckName("session", a.ClientID); err != nil {
		return nil, false, err
	}
	e, err := c.holdEntry(ctx, &a)
	if err != nil {
		return nil, false, err
	}
	defer e.mu.Unlock()
	present = !a.Clean && e.there(a.Epoch)
	cctx, cancel := c.b.changeContext()
	defer cancel()
	owner := e.owner.get()
	epoch := a.Epoch
	if epoch == 0 {
		epoch = c.b.nextEpoch()
	}
	if err := e.begin(cctx, &a, epoch, present, c.identity.User); err != nil {
		e.owner.set(owner)
		if e.fresh {
			e.forget()
		}
		return nil, false, err
	}
	e.epoch = epoch
	h := &Session{
		s: e, conn: c, taken: taken, epoch: e.epoch, released: make(chan struct{}),
		feeds: make(map[string]*feeding), onces: e.onces,
	}
	e.holder = h
	e.onces.hold(h)
	c.mu.Lock()
	c.attach.Add(h)
	c.mu.Unlock()
	return h, present, nil
}

// holdEntry returns the entry of a client id, locked and held by nobody.
func (c *Conn) holdEntry(ctx context.Context, a *Attaching) (*sessionEntry, error) {
	for waited := false; ; {
		e, err := c.tenant.entry(a.ClientID)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		if e.gone {
			e.mu.Unlock()
			continue
		}
		if err := c.mayAttach(e, a); err != nil {
			e.mu.Unlock()
			return nil, err
		}
		h := e.holder
		if h != nil && h.epoch == a.Epoch { // what is left of the link before
			h.suspend()
			h = nil
		}
		if h == nil {
			return e, nil
		}
		e.mu.Unlock()
		if !waited {
			if err := c.awaitTurn(ctx, e); err != nil {
				return nil, err
			}
			waited = true
			continue // it may have been given back meanwhile
		}
		if err := c.takeOver(ctx, h); err != nil {
			return nil, err
		}
	}
}

// takeOver makes another connection give up its session.
func (c *Conn) takeOver(ctx context.Context, h *Session) error {
	h.once.Do(func() {
		if h.taken != nil {
			h.taken()
		}
	})
	limit := time.NewTimer(takeoverWait)
	defer limit.Stop()
	select {
	case <-h.released:
	case <-limit.C:
		h.detachAsAgreed()
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stop:
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the connection is closed")
	}
	return nil
}

// State returns the session's subscriptions and settings.
func (h *Session) State() kernel.SessionState {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.s.state()
}

// Attach feeds a subscription that the session already has (after a
// reconnect). Parameters as for Subscribe. CodeNotFound if it has not.
func (h *Session) Attach(ctx context.Context, sub kernel.Subscription, handle uint64, to kernel.Consumer, live kernel.LiveSubscriber) (*Attachment, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	defer h.leave()
	have := h.s.subs[sub.Filter]
	if have == nil {
		return nil, kernel.Errorf(kernel.CodeNotFound, "subscription", sub.Filter, "the session does not have it")
	}
	if err := h.conn.allowSubscription(have); err != nil {
		return nil, err
	}
	if _, ok := h.conn.tenant.find(have.addr); have.reads() && !ok {
		// Its group went with a topic that somebody deleted.
		have.held = nil
		if err := h.conn.ensure(have); err != nil {
			return nil, err
		}
	}
	return h.attach(have, handle, to, live)
}

// Unsubscribe removes a subscription and reports whether it existed.
func (h *Session) Unsubscribe(ctx context.Context, filter string) (existed bool, err error) {
	if err := h.enter(); err != nil {
		return false, err
	}
	defer h.leave()
	sub := h.s.subs[filter]
	if sub == nil {
		return false, nil
	}
	cctx, cancel := h.conn.b.changeContext()
	defer cancel()
	if err := h.s.erase(cctx, sub); err != nil {
		return true, err
	}
	h.stopFeeding(filter)
	delete(h.s.subs, filter)
	return true, h.s.release(cctx, sub)
}

// mayAttach returns why a connection may not attach to a session. It is locked.
func (c *Conn) mayAttach(e *sessionEntry, a *Attaching) error {
	switch {
	case e.holder != nil && e.holder.conn == c:
		return kernel.Errorf(kernel.CodeNotAllowed, "session", e.id, "the connection holds it already")
	case a.Epoch != 0 && e.epoch > a.Epoch && !noEpoch:
		return kernel.Errorf(kernel.CodeFenced, "session", e.id, "another connection has taken it")
	}
	return c.allowSession(e)
}

// Epoch numbers the attachment. That of a later one of the session is higher, at
// whichever node; an attachment that goes on at another one keeps it.
func (h *Session) Epoch() uint64 { return h.epoch }

// Detach gives the session back; expiry replaces the one given at AttachSession.
// Members leave, live feeds end, an expiry of 0 discards it. Idempotent.
func (h *Session) Detach(expiry time.Duration) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.detach(expiry)
}

// detachAsAgreed is Detach with the expiry given at AttachSession.
func (h *Session) detachAsAgreed() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.detach(h.s.expiry)
}

func (h *Session) detach(expiry time.Duration) {
	if h.letGo() {
		h.s.leaveWill(h.conn, expiry)
		close(h.released)
		h.s.detached(expiry)
	}
}

// letGo ends the attachment; false if it was over. The session is locked.
func (h *Session) letGo() bool {
	if h.over {
		return false
	}
	h.over = true
	for filter := range h.feeds {
		h.stopFeeding(filter)
	}
	h.conn.mu.Lock()
	h.conn.attach.Remove(h)
	h.conn.mu.Unlock()
	h.s.holder = nil
	h.onces.hold(nil)
	return true
}

// enter locks the session for a call of its holder; leave unlocks it.
func (h *Session) enter() error {
	if err := h.conn.begin(); err != nil {
		return err
	}
	h.s.mu.Lock()
	if h.over {
		h.leave()
		return kernel.Errorf(kernel.CodeFenced, "session", h.s.id, "another connection has taken it")
	}
	return nil
}

func (h *Session) leave() {
	h.s.mu.Unlock()
	h.conn.end()
}

// attach feeds a subscription, in place of what fed it before.
func (h *Session) attach(sub *subscription, handle uint64, to kernel.Consumer, live kernel.LiveSubscriber) (*Attachment, error) {
	a := &Attachment{Subscription: sub.Subscription.Subscription, Handle: handle}
	filter, old := sub.Filter, h.feeds[sub.Filter]
	if !sub.reads() {
		h.attachLive(sub, handle, live, old)
		h.feeds[filter].to = to
		return a, nil
	}
	opt := kernel.MemberOptions{AutoSettle: sub.QoS == 0, Session: h.s.id, Tag: filter}
	m, err := h.conn.join(sub.addr, opt, false, to)
	if err != nil {
		return nil, err
	}
	next := &feeding{member: m, to: to}
	if old != nil && old.member != nil && old.member.settles {
		old.member.Stop()
		next.retired, old.member = old.member, nil
	}
	h.stopFeeding(filter)
	h.feeds[filter] = next
	a.Member = m
	return a, nil
}

// attachLive feeds a subscription from memory, in place of old.
func (h *Session) attachLive(sub *subscription, handle uint64, live kernel.LiveSubscriber, old *feeding) {
	n, here := h.conn.counters, h.conn.b.Counters(h.conn.about.Protocol)
	feed := &route.Feed{To: live, Slow: &h.slow, Out: &n.Out, OutBytes: &n.OutBytes, Dropped: &here.Dropped}
	t := h.conn.tenant
	t.mu.Lock()
	t.lives++
	l := &route.Live{ID: t.lives, Filter: sub.Filter, QoS: sub.QoS, Handle: handle, Feed: feed}
	t.change(func(tab *route.Table) *route.Table {
		if old != nil && old.live != nil {
			tab = tab.DropLive(old.live)
			old.live = nil
		}
		return tab.PutLive(l)
	})
	t.mu.Unlock()
	h.stopFeeding(sub.Filter)
	h.feeds[sub.Filter] = &feeding{live: l}
}

// stopFeeding ends what feeds a filter, if anything does.
func (h *Session) stopFeeding(filter string) {
	f := h.feeds[filter]
	if f == nil {
		return
	}
	delete(h.feeds, filter)
	for _, m := range []*Member{f.member, f.retired} {
		if m != nil {
			m.Leave()
		}
	}
	if f.live != nil {
		t := h.conn.tenant
		t.mu.Lock()
		t.change(func(tab *route.Table) *route.Table { return tab.DropLive(f.live) })
		t.mu.Unlock()
	}
}

// subscription is one subscription of a session.
type subscription struct {
	session.Subscription
	addr   kernel.GroupAddress // what it reads, if it is grouped or a share
	create bool                // the group may be made
	share  bool
	held   *group // the share group it is counted at
}

// reads reports whether it reads a group, not a live feed.
func (s *subscription) reads() bool { return s.share || s.Grouped }
