package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// MaxPartitions is the most partitions of one topic, unless Limits says otherwise.
const MaxPartitions = 1000

// TopicSpec asks for a log topic.
type TopicSpec struct {
	Name       string
	Partitions int32
	Retention  kernel.Retention
}

// CreateTopic makes a topic: CodeExists, CodeInvalidName, CodeInvalid,
// CodeAccessRefused (reserved name).
func (c *Conn) CreateTopic(ctx context.Context, t TopicSpec) (*kernel.Topic, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	if err := kernel.CheckNewName("topic", t.Name); err != nil {
		return nil, err
	}
	if err := c.allow(kernel.Configure, KindTopic, t.Name); err != nil {
		return nil, err
	}
	if t.Partitions < 1 || int(t.Partitions) > c.b.limits.Partitions {
		return nil, kernel.Errorf(kernel.CodeInvalid, "topic", t.Name, "the number of partitions is not in 1..%d", c.b.limits.Partitions)
	}
	defer c.tenant.names.lock(claim{topicLockKey(false, t.Name), true})()
	if _, ok := c.tenant.table.Load().Topic(kernel.Plain, t.Name); ok {
		return nil, kernel.Errorf(kernel.CodeExists, "topic", t.Name, "the topic exists")
	}
	kt := &kernel.Topic{Name: t.Name, Partitions: t.Partitions, Retention: t.Retention}
	cctx, cancel := c.b.changeContext()
	defer cancel()
	rt, _, err := c.tenant.makeTopic(cctx, kt)
	if err != nil {
		return nil, err
	}
	return rt.Topic, nil
}

// AutoCreateTopic returns a topic, made with the settings for that if it is
// missing: CodeNotFound when they say no; else as CreateTopic.
func (c *Conn) AutoCreateTopic(ctx context.Context, name string) (*kernel.Topic, error) {
	if t, ok := c.Topic(name); ok {
		return t, nil
	}
	s := c.b.settings
	if !s.AutoCreateTopics {
		return nil, noTopic(name)
	}
	t, err := c.CreateTopic(ctx, TopicSpec{Name: name, Partitions: s.AutoCreatePartitions, Retention: kernel.RetainWeek})
	if kernel.CodeOf(err) == kernel.CodeExists {
		if t, ok := c.Topic(name); ok {
			return t, nil
		}
	}
	return t, err
}

// DeleteTopic deletes a topic with all its groups: CodeNotFound, CodeLocked,
// CodePrecondition while an owner group holds it back.
func (c *Conn) DeleteTopic(ctx context.Context, name string) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if err := c.allow(kernel.Configure, KindTopic, name); err != nil {
		return err
	}
	t := c.tenant
	defer t.lockTopicFor(false, name)()
	topic, ok := t.table.Load().Topic(kernel.Plain, name)
	if !ok || topic.Volatile {
		return noTopic(name)
	}
	if err := c.usable(topic); err != nil {
		return err
	}
	if why := t.heldBack(topic.ID); why != "" {
		return kernel.Errorf(kernel.CodePrecondition, "topic", name, "%s", why)
	}
	cctx, cancel := c.b.changeContext()
	defer cancel()
	if err := t.dropTopic(cctx, topic.Topic); err != nil {
		return err
	}
	return c.b.dropOffsetsOf(t.name, topic.ID)
}

// heldBack says which owner group holds back the deletion of a topic (DESIGN
// section 2), "" for none: any but the topic's own, since its readers would miss
// what is published until they subscribe anew, and the topic's own while somebody
// reads it or it has records to settle. The lock of the topic's name is held.
func (t *tenant) heldBack(id kernel.TopicID) string {
	var own *group
	t.mu.Lock()
	for g := range t.topics[id].groups.all() {
		switch {
		case !g.spec.Owner:
		case g.spec.Address.IsSession():
			t.mu.Unlock()
			return "a durable subscription reads it"
		case !g.spec.Address.IsOwn():
			t.mu.Unlock()
			return "group " + g.spec.Address.String() + " reads it"
		default:
			own = g
		}
	}
	read := own != nil && (own.members > 0 || own.holds > 0)
	t.mu.Unlock()
	if read {
		return "it is a queue that has consumers"
	}
	if own != nil { // Stats may miss what has just been published
		if ready, held, _ := own.place.Count(own.id); ready+held > 0 {
			return "it is a queue with records that are not settled"
		}
	}
	return ""
}

// Topic returns a plain, durable, visible topic by name.
func (c *Conn) Topic(name string) (*kernel.Topic, bool) {
	t, ok := c.tenant.table.Load().Topic(kernel.Plain, name)
	return shown(t, ok)
}

// TopicByID returns a topic by UUID.
func (c *Conn) TopicByID(id kernel.TopicID) (*kernel.Topic, bool) {
	t, ok := c.tenant.table.Load().TopicByID(id)
	return shown(t, ok)
}

// FindTopic is Topic, or CodeNotFound.
func (c *Conn) FindTopic(name string) (*kernel.Topic, error) {
	if t, ok := c.Topic(name); ok {
		return t, nil
	}
	return nil, noTopic(name)
}

// FindTopicByID is TopicByID, or CodeNotFound.
func (c *Conn) FindTopicByID(id kernel.TopicID) (*kernel.Topic, error) {
	if t, ok := c.TopicByID(id); ok {
		return t, nil
	}
	return nil, noTopic(id.String())
}

func noTopic(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "topic", name, "it does not exist")
}

func shown(t *route.Topic, ok bool) (*kernel.Topic, bool) {
	if !ok || t.Kind != kernel.Plain || t.Volatile || !t.Visible() {
		return nil, false
	}
	return t.Topic, true
}

// Topics lists the plain, durable, visible topics of the tenant by name, of which
// the user may do anything with.
func (c *Conn) Topics() []*kernel.Topic {
	var list []*kernel.Topic
	c.tenant.table.Load().Topics(func(t *route.Topic) {
		if kt, ok := shown(t, true); ok && c.MayAny(KindTopic, kt.Name) {
			list = append(list, kt)
		}
	})
	return list
}

// Partition opens a partition for reading. CodeNotFound when it has gone,
// CodeAccessRefused when the user may not read the topic.
func (c *Conn) Partition(t *kernel.Topic, index int32) (*Partition, error) {
	rt, ok := c.tenant.table.Load().TopicByID(t.ID)
	if !ok || index < 0 || int(index) >= len(rt.Parts) {
		return nil, kernel.Errorf(kernel.CodeNotFound, "topic", t.Name, "there is no partition %d of it", index)
	}
	p := &Partition{conn: c, topic: t}
	if err := p.allowed(); err != nil {
		return nil, err
	}
	var err error
	p.Partition, err = c.b.placeOf(rt.Volatile).Partition(placement.PartitionID(rt.Parts[index]))
	return p, err
}

// producerBlock is how many producer ids one commit reserves.
const producerBlock = 1000

// NewProducerID returns a producer id never given before.
func (c *Conn) NewProducerID(ctx context.Context) (int64, error) {
	p := &c.b.producers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		cctx, cancel := c.b.changeContext()
		defer cancel()
		res, err := c.b.catalog.Do(cctx, catalog.TakeProducers{Count: producerBlock})
		if err != nil {
			return 0, err
		}
		p.next, p.end = res.Producers, res.Producers+producerBlock
	}
	p.next++
	return p.next - 1, nil
}
