package broker

import (
	"context"
	"errors"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// Making and dropping topics and groups: catalog, placement group, table, in
// this order seen from outside. The callers hold the locks of the names.
//
// A change that has begun is finished even if its caller has gone, so that
// memory and log agree; only the node's end and changeWait stop it.

// placeOf returns the placement group that holds a topic.
func (b *Broker) placeOf(volatile bool) *placement.Group {
	if volatile {
		return b.volatile
	}
	return b.durable
}

// commit runs a catalog command unless there is nothing durable in it.
func (b *Broker) commit(ctx context.Context, ops ...catalog.Op) error {
	if len(ops) == 0 {
		return nil
	}
	_, err := b.catalog.Do(ctx, ops...)
	return err
}

// makeTopic makes a topic with groups on it. The catalog and the placement
// group commit side by side: after a crash in between, the start drops what the
// catalog does not have and makes what it has.
func (t *tenant) makeTopic(ctx context.Context, kt *kernel.Topic, specs ...catalog.Group) (*route.Topic, []*group, error) {
	b := t.b
	if t.isDropped() {
		return nil, nil, noTenant(t.name)
	}
	if t.table.Load().Len() >= b.limits.Topics {
		return nil, nil, kernel.Errorf(kernel.CodeLimit, "topic", kt.Name, "the tenant has %d topics already", b.limits.Topics)
	}
	kt.ID, kt.Tenant, kt.Placement = newTopicID(), t.name, durablePlacement
	if kt.Volatile {
		kt.Placement = volatilePlacement
	}
	var ops []catalog.Op
	if !kt.Volatile {
		ops = append(ops, catalog.PutTopic{Topic: *kt})
	}
	for i := range specs {
		specs[i].Topic = kt.ID
		if !kt.Volatile && !specs[i].Address.IsSession() {
			ops = append(ops, catalog.PutGroup{Group: specs[i]})
		}
	}
	var rt *route.Topic
	var groups []*group
	err := both(
		func() error { return b.commit(ctx, ops...) },
		func() (err error) { rt, groups, err = b.place(ctx, kt, specs); return err },
	)
	if err != nil {
		b.undoTopic(kt)
		return nil, nil, err
	}
	if !t.enter(rt, groups) {
		b.undoTopic(kt)
		return nil, nil, noTenant(t.name)
	}
	t.becameOwned(kt)
	return rt, groups, nil
}

// enter makes a topic with its groups known, unless the tenant is going.
func (t *tenant) enter(rt *route.Topic, groups []*group) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped {
		return false
	}
	t.addTopic(rt)
	for _, g := range groups {
		t.addGroup(g)
	}
	return true
}

// undoTopic removes what a failed makeTopic may have left, or may still bring
// about: it comes after that in the log. What it cannot remove now, the next
// start does.
func (b *Broker) undoTopic(kt *kernel.Topic) {
	ctx, cancel := b.changeContext()
	defer cancel()
	if !kt.Volatile {
		_ = b.commit(ctx, catalog.DropTopic{ID: kt.ID})
	}
	_ = b.placeOf(kt.Volatile).DropTopic(ctx, kt.ID, b.catalog.Revision())
}

// place makes the partitions and groups of a topic in its placement group.
func (b *Broker) place(ctx context.Context, kt *kernel.Topic, specs []catalog.Group) (*route.Topic, []*group, error) {
	place := b.placeOf(kt.Volatile)
	parts := make([]placement.PartitionSpec, kt.Partitions)
	for i := range parts {
		parts[i] = placement.PartitionSpec{Index: int32(i), Retention: b.retentionOf(kt)}
	}
	ids, err := place.CreatePartitions(ctx, kt.ID, parts, b.catalog.Revision())
	if err != nil {
		return nil, nil, err
	}
	rt := &route.Topic{Topic: kt, Parts: make([]uint64, len(ids))}
	for i, id := range ids {
		rt.Parts[i] = uint64(id)
	}
	groups := make([]*group, len(specs))
	for i, spec := range specs {
		if groups[i], err = b.placeGroup(ctx, place, kt, spec); err != nil {
			return nil, nil, err
		}
	}
	return rt, groups, nil
}

// placeGroup makes a group in its topic's placement group.
func (b *Broker) placeGroup(ctx context.Context, place *placement.Group, kt *kernel.Topic, spec catalog.Group) (*group, error) {
	id, err := place.CreateGroup(ctx, placement.GroupSpec{
		Address: spec.Address, Topic: spec.Topic, Owner: spec.Owner, FromStart: spec.FromStart, Start: spec.Start,
		FailedLimit: spec.FailedLimit, AcquiredLimit: spec.AcquiredLimit, Limits: b.limitsOf(kt, &spec),
	}, b.catalog.Revision())
	if err != nil {
		return nil, err
	}
	return newGroup(place, id, spec), nil
}

