package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// quorumFailedLimit is how often a record of a quorum queue may come back.
const quorumFailedLimit = 20

// QueueSpec is a queue declaration. Name "" asks for a server-made name. A name
// that is a share address declares that group as a queue.
type QueueSpec struct {
	Name       string
	Type       kernel.QueueType
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Retention  *kernel.Retention // nil = the default for its durability
	// Start is where a further group begins that is made with it; its end, if the
	// Kind is 0. CodePrecondition if a subscription has made it already.
	Start     kernel.Position
	Arguments []kernel.Argument // accepted arguments, compared for equivalence
	// Again says that the name is the connection's own: it has declared the queue before,
	// at a broker that serves no more, or has made the name up (kernel.ReplyName). It may
	// be a reserved one.
	Again bool
}

// QueueInfo is the state of a queue's group.
type QueueInfo struct {
	Name    string
	Type    kernel.QueueType // of the declaration, Classic without one
	Ready   int64            // records available to members
	Held    int64            // handed out, not settled
	Members int              // consumers, pull members not counted
}

// DeclareQueue makes a queue (topic plus its own group) or checks that the
// existing one is equivalent: CodePrecondition with Detail naming the
// difference, CodeLocked if it is exclusive to another connection. While a facade
// gathers, who has not declared the queue before waits until that ends: the name may be
// that of a client which is not back yet.
func (c *Conn) DeclareQueue(ctx context.Context, q QueueSpec) (QueueInfo, error) {
	if !q.Again {
		c.b.gathered(ctx.Done())
	}
	if err := c.begin(); err != nil {
		return QueueInfo{}, err
	}
	defer c.end()
	q.Arguments = slices.Clone(q.Arguments)
	slices.SortFunc(q.Arguments, func(a, b kernel.Argument) int { return strings.Compare(a.Name, b.Name) })
	switch {
	case kernel.IsShare(q.Name):
		return c.declareShare(&q)
	case q.Name == "":
		q.Name = serverName()
	default:
		if err := c.checkQueueName(q.Name); err != nil && !q.Again {
			return QueueInfo{}, err
		}
	}
	if err := c.allow(kernel.Configure, KindQueue, q.Name); err != nil {
		return QueueInfo{}, err
	}
	if topic, ok := c.tenant.table.Load().Topic(kernel.Plain, q.Name); ok && topic.Queue != nil {
		info, err := c.redeclare(topic, &q)
		if kernel.CodeOf(err) != kernel.CodeNotFound {
			return info, err
		} // else it is going just now
	}
	if err := c.allowDeadLetters(&q); err != nil {
		return QueueInfo{}, err
	}
	defer c.tenant.names.lock(claim{topicLockKey(false, q.Name), true})()
	c.tenant.policies.gate.RLock()
	defer c.tenant.policies.gate.RUnlock()
	topic, ok := c.tenant.table.Load().Topic(kernel.Plain, q.Name)
	var err error
	switch {
	case !ok:
		topic, err = c.newQueue(&q)
	case topic.Queue != nil:
		return c.redeclare(topic, &q)
	default:
		topic, err = c.adoptTopic(topic, &q)
	}
	if err != nil {
		return QueueInfo{}, err
	}
	if q.Exclusive {
		c.own(topic.ID)
	}
	return c.info(q.Name, kernel.QueueAddress(c.tenant.name, q.Name))
}

// serverName makes a name for a queue that got none.
func serverName() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "amq.gen-" + base64.RawURLEncoding.EncodeToString(b[:])
}

// checkQueueName checks the name of a declaration; a reserved one is allowed
// only for what exists.
func (c *Conn) checkQueueName(name string) error {
	if _, ok := c.tenant.table.Load().Topic(kernel.Plain, name); ok {
		return nil
	}
	return kernel.CheckNewName("queue", name)
}

// queue returns what a declaration fixes.
func (c *Conn) queue(q *QueueSpec) *kernel.Queue {
	kq := &kernel.Queue{
		Type: q.Type, Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive, Arguments: q.Arguments,
	}
	if q.Exclusive {
		kq.Owner = c.id
	}
	return kq
}

// ownGroup is the group of a queue of the given type.
func ownGroup(tenant, name string, kind kernel.QueueType) catalog.Group {
	g := catalog.Group{Address: kernel.QueueAddress(tenant, name), Owner: true, FromStart: true}
	if kind == kernel.Quorum {
		g.FailedLimit = quorumFailedLimit
	}
	return g
}

// newQueue makes a queue; the lock of its name is held.
func (c *Conn) newQueue(q *QueueSpec) (*route.Topic, error) {
	kt := &kernel.Topic{
		Name: q.Name, Partitions: 1, Retention: kernel.RetainDay,
		Volatile: !q.Durable || q.Exclusive, Queue: c.queue(q),
	}
	if kt.Volatile {
		kt.Retention = kernel.RetainUsed
	}
	if q.Retention != nil {
		kt.Retention = *q.Retention
	}
	ctx, cancel := c.b.changeContext()
	defer cancel()
	rt, _, err := c.tenant.makeTopic(ctx, kt, ownGroup(c.tenant.name, q.Name, q.Type))
	return rt, err
}

