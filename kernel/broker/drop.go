package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// dropQueue removes a queue. When the group is the topic's own and nobody else
// reads the topic, the topic goes; if others do, or it is not that group's
// alone, only the group, and the topic with its last reader. The locks of
// lockTopicFor are held.
func (t *tenant) dropQueue(topic *route.Topic, g *group) error {
	ctx, cancel := t.b.changeContext()
	defer cancel()
	t.mu.Lock()
	shared := t.topics[topic.ID].groups.len() > 1
	t.mu.Unlock()
	if g.spec.Address.IsOwn() && (topic.Queue != nil || !g.spec.Auto) {
		if !shared {
			return t.dropTopic(ctx, topic.Topic)
		}
		if err := t.undeclare(ctx, topic); err != nil {
			return err
		}
	}
	if err := t.dropGroup(ctx, topic.Topic, g); err != nil {
		return err
	}
	return t.dropIfUnread(ctx, topic.ID)
}

// dropEmptyQueue is dropQueue for one that is empty: CodePrecondition if a record
// came in the meantime. (Of a topic with other readers, that stays, but the group
// goes without it.) The locks of lockTopicFor are held.
func (t *tenant) dropEmptyQueue(topic *route.Topic, g *group) error {
	t.mu.Lock()
	alone := t.topics[topic.ID].groups.len() == 1 && g.spec.Address.IsOwn()
	t.mu.Unlock()
	if !alone {
		return t.dropQueue(topic, g)
	}
	// The log decides, so its records go first; a crash in between leaves an empty
	// queue, whose deletion nobody was told of.
	ctx, cancel := t.b.changeContext()
	defer cancel()
	if err := g.place.DropEmpty(ctx, topic.ID, g.id, t.b.catalog.Revision()); err != nil {
		return err
	}
	err := t.dropQueue(topic, g)
	if err != nil { // what takes no records must not look as if it did
		t.mu.Lock()
		t.removeTopic(topic.ID)
		t.mu.Unlock()
	}
	return err
}

// undeclare makes a queue's topic one that is there for its other readers: it
// loses its bindings and goes with the last of them.
func (t *tenant) undeclare(ctx context.Context, topic *route.Topic) error {
	if err := t.withhold(ctx, topic.Topic); err != nil {
		return err
	}
	next := *topic.Topic
	next.Queue, next.ExpiresAt, next.Auto = nil, time.Time{}, true
	after, sources := t.table.Load().UnbindAll(topic.Name)
	unused, ops := t.unusedExchanges(after, sources)
	if !next.Volatile {
		ops = append(ops, catalog.PutTopic{Topic: next})
		for _, bd := range t.table.Load().BindingsOf(topic.Name) {
			ops = append(ops, catalog.DropBinding{Binding: catalog.Binding{Tenant: t.name, Binding: bd}})
		}
	}
	if err := t.b.commit(ctx, ops...); err != nil {
		return err
	}
	t.mu.Lock()
	t.change(func(tab *route.Table) *route.Table {
		tab, _ = tab.UnbindAll(topic.Name)
		return tab
	})
	t.removeExchanges(unused)
	t.setTopic(&next)
	t.mu.Unlock()
	return t.withhold(ctx, topic.Topic) // what has come meanwhile
}

// dropIfUnread removes a topic that goes with its last reader, if that has
// gone. The locks of lockTopicFor are held.
func (t *tenant) dropIfUnread(ctx context.Context, id kernel.TopicID) error {
	topic, ok := t.table.Load().TopicByID(id)
	if !ok || !topic.Auto || topic.Queue != nil {
		return nil
	}
	t.mu.Lock()
	read := t.topics[id].groups.len() > 0
	t.mu.Unlock()
	if read {
		return nil
	}
	return t.dropTopic(ctx, topic.Topic)
}