// makeGroup makes a group on a topic that is there.
func (t *tenant) makeGroup(ctx context.Context, kt *kernel.Topic, spec catalog.Group) (*group, error) {
	b := t.b
	spec.Topic = kt.ID
	var ops []catalog.Op
	if !kt.Volatile && !spec.Address.IsSession() {
		ops = append(ops, catalog.PutGroup{Group: spec})
	}
	var g *group
	err := both(
		func() error { return b.commit(ctx, ops...) },
		func() (err error) { g, err = b.placeGroup(ctx, b.placeOf(kt.Volatile), kt, spec); return err },
	)
	if err != nil {
		if len(ops) > 0 {
			undo, cancel := b.changeContext() // ctx may have ended
			defer cancel()
			_ = b.commit(undo, catalog.DropGroup{Topic: kt.ID, Group: spec.Address.Group})
		}
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addGroup(g)
	return g, nil
}

// dropTopic removes a topic with its groups, its bindings and the auto-delete
// exchanges that lose their last one, after what has died in it has its dead
// letters. The locks of lockTopicFor are held.
func (t *tenant) dropTopic(ctx context.Context, kt *kernel.Topic) error {
	after, sources := t.table.Load().DropTopic(kt.ID)
	unused, drops := t.unusedExchanges(after, sources)
	return t.dropTopicWith(ctx, kt, unused, drops)
}

// dropTopicAlone is dropTopic with the exchanges left for a while: who has bound the topic
// to them may do it anew.
func (t *tenant) dropTopicAlone(ctx context.Context, kt *kernel.Topic) error {
	_, sources := t.table.Load().DropTopic(kt.ID)
	if err := t.dropTopicWith(ctx, kt, nil, nil); err != nil {
		return err
	}
	if len(sources) > 0 {
		t.b.after(t.b.patience, func() { t.dropUnused(sources) })
	}
	return nil
}

// dropTopicWith removes a topic together with exchanges; ops are for those that are durable.
func (t *tenant) dropTopicWith(ctx context.Context, kt *kernel.Topic, unused []kernel.Exchange, drops []catalog.Op) error {
	b := t.b
	t.buryAll(t.groupsOf(kt.ID)...)
	var ops []catalog.Op
	if !kt.Volatile {
		ops = append(ops, catalog.DropTopic{ID: kt.ID})
	}
	if err := b.commit(ctx, append(ops, drops...)...); err != nil {
		return err
	}
	t.mu.Lock()
	t.removeTopic(kt.ID)
	t.removeExchanges(unused)
	t.mu.Unlock()
	return b.placeOf(kt.Volatile).DropTopic(ctx, kt.ID, b.catalog.Revision())
}

// dropGroup removes a group; its topic stays. What has died in the group has its
// dead letters before.
func (t *tenant) dropGroup(ctx context.Context, kt *kernel.Topic, g *group) error {
	t.buryAll(g)
	if !kt.Volatile && !g.spec.Address.IsSession() {
		if err := t.b.commit(ctx, catalog.DropGroup{Topic: kt.ID, Group: g.spec.Address.Group}); err != nil {
			return err
		}
	}
	t.mu.Lock()
	t.removeGroup(g)
	t.mu.Unlock()
	return g.place.DropGroup(ctx, g.id, t.b.catalog.Revision())
}

// updateTopic commits changed properties of a topic and enters them.
func (t *tenant) updateTopic(ctx context.Context, next *kernel.Topic) error {
	if !next.Volatile {
		if err := t.b.commit(ctx, catalog.PutTopic{Topic: *next}); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.setTopic(next)
	return nil
}

// lockTopicFor locks a topic for writing together with the exchanges that are
// bound to it: for reading, or for writing if they may go with their last
// binding.
func (t *tenant) lockTopicFor(filter bool, name string) (unlock func()) {
	return t.lockAll(func(table *route.Table) []claim {
		claims := []claim{{key: topicLockKey(filter, name), write: true}}
		if !filter {
			claims = append(claims, sourceClaims(table, table.BindingsOf(name))...)
		}
		return claims
	})
}

// covers reports whether the claims held include those wanted.
func covers(held, want []claim) bool {
	have := make(map[string]bool, len(held))
	for _, c := range held {
		have[c.key] = have[c.key] || c.write
	}
	for _, c := range want {
		if write, ok := have[c.key]; !ok || (c.write && !write) {
			return false
		}
	}
	return true
}

// both runs two functions side by side and waits for both.
func both(f, g func() error) error {
	var wg sync.WaitGroup
	var ferr error
	wg.Go(func() { ferr = f() })
	gerr := g()
	wg.Wait()
	return errors.Join(ferr, gerr)
}

// changeContext is the context of a change: it ends with the node or after
// changeWait, not with the caller.
func (b *Broker) changeContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.ctx, changeWait)
}
