package broker

import (
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// tenant is the name space of one tenant: its routing table and what this node
// knows of its groups and sessions.
//
// A change takes the name locks it needs, commits, and then, under mu, brings
// the table and the maps up to date before it answers. So whoever holds a
// name's lock sees the whole truth about that name, and a publish that starts
// after the answer sees it too.
type tenant struct {
	b     *Broker
	name  string
	names nameLocks
	table atomic.Pointer[route.Table]
	// policies decide, beside what is declared.
	policies policies

	mu       sync.Mutex // guards what follows, and storing table
	topics   map[kernel.TopicID]*topic
	groups   map[kernel.GroupAddress]*group
	sessions map[string]*sessionEntry
	gone     goneList
	waiting  int // provisional topics
	dropped  bool
	lives    uint64
}

// topic is what the tenant knows of a topic beside its place in the table.
type topic struct {
	groups     groupSet
	subscribed int              // groups with holds
	retention  kernel.Retention // what its placement group goes by
}

// group is one share group on this node. tenant.mu guards the fields that
// change.
type group struct {
	spec  catalog.Group // changes with a declaration
	id    placement.GroupID
	place *placement.Group

	members int  // consumers, pull members not counted
	used    bool // had a consumer
	holds   int  // subscriptions that read it; they keep an automatic group alive
	expiry  expiryEntry
}

// declared reports whether the group was declared as a queue under its share
// address. tenant.mu is held.
func (g *group) declared() bool { return g.spec.Queue != nil }

// newGroup is a group as it enters a tenant. The group of a session is held by
// its one subscription, always.
func newGroup(place *placement.Group, id placement.GroupID, spec catalog.Group) *group {
	g := &group{spec: spec, id: id, place: place}
	if spec.Address.IsSession() {
		g.holds = 1
	}
	return g
}

func newTenant(b *Broker, name string) *tenant {
	t := &tenant{
		b: b, name: name,
		topics:   make(map[kernel.TopicID]*topic),
		groups:   make(map[kernel.GroupAddress]*group),
		sessions: make(map[string]*sessionEntry),
	}
	t.table.Store(route.New(name))
	return t
}

// change replaces the table by what fn makes of it. tenant.mu is held.
func (t *tenant) change(fn func(*route.Table) *route.Table) { t.table.Store(fn(t.table.Load())) }

// find returns the group of an address.
func (t *tenant) find(addr kernel.GroupAddress) (*group, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.groups[addr]
	return g, ok
}

// addTopic enters a topic. tenant.mu is held.
func (t *tenant) addTopic(rt *route.Topic) {
	t.topics[rt.ID] = &topic{retention: t.b.retentionOf(rt.Topic)}
	if !rt.ExpiresAt.IsZero() {
		t.waiting++
	}
	t.change(func(tab *route.Table) *route.Table { return tab.PutTopic(rt) })
}

// setTopic replaces the properties of a topic. tenant.mu is held.
func (t *tenant) setTopic(next *kernel.Topic) {
	rt, ok := t.table.Load().TopicByID(next.ID)
	if !ok {
		return
	}
	if !rt.ExpiresAt.IsZero() && next.ExpiresAt.IsZero() {
		t.waiting--
	}
	c := *rt
	c.Topic = next
	t.change(func(tab *route.Table) *route.Table { return tab.PutTopic(&c) })
}

// removeTopic forgets a topic with its groups and bindings. tenant.mu is held.
func (t *tenant) removeTopic(id kernel.TopicID) {
	rt, ok := t.table.Load().TopicByID(id)
	if !ok {
		return
	}
	if !rt.ExpiresAt.IsZero() {
		t.waiting--
	}
	for g := range t.topics[id].groups.all() {
		delete(t.groups, g.spec.Address)
		t.expireAfter(g, 0)
	}
	delete(t.topics, id)
	t.change(func(tab *route.Table) *route.Table {
		tab, _ = tab.DropTopic(id)
		return tab
	})
}

// addGroup enters a group of a topic that is there. tenant.mu is held.
func (t *tenant) addGroup(g *group) {
	tp := t.topics[g.spec.Topic]
	tp.groups.put(g)
	t.groups[g.spec.Address] = g
	if l, _ := g.place.Limits(g.id); l.Expires > 0 {
		t.expireAfter(g, l.Expires)
	}
	if g.holds > 0 {
		t.subscribed(g.spec.Topic, tp, +1)
	}
}

// removeGroup forgets a group. tenant.mu is held.
func (t *tenant) removeGroup(g *group) {
	tp, ok := t.topics[g.spec.Topic]
	if !ok || tp.groups.get(g.spec.Address.Group) != g {
		return
	}
	tp.groups.delete(g.spec.Address.Group)
	delete(t.groups, g.spec.Address)
	t.expireAfter(g, 0)
	if g.holds > 0 {
		t.subscribed(g.spec.Topic, tp, -1)
	}
}

// hold counts a subscription that reads the group, or no longer does.
// tenant.mu is held.
func (t *tenant) hold(g *group, delta int) {
	before := g.holds > 0
	g.holds += delta
	tp, ok := t.topics[g.spec.Topic]
	if now := g.holds > 0; ok && now != before && tp.groups.get(g.spec.Address.Group) == g {
		if now {
			t.subscribed(g.spec.Topic, tp, +1)
		} else {
			t.subscribed(g.spec.Topic, tp, -1)
		}
	}
}

// subscribed counts the groups of subscriptions on a topic and tells the table
// about the first and the last.
func (t *tenant) subscribed(id kernel.TopicID, tp *topic, delta int) {
	before := tp.subscribed > 0
	tp.subscribed += delta
	if now := tp.subscribed > 0; now != before {
		if rt, ok := t.table.Load().TopicByID(id); ok {
			c := *rt
			c.Subscribed = now
			t.change(func(tab *route.Table) *route.Table { return tab.PutTopic(&c) })
		}
	}
}

// newTopicID draws a UUID (version 4).
func newTopicID() (id kernel.TopicID) {
	_, _ = rand.Read(id[:]) // never fails
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}

// goneList remembers the names of queues that went by themselves, so that late
// replies to them do not make them anew. It is bounded: the oldest go first.
type goneList struct {
	until map[string]time.Time
	order []goneName
}

type goneName struct {
	name  string
	until time.Time
}

func (l *goneList) add(name string, now time.Time) {
	if l.until == nil {
		l.until = make(map[string]time.Time)
	}
	until := now.Add(goneLife)
	l.until[name] = until
	l.order = append(l.order, goneName{name, until})
	for len(l.order) > 0 && (len(l.order) > goneNames || !now.Before(l.order[0].until)) {
		first := l.order[0]
		l.order = l.order[1:]
		if l.until[first.name].Equal(first.until) {
			delete(l.until, first.name)
		}
	}
}

func (l *goneList) has(name string, now time.Time) bool {
	until, ok := l.until[name]
	return ok && now.Before(until)
}
