package broker

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/route"
)

// The kinds of resource that permissions know.
const (
	KindExchange = "exchange"
	KindQueue    = "queue"
	KindTopic    = "topic"
	KindGroup    = "group"
)

// held are the rights of a connection's user as of a directory.
type held struct {
	dir    *auth.Directory
	rights *auth.Rights // nil: he has no access any more
}

// rights returns what the connection's user may do now.
func (c *Conn) rights() *auth.Rights {
	d := c.b.directory()
	if h := c.held.Load(); h != nil && h.dir == d {
		return h.rights
	}
	h := &held{dir: d, rights: d.Rights(c.identity.User, c.tenant.name, c.about.ClientID)}
	if c.operator {
		h.rights = d.AllRights()
	}
	c.held.Store(h)
	return h.rights
}

// May reports whether the connection's user may do something to a resource, for
// listings and answers that must not tell what there is; the other methods check
// by themselves. kind is KindExchange, KindQueue (share addresses too), KindTopic or
// KindGroup.
func (c *Conn) May(act kernel.Act, kind, name string) bool {
	return c.rights().May(act, c.resource(kind, name))
}

// MayAny reports whether the user may do anything at all to a resource.
func (c *Conn) MayAny(kind, name string) bool {
	r, resource := c.rights(), c.resource(kind, name)
	return r.May(kernel.Configure, resource) || r.May(kernel.Write, resource) || r.May(kernel.Read, resource)
}

// Acts returns what the connection's user may do to a resource, see May.
func (c *Conn) Acts(kind, name string) (acts kernel.Acts) {
	r, resource := c.rights(), c.resource(kind, name)
	for _, a := range []kernel.Act{kernel.Configure, kernel.Write, kernel.Read} {
		if r.May(a, resource) {
			acts = acts.With(a)
		}
	}
	return acts
}

// HasTag reports whether the connection's user has a tag.
func (c *Conn) HasTag(tag string) bool {
	u, ok := c.b.directory().User(c.identity.User)
	return ok && u.HasTag(tag)
}

// resource is the name under which permissions know something.
func (c *Conn) resource(kind, name string) string {
	switch {
	case kind == KindExchange && name == kernel.ExchangeDefault:
		return kernel.DefaultExchangeResource
	case kind == KindQueue && kernel.IsShare(name):
		if addr, _, err := kernel.ParseShare(c.tenant.name, name); err == nil {
			return groupResource(addr)
		}
	}
	return name
}

// groupResource is the name that a share group is declared under.
func groupResource(addr kernel.GroupAddress) string {
	if addr.IsOwn() {
		return addr.Topic
	}
	return addr.String()
}

// allow returns CodeAccessRefused unless the user may do that. Reply queues need no right:
// they are their connection's alone.
func (c *Conn) allow(act kernel.Act, kind, name string) error {
	if c.May(act, kind, name) || kind == KindQueue && kernel.IsReply(name) {
		return nil
	}
	if kind == KindExchange && name == kernel.ExchangeDefault {
		name = kernel.DefaultExchangeResource
	}
	return kernel.Errorf(kernel.CodeAccessRefused, kind, name, "access to %s '%s' in vhost '%s' refused for user '%s'",
		kind, name, c.tenant.name, c.identity.User)
}

// allowAny is allow for declarations that only look whether something is there.
func (c *Conn) allowAny(kind, name string) error {
	if c.MayAny(kind, name) {
		return nil
	}
	return c.allow(kernel.Configure, kind, name)
}

// allowKey checks a key against the topic permission at an exchange.
func (c *Conn) allowKey(act kernel.Act, exchange, key string) error {
	if c.rights().MayKey(act, exchange, key) {
		return nil
	}
	return kernel.Errorf(kernel.CodeAccessRefused, KindTopic, key, "access to topic '%s' in exchange '%s' in vhost '%s' refused for user '%s'",
		key, exchange, c.tenant.name, c.identity.User)
}

// allowKeys checks keys of a publish to an exchange: at a topic exchange they
// need the topic permission.
func (c *Conn) allowKeys(table *route.Table, exchange string, keys ...string) error {
	if x, _, ok := table.Exchange(exchange); !ok || x.Type != kernel.Topics {
		return nil
	}
	for _, key := range keys {
		if err := c.allowKey(kernel.Write, exchange, key); err != nil {
			return err
		}
	}
	return nil
}

// allowName checks a publish under a name with levels: it is one to
// ExchangeTopic.
func (c *Conn) allowName(name string) error {
	if err := c.allow(kernel.Write, KindExchange, kernel.ExchangeTopic); err != nil {
		return err
	}
	return c.allowKey(kernel.Write, kernel.ExchangeTopic, kernel.KeyOfName(name))
}

// allowGroup checks that the user may read a share group: by the name it has as
// a queue. One that is not a queue's own reads what others put into its topic,
// so he needs what a subscription to that topic would.
func (c *Conn) allowGroup(addr kernel.GroupAddress) error {
	if err := c.allow(kernel.Read, KindQueue, groupResource(addr)); err != nil || addr.IsOwn() {
		return err
	}
	return c.allowTopic(addr.Kind, addr.Topic)
}

// allowTopic checks that the user may read what is published under a name or
// filter: a topic that no subscription made as such, any other as far as the
// topic permission at ExchangeTopic goes.
func (c *Conn) allowTopic(kind kernel.TopicKind, name string) error {
	if kind == kernel.Plain {
		if topic, ok := c.tenant.table.Load().Topic(kind, name); ok && !topic.Auto {
			return c.allow(kernel.Read, KindTopic, name)
		}
	}
	return c.allowKey(kernel.Read, kernel.ExchangeTopic, filterKey(name))
}

// filterKey is the routing key, or pattern of keys, that a filter means at
// ExchangeTopic.
func filterKey(filter string) string {
	return strings.ReplaceAll(kernel.KeyOfName(filter), "+", "*")
}

// allowSubscription checks that the user may have a subscription of a session.
func (c *Conn) allowSubscription(sub *subscription) error {
	if sub.share {
		return c.allowGroup(sub.addr)
	}
	if err := c.allow(kernel.Read, KindExchange, kernel.ExchangeTopic); err != nil {
		return err
	}
	if err := c.allowKey(kernel.Read, kernel.ExchangeTopic, filterKey(sub.Filter)); err != nil {
		return err
	}
	return c.allowTopic(sub.addr.Kind, sub.addr.Topic)
}

// mayReach reports whether a publish under a name may go into the topic of
// exactly that name.
func (c *Conn) mayReach(topic *route.Topic) bool {
	return topic.Auto || c.May(kernel.Write, KindTopic, topic.Name)
}

// argDeadLetter is the argument that names the exchange of dead letters.
const argDeadLetter = "x-dead-letter-exchange"

// allowDeadLetters checks that the user could himself take records out of a new
// queue and put them where its dead letters go.
func (c *Conn) allowDeadLetters(q *QueueSpec) error {
	for _, a := range q.Arguments {
		name, ok := a.Value.(string)
		if a.Name != argDeadLetter || !ok {
			continue
		}
		if err := c.allow(kernel.Read, KindQueue, q.Name); err != nil {
			return err
		}
		return c.allow(kernel.Write, KindExchange, name)
	}
	return nil
}
