package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/session"
)

// sessionEntry is a session, attached or away. A durable one has records in the
// keyed state of the durable placement group; its groups are there too, and not
// in the catalog.
type sessionEntry struct {
	t  *tenant
	id string

	mu        sync.Mutex // held while a change of the session commits
	fresh     bool       // made by an AttachSession that has not succeeded yet
	owner     ownerName  // the user who alone may attach; "" = not known, as in old records
	orphan    bool       // the owner has been deleted: it is nobody's
	void      bool       // being emptied, and some of it may be left
	gone      bool       // not in the tenant any more
	durable   bool
	expiry    time.Duration
	expiresAt time.Time // while away; zero = never
	stamped   bool      // expiresAt is written down
	subs      map[string]*subscription
	onces     *onces // nil until somebody attaches
	kept      []byte // see Session.Keep
	epoch     uint64 // of the last attachment, 0 = not known
	adrift    bool   // nobody has said that the client's connection has ended
	turns     turns
	holder    *Session
	will      *will   // what is left behind, nil = nothing
	owed      []*will // wills of connections before, see publishWill
	timer     uint64  // counts timers, so that a late one is told from the present one
	stopTimer func()
}

// entry returns the session of a client id, made if there is none.
func (t *tenant) entry(clientID string) (*sessionEntry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.sessions[clientID]; ok {
		return e, nil
	}
	if len(t.sessions) >= t.b.limits.Sessions {
		return nil, kernel.Errorf(kernel.CodeLimit, "session", clientID, "the tenant has %d sessions already", len(t.sessions))
	}
	e := &sessionEntry{t: t, id: clientID, fresh: true, subs: make(map[string]*subscription)}
	t.sessions[clientID] = e
	return e, nil
}

// forget takes the session out of the tenant.
func (e *sessionEntry) forget() {
	e.gone = true
	e.retireOnces()
	e.t.mu.Lock()
	defer e.t.mu.Unlock()
	delete(e.t.sessions, e.id)
}

// begin prepares the session for an attachment: as it is, or emptied.
func (e *sessionEntry) begin(ctx context.Context, a *Attaching, epoch uint64, present bool, owner string) error {
	changed, expiry := owner != e.owner.get(), a.Expiry
	e.owner.set(owner)
	if e.adrift && a.Epoch == 0 {
		e.leaveWill(nil, e.expiry) // another client: the connection before has ended
	}
	if err := e.resolveWill(ctx, present, a.Epoch != 0); err != nil {
		return err
	}
	if !present && !e.fresh {
		e.void = true // whatever comes of it
		if err := e.clear(ctx); err != nil {
			return err
		}
		e.fresh, e.void, e.durable = true, false, false
	}
	durable := expiry > 0 || (present && e.durable)
	if err := e.readOnces(ctx, durable, present); err != nil {
		return err
	}
	if a.Epoch != 0 && a.Numbers != nil {
		e.onces.adopt(a.Numbers())
	}
	if durable && (!present || expiry != e.expiry || e.stamped || changed || a.Epoch == 0) {
		fence := placement.KV{Key: session.EpochKey(e.t.name, e.id), Value: session.AppendEpoch(nil, epoch)}
		if err := e.record(ctx, session.Record{Expiry: expiry}, fence); err != nil {
			return err
		}
	}
	e.disarm()
	e.orphan, e.adrift = false, false
	e.fresh, e.durable, e.expiry = false, durable, expiry
	e.expiresAt, e.stamped = time.Time{}, false
	return nil
}

// record writes the session's own record, and what goes with it.
func (e *sessionEntry) record(ctx context.Context, r session.Record, more ...placement.KV) error {
	r.Owner = e.owner.get()
	return e.t.b.durable.Put(ctx, append(more, placement.KV{Key: session.SessionKey(e.t.name, e.id), Value: r.Append(nil)}))
}

func (e *sessionEntry) state() kernel.SessionState {
	st := kernel.SessionState{ClientID: e.id, Expiry: e.expiry, ExpiresAt: e.expiresAt}
	for _, sub := range e.subs {
		st.Subscriptions = append(st.Subscriptions, sub.Subscription.Subscription)
	}
	return st
}

