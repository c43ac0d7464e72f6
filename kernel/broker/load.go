package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/kernel/session"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// loader brings the catalog, the placement group and the sessions together at
// the start. The catalog says which topics and groups there are, the session
// records which groups of sessions: what the placement group lacks is made,
// what it has beyond that is what a crash cut short, and dropped.
type loader struct {
	b      *Broker
	ctx    context.Context
	state  *catalog.State
	topics map[kernel.TopicID]placement.TopicInfo
	groups map[groupKey]*placement.GroupInfo
	// timers are started when all is loaded: what they do must find it whole, and
	// nobody else may change it while it is being loaded.
	timers []func()
}

// groupKey is a group of a topic.
type groupKey struct {
	topic kernel.TopicID
	group string
}

// load builds the tenants. Nobody is connected yet.
func (b *Broker) load(admin Admin) error {
	ctx, cancel := context.WithTimeout(b.ctx, startWait)
	defer cancel()
	if err := b.loadAccess(ctx, admin); err != nil {
		return fmt.Errorf("load users and tenants: %w", err)
	}
	l := &loader{
		b: b, ctx: ctx, state: b.catalog.State(),
		topics: make(map[kernel.TopicID]placement.TopicInfo),
		groups: make(map[groupKey]*placement.GroupInfo),
	}
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"policies", l.loadPolicies}, {"topics", l.loadTopics}, {"groups", l.loadGroups}, {"bindings", l.loadBindings},
		{"retained messages", l.loadRetained}, {"keys", l.dropForeignKeys},
		{"sessions", l.loadSessions}, {"leftovers", l.dropLeftovers},
		{"numbers", l.dropNumbers}, {"offsets", l.dropOffsets},
	} {
		if err := step.run(); err != nil {
			return fmt.Errorf("load %s: %w", step.name, err)
		}
	}
	for _, start := range l.timers {
		start()
	}
	b.expiry.start(b)
	b.retained.start()
	b.backlogs.start()
	return nil
}

// lost reports whether a topic does not outlive the process: a queue that was
// declared so on a topic that had been made durable before.
func lost(t *kernel.Topic) bool {
	return t.Queue != nil && (t.Queue.Exclusive || !t.Queue.Durable)
}

func (l *loader) loadTopics() error {
	for _, info := range l.b.durable.Topics() {
		if t, ok := l.state.TopicByID(info.ID); !ok || lost(t) {
			if err := l.b.durable.DropTopic(l.ctx, info.ID, l.state.Revision()); err != nil {
				return err
			}
			continue
		}
		l.topics[info.ID] = info
	}
	var err error
	l.state.Topics(func(t *kernel.Topic) {
		if err == nil {
			err = l.loadTopic(t)
		}
	})
	return err
}

func (l *loader) loadTopic(kt *kernel.Topic) error {
	if lost(kt) {
		return l.b.commit(l.ctx, catalog.DropTopic{ID: kt.ID})
	}
	t, ok := l.b.tenant(kt.Tenant)
	if !ok {
		// It was being made while its tenant was dropped.
		if _, placed := l.topics[kt.ID]; placed {
			delete(l.topics, kt.ID)
			if err := l.b.durable.DropTopic(l.ctx, kt.ID, l.state.Revision()); err != nil {
				return err
			}
		}
		return l.b.commit(l.ctx, catalog.DropTopic{ID: kt.ID})
	}
	rt := &route.Topic{Topic: kt, Parts: make([]uint64, kt.Partitions)}
	have := l.topics[kt.ID].Partitions
	if len(have) < int(kt.Partitions) {
		made, _, err := l.b.place(l.ctx, kt, nil)
		if err != nil {
			return err
		}
		rt = made
	} else {
		for _, p := range have {
			if int(p.Index) < len(rt.Parts) {
				rt.Parts[p.Index] = uint64(p.ID)
			}
		}
	}
	t.mu.Lock()
	t.addTopic(rt)
	if len(have) > 0 {
		t.topics[kt.ID].retention = have[0].Retention
	}
	t.mu.Unlock()
	if err := t.setRetention(l.ctx, kt); err != nil {
		return err
	}
	if !kt.ExpiresAt.IsZero() {
		l.timers = append(l.timers, func() { t.expireLater(kt.ID, kt.ExpiresAt) })
	}
	return nil
}

