package broker

import (
	"cmp"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
)

// The listings are snapshots for operators. They check no permission: who may
// see what is for the front-end that shows them to decide. Reply queues are left out, as
// their names are for those who were told.

// Exchanges lists the exchanges of a tenant by name, the default one first.
func (b *Broker) Exchanges(tenant string) []kernel.Exchange {
	t, ok := b.tenant(tenant)
	if !ok {
		return nil
	}
	list := []kernel.Exchange{defaultExchange(tenant)}
	t.table.Load().Exchanges(func(x kernel.Exchange) { list = append(list, x) })
	slices.SortFunc(list, func(x, y kernel.Exchange) int { return cmp.Compare(x.Name, y.Name) })
	return list
}

// Exchange returns an exchange of a tenant.
func (b *Broker) Exchange(tenant, name string) (kernel.Exchange, bool) {
	t, ok := b.tenant(tenant)
	if !ok {
		return kernel.Exchange{}, false
	}
	if name == kernel.ExchangeDefault {
		return defaultExchange(tenant), true
	}
	x, _, ok := t.table.Load().Exchange(name)
	return x, ok
}

func defaultExchange(tenant string) kernel.Exchange {
	return kernel.Exchange{Tenant: tenant, Type: kernel.Direct, Durable: true}
}

// BindingsFrom lists the bindings from an exchange, in no order.
func (b *Broker) BindingsFrom(tenant, exchange string) []kernel.Binding {
	if t, ok := b.tenant(tenant); ok {
		return t.table.Load().BindingsFrom(exchange)
	}
	return nil
}

// BindingsOf lists the bindings to a queue, by exchange.
func (b *Broker) BindingsOf(tenant, queue string) []kernel.Binding {
	if t, ok := b.tenant(tenant); ok {
		return t.table.Load().BindingsOf(queue)
	}
	return nil
}

// GroupStatus is a share group in listings.
type GroupStatus struct {
	Address            kernel.GroupAddress
	Declared           bool // as a queue
	Owner              bool // records wait for it
	Volatile           bool
	Ready, Held        int64
	Members            int
	Delivered, Settled uint64 // since start
}

// Groups lists the share groups of a tenant by topic and group, sessions' own
// included.
func (b *Broker) Groups(tenant string) []GroupStatus {
	t, ok := b.tenant(tenant)
	if !ok {
		return nil
	}
	table := t.table.Load()
	t.mu.Lock()
	list := make([]GroupStatus, 0, len(t.groups))
	for _, g := range t.groups {
		if topic, ok := table.TopicByID(g.spec.Topic); ok && !kernel.IsReply(topic.Name) {
			list = append(list, g.groupStatus(topic))
		}
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(x, y GroupStatus) int {
		return cmp.Or(cmp.Compare(x.Address.Topic, y.Address.Topic), cmp.Compare(x.Address.Kind, y.Address.Kind), cmp.Compare(x.Address.Group, y.Address.Group))
	})
	return list
}

// groupStatus describes a group. tenant.mu is held.
func (g *group) groupStatus(topic *route.Topic) GroupStatus {
	s := GroupStatus{
		Address: g.spec.Address, Owner: g.spec.Owner, Volatile: topic.Volatile,
		Declared: g.declared() || g.spec.Address.IsOwn() && topic.Queue != nil,
	}
	s.Ready, s.Held, s.Members, s.Delivered, s.Settled = g.place.Stats(g.id)
	return s
}

// Progress is how far a group has come in a partition.
type Progress = placement.Progress

// Group returns a share group and how far it has come, by partition:
// CodeNotFound.
func (b *Broker) Group(addr kernel.GroupAddress) (GroupStatus, []Progress, error) {
	missing := kernel.Errorf(kernel.CodeNotFound, "group", addr.String(), "no group '%s' in vhost '%s'", addr, addr.Tenant)
	t, ok := b.tenant(addr.Tenant)
	if !ok {
		return GroupStatus{}, nil, missing
	}
	t.mu.Lock()
	g, ok := t.groups[addr]
	if !ok {
		t.mu.Unlock()
		return GroupStatus{}, nil, missing
	}
	topic, ok := t.table.Load().TopicByID(g.spec.Topic)
	if !ok {
		t.mu.Unlock()
		return GroupStatus{}, nil, missing
	}
	s := g.groupStatus(topic)
	t.mu.Unlock()
	progress, err := g.place.Progress(g.id)
	return s, progress, err
}

// TopicStatus is a topic in listings.
type TopicStatus struct {
	*kernel.Topic
	Groups    int
	Published uint64 // records appended since start
}

// TopicStatuses lists the topics of a tenant, of both kinds, by name.
func (b *Broker) TopicStatuses(tenant string) []TopicStatus {
	t, ok := b.tenant(tenant)
	if !ok {
		return nil
	}
	var list []TopicStatus
	t.mu.Lock()
	t.table.Load().AllTopics(func(rt *route.Topic) {
		if !kernel.IsReply(rt.Name) {
			list = append(list, t.topicStatus(rt))
		}
	})
	t.mu.Unlock()
	slices.SortFunc(list, func(x, y TopicStatus) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Kind, y.Kind))
	})
	return list
}

// topicStatus describes a topic. tenant.mu is held.
func (t *tenant) topicStatus(rt *route.Topic) TopicStatus {
	s := TopicStatus{Topic: rt.Topic, Published: t.b.placeOf(rt.Volatile).Published(rt.ID)}
	if tp, ok := t.topics[rt.ID]; ok {
		s.Groups = tp.groups.len()
	}
	return s
}

// PartitionBounds are the first readable offset of a partition and the next to
// be given.
type PartitionBounds struct{ Start, End int64 }

// TopicStatus returns a topic with the bounds of its partitions, by index:
// CodeNotFound.
func (b *Broker) TopicStatus(tenant, name string, kind kernel.TopicKind) (TopicStatus, []PartitionBounds, error) {
	missing := kernel.Errorf(kernel.CodeNotFound, "topic", name, "no topic '%s' in vhost '%s'", name, tenant)
	t, ok := b.tenant(tenant)
	if !ok {
		return TopicStatus{}, nil, missing
	}
	rt, ok := t.table.Load().Topic(kind, name)
	if !ok {
		return TopicStatus{}, nil, missing
	}
	t.mu.Lock()
	s := t.topicStatus(rt)
	t.mu.Unlock()
	bounds := make([]PartitionBounds, 0, len(rt.Parts))
	for _, id := range rt.Parts {
		p, err := b.placeOf(rt.Volatile).Partition(placement.PartitionID(id))
		if err != nil {
			return TopicStatus{}, nil, err
		}
		start, end := p.Bounds()
		bounds = append(bounds, PartitionBounds{start, end})
	}
	return s, bounds, nil
}

// QueueStatus returns the queue, or group, of a name: a queue's name or a share
// address.
func (b *Broker) QueueStatus(tenant, name string) (QueueStatus, bool) {
	t, ok := b.tenant(tenant)
	if !ok {
		return QueueStatus{}, false
	}
	addr := kernel.QueueAddress(tenant, name)
	if kernel.IsShare(name) {
		var err error
		if addr, _, err = kernel.ParseShare(tenant, name); err != nil {
			return QueueStatus{}, false
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.groups[addr]
	if !ok || kernel.IsReply(addr.Topic) {
		return QueueStatus{}, false
	}
	topic, ok := t.table.Load().TopicByID(g.spec.Topic)
	if !ok {
		return QueueStatus{}, false
	}
	return g.status(topic), true
}