// plan decides how a subscription is fed.
func (e *sessionEntry) plan(sub kernel.Subscription) (*subscription, error) {
	next := &subscription{Subscription: session.Subscription{Subscription: sub}, create: true}
	if kernel.IsShare(sub.Filter) {
		addr, create, err := kernel.ParseShare(e.t.name, sub.Filter)
		if err == nil && addr.Kind == kernel.Filter {
			err = kernel.CheckFilter(addr.Topic)
		}
		next.addr, next.create, next.share = addr, create, true
		return next, err
	}
	if err := kernel.CheckFilter(sub.Filter); err != nil {
		return nil, err
	}
	kind := kernel.Plain
	if kernel.HasWildcard(sub.Filter) {
		kind = kernel.Filter
	} else if topic, ok := e.t.table.Load().Topic(kernel.Plain, sub.Filter); ok && !topic.Visible() {
		return nil, e.t.hidden(sub.Filter)
	}
	old := e.subs[sub.Filter]
	next.Grouped = e.durable && (sub.QoS > 0 || (old != nil && old.Grouped))
	next.addr = kernel.SessionAddress(e.t.name, e.id, kind, sub.Filter)
	return next, nil
}

// ensure makes the group that a subscription reads, and the topic under it, if
// they are missing, and counts the subscription at a share group.
func (c *Conn) ensure(sub *subscription) error {
	if !sub.reads() {
		return nil
	}
	t := c.tenant
	key := topicLockKey(sub.addr.Kind == kernel.Filter, sub.addr.Topic)
	unlock := t.names.lock(claim{key, false})
	defer func() { unlock() }()
	g, ok := t.find(sub.addr)
	if !ok && !sub.create {
		return t.noQueue(sub.addr.Topic)
	}
	if _, there := t.table.Load().Topic(sub.addr.Kind, sub.addr.Topic); !ok && (sub.share || !there) {
		unlock()
		unlock = t.names.lock(claim{key, true})
		g, ok = t.find(sub.addr)
	}
	if !ok {
		ctx, cancel := c.b.changeContext()
		defer cancel()
		spec := sharedGroup(sub.addr, false)
		spec.Auto = sub.share
		var err error
		if g, err = c.joinTopic(ctx, sub.addr, spec, kernel.RetainUsed); err != nil {
			return err
		}
	}
	if _, err := c.topicOf(sub.addr); err != nil {
		return err
	}
	if sub.share {
		t.mu.Lock()
		t.hold(g, +1)
		t.mu.Unlock()
		sub.held = g
	}
	return nil
}

// unhold takes back one count of a subscription at a share group, which keeps
// another one.
func (t *tenant) unhold(g *group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold(g, -1)
}

// undo takes back a Subscribe that has failed: the old subscription, if there
// was one, stays.
func (e *sessionEntry) undo(ctx context.Context, old, next *subscription) error {
	if old != nil {
		if next.held != nil {
			e.t.unhold(next.held)
		}
		return e.saveAll(ctx, []making{{old: next, next: old}})
	}
	return errors.Join(e.erase(ctx, next), e.release(ctx, next))
}

// erase deletes a subscription's record.
func (e *sessionEntry) erase(ctx context.Context, sub *subscription) error {
	if !e.durable {
		return nil
	}
	return e.t.b.durable.Put(ctx, []placement.KV{{Key: session.SubscriptionKey(e.t.name, e.id, sub.Filter)}})
}

// release gives up what a subscription reads: the session's own group goes, a
// share group if this was its last subscription, and a topic that a
// subscription made with its last group.
func (e *sessionEntry) release(ctx context.Context, sub *subscription) error {
	t := e.t
	if sub.held != nil {
		t.mu.Lock()
		t.hold(sub.held, -1)
		idle := t.idle(sub.held)
		t.mu.Unlock()
		if idle {
			t.reap(sub.held)
		}
		return nil
	}
	if !sub.Grouped {
		return nil
	}
	filter := sub.addr.Kind == kernel.Filter
	unlock := t.names.lock(claim{topicLockKey(filter, sub.addr.Topic), false})
	g, ok := t.find(sub.addr)
	var err error
	last := false
	if topic, there := t.table.Load().Topic(sub.addr.Kind, sub.addr.Topic); ok && there {
		err = t.dropGroup(ctx, topic.Topic, g)
		t.mu.Lock()
		tp := t.topics[topic.ID]
		last = topic.Auto && tp != nil && tp.groups.len() == 0
		t.mu.Unlock()
	}
	unlock()
	if err != nil || !last {
		return err
	}
	defer t.lockTopicFor(filter, sub.addr.Topic)()
	if topic, there := t.table.Load().Topic(sub.addr.Kind, sub.addr.Topic); there {
		return t.dropIfUnread(ctx, topic.ID)
	}
	return nil
}

