package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// declareShare declares a share group as a queue.
func (c *Conn) declareShare(q *QueueSpec) (QueueInfo, error) {
	t := c.tenant
	addr, create, err := kernel.ParseShare(t.name, q.Name)
	if err != nil {
		return QueueInfo{}, err
	}
	if q.Exclusive || !q.Durable {
		return QueueInfo{}, kernel.Errorf(kernel.CodeInvalid, "queue", q.Name, "a share group is durable and not exclusive")
	}
	if !create || addr.IsOwn() {
		if _, ok := t.find(addr); !ok && !create {
			return QueueInfo{}, t.noQueue(q.Name)
		}
		own := *q
		own.Name = addr.Topic
		info, err := c.DeclareQueue(context.Background(), own)
		info.Name = q.Name
		return info, err
	}
	if err := c.allow(kernel.Configure, KindQueue, q.Name); err != nil {
		return QueueInfo{}, err
	}
	if err := c.allowTopic(addr.Kind, addr.Topic); err != nil {
		return QueueInfo{}, err
	}
	defer t.names.lock(claim{topicLockKey(addr.Kind == kernel.Filter, addr.Topic), true})()
	t.policies.gate.RLock()
	defer t.policies.gate.RUnlock()
	kq := c.queue(q)
	ctx, cancel := c.b.changeContext()
	defer cancel()
	if g, ok := t.find(addr); ok {
		topic, err := c.topicOf(addr)
		if err != nil {
			return QueueInfo{}, err
		}
		if g.declared() {
			if err := t.sameQueue(q, g.spec.Queue); err != nil {
				return QueueInfo{}, err
			}
		} else if q.Start.Kind != 0 {
			return QueueInfo{}, kernel.Errorf(kernel.CodePrecondition, "queue", q.Name,
				"invalid arg 'x-start-offset' for queue '%s' in vhost '%s': a subscription has made the group already", q.Name, t.name)
		} else if err := t.claimGroup(ctx, topic.Topic, g, kq); err != nil {
			return QueueInfo{}, err
		}
		return c.lookedUp(q.Name, addr)
	}
	spec := catalog.Group{Address: addr, Owner: true, Queue: kq, Start: q.Start}
	if q.Type == kernel.Quorum {
		spec.FailedLimit = quorumFailedLimit
	}
	if _, err := c.joinTopic(ctx, addr, spec, kernel.RetainDay); err != nil {
		return QueueInfo{}, err
	}
	return c.info(q.Name, addr)
}

// joinTopic makes a group on the topic of its address, and the topic too if it
// is missing; it then goes with its last reader. The lock of the topic's name
// is held, for writing.
func (c *Conn) joinTopic(ctx context.Context, addr kernel.GroupAddress, spec catalog.Group, keep kernel.Retention) (*group, error) {
	t := c.tenant
	if topic, ok := t.table.Load().Topic(addr.Kind, addr.Topic); ok {
		if !topic.Visible() {
			return nil, t.hidden(addr.Topic)
		}
		return t.makeGroup(ctx, topic.Topic, spec)
	}
	if err := checkTopicName(addr); err != nil {
		return nil, err
	}
	kt := &kernel.Topic{Name: addr.Topic, Kind: addr.Kind, Partitions: 1, Retention: keep, Auto: true}
	_, groups, err := t.makeTopic(ctx, kt, spec)
	if err != nil {
		return nil, err
	}
	return groups[0], nil
}

// checkTopicName checks the topic part of a group address that is about to
// make a topic.
func checkTopicName(addr kernel.GroupAddress) error {
	if addr.Kind == kernel.Filter {
		return kernel.CheckFilter(addr.Topic)
	}
	return kernel.CheckNewName("topic", addr.Topic)
}