// adoptTopic declares a topic that a publish, a log producer or a subscription
// made: it keeps its records, and gets its own group, from the start, if it has
// none. The lock of its name is held.
func (c *Conn) adoptTopic(topic *route.Topic, q *QueueSpec) (*route.Topic, error) {
	t := c.tenant
	if topic.Internal {
		return nil, t.locked(q.Name)
	}
	provisional := !topic.ExpiresAt.IsZero()
	if !provisional {
		current := &kernel.Queue{Durable: !topic.Volatile, Type: q.Type, AutoDelete: q.AutoDelete, Arguments: q.Arguments}
		if err := t.sameQueue(q, current); err != nil {
			return nil, err
		}
	}
	next := *topic.Topic
	next.Queue, next.ExpiresAt, next.Auto = c.queue(q), time.Time{}, false
	ctx, cancel := c.b.changeContext()
	defer cancel()
	keep := next.Retention
	if topic.Auto {
		keep = kernel.RetainDay
	}
	if q.Retention != nil {
		keep = *q.Retention
	}
	next.Retention = keep
	if err := t.setRetention(ctx, &next); err != nil {
		return nil, err
	}
	// The group first: a topic that is declared without one could not be used.
	own := ownGroup(t.name, q.Name, q.Type)
	if g, ok := t.find(own.Address); !ok {
		if _, err := t.makeGroup(ctx, &next, own); err != nil {
			return nil, err
		}
	} else if err := t.claimGroup(ctx, &next, g, nil); err != nil {
		return nil, err
	}
	if err := t.updateTopic(ctx, &next); err != nil {
		return nil, err
	}
	if topic.Auto {
		t.b.recheck() // its subscribers may not be allowed to read a queue
	}
	rt, _ := t.table.Load().TopicByID(next.ID)
	return rt, nil
}