// clear deletes the session's records, then gives up what it reads.
func (e *sessionEntry) clear(ctx context.Context) error {
	if e.durable {
		dead := []placement.KV{{Key: session.SessionKey(e.t.name, e.id)}, {Key: session.EpochKey(e.t.name, e.id)}}
		for filter := range e.subs {
			dead = append(dead, placement.KV{Key: session.SubscriptionKey(e.t.name, e.id, filter)})
		}
		if err := e.t.b.durable.Put(ctx, dead); err != nil {
			return err
		}
		// A crash in between leaves the numbers to nobody: see dropLeftovers.
		if err := e.forgetNumbers(ctx); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, sessionWidth)
	for _, sub := range e.subs {
		slots <- struct{}{}
		wg.Go(func() {
			if err := e.release(ctx, sub); err != nil && e.t.b.ctx.Err() == nil {
				e.t.b.log.Error().Err(err).Str("filter", sub.Filter).Msg("the group of a session could not be deleted")
			}
			<-slots
		})
	}
	wg.Wait()
	e.subs = make(map[string]*subscription)
	return nil
}

// sessionWidth is how many groups a session makes or gives up side by side, to
// share commits.
const sessionWidth = 16

// detached is what follows a Detach: the session is discarded, or kept until it
// expires.
func (e *sessionEntry) detached(expiry time.Duration) {
	ctx, cancel := e.t.b.changeContext()
	defer cancel()
	if !e.durable || expiry <= 0 || e.orphan {
		e.discard(ctx)
		return
	}
	if expiry != e.expiry {
		if err := e.record(ctx, session.Record{Expiry: expiry}); err != nil {
			e.t.b.log.Error().Err(err).Str("session", e.id).Msg("the expiry of a session could not be written")
		}
		e.expiry = expiry
	}
	if expiry != kernel.SessionForever {
		e.expiresAt = e.t.b.now().Add(expiry)
		e.arm()
	}
}

// discard ends the session for good.
func (e *sessionEntry) discard(ctx context.Context) {
	e.disarm()
	e.publishWill(nil)
	if err := e.clear(ctx); err != nil && e.t.b.ctx.Err() == nil {
		e.t.b.log.Error().Err(err).Str("session", e.id).Msg("a session could not be discarded")
	}
	e.forget()
}

// arm starts the timer of a session that is away: to write down when it
// expires, then to discard it.
func (e *sessionEntry) arm() {
	soon := min(stampAfter, max(e.expiry/stampShare, stampSoonest))
	if left := e.expiresAt.Sub(e.t.b.now()); left > soon && !e.stamped {
		e.wake(soon, e.stamp)
	} else {
		e.wake(left, e.discard)
	}
}

// wake calls act, with the session locked, when wait is over, unless disarm or
// another wake comes before.
func (e *sessionEntry) wake(wait time.Duration, act func(context.Context)) {
	e.disarm()
	n := e.timer
	e.stopTimer = e.t.b.after(wait, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.timer == n {
			ctx, cancel := e.t.b.changeContext()
			defer cancel()
			act(ctx)
		}
	})
}

func (e *sessionEntry) disarm() {
	e.timer++
	if e.stopTimer != nil {
		e.stopTimer()
		e.stopTimer = nil
	}
}

// stamp writes down when the session expires, so that a restart does not
// prolong it, and waits for that.
func (e *sessionEntry) stamp(ctx context.Context) {
	if err := e.record(ctx, session.Record{Expiry: e.expiry, ExpiresAt: e.expiresAt}); err == nil {
		e.stamped = true
	}
	e.wake(e.expiresAt.Sub(e.t.b.now()), e.discard)
}
