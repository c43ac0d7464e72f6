package broker

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/route"
)

// The kinds of resource that permissions know.
const (
	Exchanges = "exchange"
	Queues    = "queue"
	TopicKind = "topic"
	Groups    = "group"
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
	c.held.Store(h)
	return h.rights
}

// May reports whether the connection's user may do something to a resource, for
// listings and answers that must not tell what there is; the other methods check
// by themselves. kind is Exchanges, Queues (share addresses too), TopicKind or
// Groups.
func (c *Conn) May(act kernel.Act, kind, name string) bool {
	return c.rights().May(act, c.resource(kind, name))
}

// MayAny reports whether the user may do anything at all to a resource.
func (c *Conn) MayAny(kind, name string) bool {
	r, resource := c.rights(), c.resource(kind, name)
	return r.May(kernel.Configure, resource) || r.May(kernel.Write, resource) || r.May(kernel.Read, resource)
}

// HasTag reports whether the connection's user has a tag.
func (c *Conn) HasTag(tag string) bool {
	u, ok := c.b.directory().User(c.identity.User)
	return ok && u.HasTag(tag)
}

// resource is the name under which permissions know something.
func (c *Conn) resource(kind, name string) string {
	switch {
	case kind == Exchanges && name == kernel.ExchangeDefault:
		return kernel.DefaultExchangeResource
	case kind == Queues && kernel.IsShare(name):
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

// allow returns CodeAccessRefused unless the user may do that.
func (c *Conn) allow(act kernel.Act, kind, name string) error {
	if c.May(act, kind, name) {
		return nil
	}
	return kernel.Errorf(kernel.CodeAccessRefused, kind, name, "%s access to %s '%s' in vhost '%s' refused for user '%s'",
		act, kind, name, c.tenant.name, c.identity.User)
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
	return kernel.Errorf(kernel.CodeAccessRefused, TopicKind, key, "%s access to topic '%s' in exchange '%s' in vhost '%s' refused for user '%s'",
		act, key, exchange, c.tenant.name, c.identity.User)
}

// allowBinding checks what a binding's two ends ask for: write at the
// destination, read at the source, and at a topic exchange read on the key.
func (c *Conn) allowBinding(source, kind, destination, key string) error {
	if err := c.allow(kernel.Write, kind, destination); err != nil {
		return err
	}
	if err := c.allow(kernel.Read, Exchanges, source); err != nil {
		return err
	}
	if x, _, ok := c.tenant.table.Load().Exchange(source); ok && x.Type == kernel.Topics {
		return c.allowKey(kernel.Read, source, key)
	}
	return nil
}

// allowPublish checks a publish to an exchange, whether it exists or not.
func (c *Conn) allowPublish(table *route.Table, exchange, key string) error {
	if err := c.allow(kernel.Write, Exchanges, exchange); err != nil {
		return err
	}
	if x, _, ok := table.Exchange(exchange); ok && x.Type == kernel.Topics {
		return c.allowKey(kernel.Write, exchange, key)
	}
	return nil
}

// allowName checks a publish under a name with levels: it is one to
// ExchangeTopic.
func (c *Conn) allowName(name string) error {
	if err := c.allow(kernel.Write, Exchanges, kernel.ExchangeTopic); err != nil {
		return err
	}
	return c.allowKey(kernel.Write, kernel.ExchangeTopic, kernel.KeyOfName(name))
}

// allowGroup checks that the user may read a share group: by the name it has as
// a queue. One that is not a queue's own reads what others put into its topic,
// so he needs what a subscription to that topic would.
func (c *Conn) allowGroup(addr kernel.GroupAddress) error {
	if err := c.allow(kernel.Read, Queues, groupResource(addr)); err != nil || addr.IsOwn() {
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
			return c.allow(kernel.Read, TopicKind, name)
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
	if err := c.allow(kernel.Read, Exchanges, kernel.ExchangeTopic); err != nil {
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
	return topic.Auto || c.May(kernel.Write, TopicKind, topic.Name)
}