// claimGroup makes an existing group an owner, declared as kq unless that is
// nil (a queue's own group has its declaration at the topic).
func (t *tenant) claimGroup(ctx context.Context, kt *kernel.Topic, g *group, kq *kernel.Queue) error {
	spec := g.spec
	spec.Owner, spec.Queue = true, kq
	if !kt.Volatile {
		if err := t.b.commit(ctx, catalog.PutGroup{Group: spec}); err != nil {
			return err
		}
	}
	if !g.spec.Owner {
		if err := g.place.SetOwner(ctx, g.id, true); err != nil {
			return err
		}
	}
	if err := t.setLimits(ctx, g, t.b.limitsOf(kt, &spec)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	g.spec = spec
	return nil
}

// redeclare checks a declaration against an existing queue.
func (c *Conn) redeclare(topic *route.Topic, q *QueueSpec) (QueueInfo, error) {
	if err := c.usable(topic); err != nil {
		return QueueInfo{}, err
	}
	if err := c.tenant.sameQueue(q, topic.Queue); err != nil {
		return QueueInfo{}, err
	}
	return c.lookedUp(q.Name, kernel.QueueAddress(c.tenant.name, q.Name))
}

// Queue returns the state of a queue or share address: CodeNotFound, CodeLocked,
// CodeAccessRefused unless the user may do anything with it. While a facade gathers one
// that is missing is looked for again when that ends.
func (c *Conn) Queue(name string) (QueueInfo, error) {
	gathers := c.b.alarms.gathers()
	info, err := c.asked(name)
	if gathers && kernel.CodeOf(err) == kernel.CodeNotFound {
		c.b.gathered(c.stop)
		return c.asked(name)
	}
	return info, err
}

func (c *Conn) asked(name string) (QueueInfo, error) {
	if err := c.allowAny(KindQueue, name); err != nil {
		return QueueInfo{}, err
	}
	addr, err := c.Address(name)
	if err != nil {
		return QueueInfo{}, err
	}
	if _, err := c.topicOf(addr); err != nil {
		return QueueInfo{}, err
	}
	return c.lookedUp(name, addr)
}

// lookedUp is info for a client that declares a queue that is there, or asks
// whether it is: to all but quorum queues that is a use.
func (c *Conn) lookedUp(name string, addr kernel.GroupAddress) (QueueInfo, error) {
	info, err := c.info(name, addr)
	if g, ok := c.tenant.find(addr); ok && err == nil && info.Type != kernel.Quorum {
		g.expiry.touch(c.b)
	}
	return info, err
}

// info returns the state of a group, under the name its client uses.
func (c *Conn) info(name string, addr kernel.GroupAddress) (QueueInfo, error) {
	g, ok := c.tenant.find(addr)
	if !ok {
		return QueueInfo{}, c.tenant.noQueue(name)
	}
	ready, held, members := g.place.Count(g.id)
	return QueueInfo{Name: name, Type: c.tenant.kind(g), Ready: ready, Held: held, Members: members}, nil
}

// declaration returns what a group was declared as, nil without one. t.mu is
// held.
func (t *tenant) declaration(g *group) *kernel.Queue {
	if topic, ok := t.table.Load().TopicByID(g.spec.Topic); ok && g.spec.Address.IsOwn() {
		return topic.Queue
	}
	return g.spec.Queue
}

// kind returns the type that a group was declared with.
func (t *tenant) kind(g *group) kernel.QueueType {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kq := t.declaration(g); kq != nil {
		return kq.Type
	}
	return kernel.Classic
}

// DeleteQueue deletes a queue and returns how many records were ready. A
// missing one counts 0 and is no error. ifUnused and ifEmpty fail with
// CodePrecondition.
func (c *Conn) DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (int64, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	defer c.end()
	t := c.tenant
	addr, err := c.Address(name)
	if err == nil {
		err = c.allow(kernel.Configure, KindQueue, name)
	}
	if err != nil {
		return 0, err
	}
	defer t.lockTopicFor(addr.Kind == kernel.Filter, addr.Topic)()
	g, ok := t.find(addr)
	if !ok {
		return 0, nil
	}
	topic, err := c.topicOf(addr)
	if err != nil {
		return 0, err
	}
	if ifEmpty {
		t.buryQuick(ctx, g)
	}
	ready, held, members := g.place.Count(g.id)
	if ifUnused && members > 0 {
		return 0, kernel.Errorf(kernel.CodePrecondition, "queue", name, "queue '%s' in vhost '%s' in use", name, t.name)
	}
	if ifEmpty {
		if ready+held == 0 {
			err = t.dropEmptyQueue(topic, g)
		}
		if ready+held > 0 || kernel.CodeOf(err) == kernel.CodePrecondition {
			err = kernel.Errorf(kernel.CodePrecondition, "queue", name, "queue '%s' in vhost '%s' not empty", name, t.name)
		}
		return 0, err
	}
	return ready, t.dropQueue(topic, g)
}

// PurgeQueue archives all ready records for the queue's group and returns how
// many; they stay readable until retention.
func (c *Conn) PurgeQueue(ctx context.Context, name string) (int64, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	defer c.end()
	addr, err := c.Address(name)
	if err == nil {
		err = c.allowGroup(addr)
	}
	if err != nil {
		return 0, err
	}
	if _, err := c.topicOf(addr); err != nil {
		return 0, err
	}
	g, ok := c.tenant.find(addr)
	if !ok {
		return 0, c.tenant.noQueue(name)
	}
	cctx, cancel := c.b.changeContext()
	defer cancel()
	return g.place.Purge(cctx, g.id)
}

// Address resolves a queue name or share address to a group address.
func (c *Conn) Address(name string) (kernel.GroupAddress, error) {
	if kernel.IsShare(name) {
		addr, _, err := kernel.ParseShare(c.tenant.name, name)
		return addr, err
	}
	return kernel.QueueAddress(c.tenant.name, name), nil
}

// topicOf returns the topic of an address: CodeNotFound, CodeLocked.
func (c *Conn) topicOf(addr kernel.GroupAddress) (*route.Topic, error) {
	topic, ok := c.tenant.table.Load().Topic(addr.Kind, addr.Topic)
	if !ok {
		return nil, c.tenant.noQueue(addr.Topic)
	}
	return topic, c.usable(topic)
}

// plainTopic returns a queue's topic: CodeNotFound, CodeLocked.
func (c *Conn) plainTopic(name string) (*route.Topic, error) {
	return c.topicOf(kernel.QueueAddress(c.tenant.name, name))
}

// usable returns CodeLocked if a topic is another connection's alone.
func (c *Conn) usable(topic *route.Topic) error {
	if topic.Internal || (topic.Queue != nil && topic.Queue.Exclusive && topic.Queue.Owner != c.id) {
		return c.tenant.locked(topic.Name)
	}
	return nil
}

func (t *tenant) noQueue(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "queue", name, "no queue '%s' in vhost '%s'", name, t.name)
}

func (t *tenant) locked(name string) error {
	return kernel.Errorf(kernel.CodeLocked, "queue", name, "cannot obtain exclusive access to locked queue '%s' in vhost '%s'. "+
		"It could be originally declared on another connection or the exclusive property value does not match that of the original declaration", name, t.name)
}

// hidden is the refusal to read a topic that no subscription may reach.
func (t *tenant) hidden(name string) error {
	return kernel.Errorf(kernel.CodeAccessRefused, "topic", name, "topic '%s' belongs to another connection", name)
}