func (l *loader) loadGroups() error {
	infos := l.b.durable.Groups()
	for i := range infos {
		l.groups[groupKey{infos[i].Spec.Topic, infos[i].Spec.Address.Group}] = &infos[i]
	}
	var err error
	l.state.Groups(func(g *catalog.Group) {
		if err == nil {
			err = l.loadGroup(*g)
		}
	})
	return err
}

// loadGroup enters a group, made if the placement group lacks it.
func (l *loader) loadGroup(spec catalog.Group) error {
	t, ok := l.b.tenant(spec.Address.Tenant)
	if !ok {
		return nil
	}
	topic, ok := t.table.Load().TopicByID(spec.Topic)
	if !ok {
		return nil // went with its topic just now
	}
	var g *group
	key := groupKey{spec.Topic, spec.Address.Group}
	if info, ok := l.groups[key]; ok {
		g = newGroup(l.b.durable, info.ID, spec)
		delete(l.groups, key)
		if info.Spec.Owner != spec.Owner {
			if err := l.b.durable.SetOwner(l.ctx, info.ID, spec.Owner); err != nil {
				return err
			}
		}
		if err := t.setLimits(l.ctx, g, l.b.limitsOf(topic.Topic, &spec)); err != nil {
			return err
		}
	} else {
		var err error
		if g, err = l.b.placeGroup(l.ctx, l.b.durable, topic.Topic, spec); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addGroup(g)
	return nil
}

func (l *loader) loadBindings() error {
	l.state.Exchanges(func(x *kernel.Exchange) {
		t, ok := l.b.tenant(x.Tenant)
		if !ok {
			return
		}
		t.change(func(tab *route.Table) *route.Table { return t.withAlternate(tab.PutExchange(*x), x.Name) })
	})
	l.state.Bindings(func(bd *catalog.Binding) {
		t, ok := l.b.tenant(bd.Tenant)
		if !ok {
			return
		}
		t.change(func(tab *route.Table) *route.Table {
			tab, _ = tab.Bind(bd.Binding)
			return tab
		})
	})
	return nil
}

func (l *loader) loadRetained() error {
	if err := l.settleKeys(); err != nil {
		return err
	}
	l.b.backlogs.b = l.b
	return errors.Join(l.b.retained.load(), l.b.backlogs.load())
}

func (l *loader) loadSessions() error {
	now := l.b.now()
	err := l.b.durable.Iterate(session.SessionPrefix(), func(key, value []byte) error {
		tenant, client, err := session.ParseSessionKey(key)
		if err != nil {
			return err
		}
		r, err := session.ReadRecord(value)
		if err != nil {
			return fmt.Errorf("session %q: %w", client, err)
		}
		t, ok := l.b.tenant(tenant)
		if !ok {
			return nil
		}
		e := &sessionEntry{
			t: t, id: client, durable: true, expiry: r.Expiry, expiresAt: r.ExpiresAt,
			stamped: !r.ExpiresAt.IsZero(), subs: make(map[string]*subscription),
		}
		if e.expiresAt.IsZero() && r.Expiry != kernel.SessionForever {
			e.expiresAt = now.Add(max(r.Expiry, l.b.relinks)) // it counts from the restart
		}
		e.owner.set(r.Owner)
		if _, known := l.b.directory().User(r.Owner); r.Owner != "" && !known {
			e.orphan, e.expiresAt = true, now // a crash while he was deleted
		}
		t.sessions[client] = e
		return nil
	})
	if err != nil {
		return err
	}
	var subs []*subscription
	var owners []*sessionEntry
	err = l.b.durable.Iterate(session.SubscriptionPrefix(), func(key, value []byte) error {
		tenant, client, filter, err := session.ParseSubscriptionKey(key)
		if err != nil {
			return err
		}
		kept, err := session.ReadSubscription(filter, value)
		if err != nil {
			return fmt.Errorf("subscription %q of session %q: %w", filter, client, err)
		}
		if t, ok := l.b.tenant(tenant); ok && t.sessions[client] != nil {
			subs = append(subs, &subscription{Subscription: kept})
			owners = append(owners, t.sessions[client])
		}
		return nil
	})
	for i := 0; err == nil && i < len(subs); i++ {
		err = l.loadSubscription(owners[i], subs[i].Subscription)
	}
	if err != nil {
		return err
	}
	if err := l.loadEpochs(); err != nil {
		return err
	}
	if err := l.loadWills(); err != nil {
		return err
	}
	return l.expireSessions()
}

// loadEpochs gives the sessions the epochs of their last attachments: an earlier one does
// not go on here.
func (l *loader) loadEpochs() error {
	return l.b.durable.Iterate(session.EpochPrefix(), func(key, value []byte) error {
		tenant, client, err := session.ParseEpochKey(key)
		if err != nil {
			return err
		}
		epoch, err := session.ReadEpoch(value)
		if err != nil {
			return fmt.Errorf("epoch of session %q: %w", client, err)
		}
		if t, ok := l.b.tenant(tenant); ok && t.sessions[client] != nil {
			t.sessions[client].epoch = epoch
		}
		return nil
	})
}

// settleKeys returns when the keyed state holds all that the log says. It is
// written behind the log: a write of our own that has come through had all
// others before it.
func (l *loader) settleKeys() error {
	return l.b.durable.Put(l.ctx, []placement.KV{{Key: []byte("start")}})
}

// loadSubscription gives a session a subscription, with the group it reads.
func (l *loader) loadSubscription(e *sessionEntry, kept session.Subscription) error {
	sub, err := e.plan(kept.Subscription)
	if err != nil {
		l.b.log.Warn().Err(err).Str("session", e.id).Str("filter", kept.Filter).Msg("a subscription can no longer be served")
		return nil
	}
	sub.Grouped = kept.Grouped
	e.subs[sub.Filter] = sub
	if topic, ok := e.t.table.Load().Topic(sub.addr.Kind, sub.addr.Topic); ok && sub.Grouped {
		if _, found := l.groups[groupKey{topic.ID, sub.addr.Group}]; found {
			spec := sharedGroup(sub.addr, false)
			spec.Topic, spec.Auto = topic.ID, false
			return l.loadGroup(spec)
		}
	}
	loading := &Conn{b: l.b, tenant: e.t}
	if err := loading.ensure(sub); err != nil {
		l.b.log.Warn().Err(err).Str("session", e.id).Str("filter", sub.Filter).Msg("the group of a subscription is missing")
	}
	return nil
}

// expireSessions discards the sessions whose time is over. The others get their
// timers.
func (l *loader) expireSessions() error {
	for _, t := range l.b.tenants.load() {
		for _, e := range t.sessions {
			e.mu.Lock()
			switch {
			case e.expiry <= 0, !e.expiresAt.IsZero() && !e.expiresAt.After(l.b.now()):
				e.discard(l.ctx)
			case !e.expiresAt.IsZero():
				l.timers = append(l.timers, func() {
					e.mu.Lock()
					defer e.mu.Unlock()
					e.arm()
				})
			}
			e.mu.Unlock()
		}
	}
	return nil
}

// dropLeftovers drops the groups that nothing knows, the automatic ones that no
// subscription keeps, and the topics that were there for them.
func (l *loader) dropLeftovers() error {
	for key, info := range l.groups {
		if _, ok := l.topics[key.topic]; !ok {
			continue // went with its topic
		}
		if err := l.b.durable.DropGroup(l.ctx, info.ID, l.state.Revision()); err != nil {
			return err
		}
	}
	for _, t := range l.b.tenants.load() {
		var unused []*group
		t.mu.Lock()
		for _, g := range t.groups {
			if t.idle(g) {
				unused = append(unused, g)
			}
		}
		t.mu.Unlock()
		for _, g := range unused {
			if l.b.relinks > 0 && l.auto(t, g) {
				l.timers = append(l.timers, func() { l.b.after(l.b.relinks, func() { t.reap(g) }) })
				continue
			}
			t.reap(g)
		}
		var unread []*route.Topic
		t.table.Load().AllTopics(func(rt *route.Topic) { unread = append(unread, rt) })
		for _, rt := range unread {
			if err := t.dropIfUnread(l.ctx, rt.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// auto reports whether a group is kept by subscriptions alone: those of sessions that
// are not kept come again with their clients' links.
func (l *loader) auto(t *tenant, g *group) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.spec.Auto && t.declaration(g) == nil
}

// dropOffsets forgets the reader positions in topics that have gone: not every
// way in which a topic goes looks for them, and readers may commit them late.
func (l *loader) dropOffsets() error {
	for name, t := range l.b.tenants.load() {
		table := t.table.Load()
		err := l.b.dropOffsets(name, func(id kernel.TopicID) bool {
			_, there := table.TopicByID(id)
			return !there
		})
		if err != nil {
			return err
		}
	}
	return nil
}
