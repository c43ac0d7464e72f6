// Package catalog is the pure state of the replicated metadata: which
// exchanges, bindings, topics and share groups exist. It does no I/O.
//
// A State is an immutable snapshot. Commands turn one State into the next;
// they are idempotent, so that one whose outcome was unknown may be repeated.
// docs/formats/catalog.md describes their encoding.
package catalog

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
	"github.com/trivium-mq/trivium/metasvc/pmap"
)

// Group is one share group.
type Group struct {
	Address   kernel.GroupAddress
	Topic     kernel.TopicID
	Owner     bool // holds back deletion of what it has not settled
	FromStart bool // began at the first record instead of at the end
	// Start is that of placement.GroupSpec.
	Start kernel.Position
	Auto  bool // made by a subscription: goes with the last one
	// FailedLimit and AcquiredLimit are those of placement.GroupSpec.
	FailedLimit   int
	AcquiredLimit int
	// Queue is set when the group was declared as a queue under its share
	// address. A queue's own group has its declaration at the topic.
	Queue *kernel.Queue
}

// Binding is a durable binding of a tenant.
type Binding struct {
	Tenant string
	kernel.Binding
}

// State is the metadata as of one applied command. Safe for concurrent use;
// nothing in it may be changed.
type State struct {
	revision  uint64
	producers int64 // next producer id
	exchanges pmap.Map[*kernel.Exchange]
	topics    pmap.Map[*kernel.Topic] // by id
	names     pmap.Map[*kernel.Topic] // by tenant, kind, name
	groups    pmap.Map[*Group]        // by topic id, group name
	bindings  pmap.Map[*Binding]      // by tenant, target, exchange, ...
	sources   pmap.Map[*Binding]      // by tenant, exchange, target, ...

	tenants          pmap.Map[*kernel.Tenant]
	users            pmap.Map[*kernel.User]
	permissions      pmap.Map[*kernel.Permission]      // by tenant, user
	topicPermissions pmap.Map[*kernel.TopicPermission] // by tenant, user, exchange

	policies pmap.Map[*kernel.Policy] // by tenant, sort, name

	nodes   pmap.Map[*Node]        // by id
	removed pmap.Map[*RemovedNode] // by Raft name
}

// Revision counts the commands that changed the state.
func (s *State) Revision() uint64 { return s.revision }

// Exchange returns a durable, not predeclared exchange.
func (s *State) Exchange(tenant, name string) (*kernel.Exchange, bool) {
	return s.exchanges.Get(join(tenant, name))
}

// Topic returns a topic by name.
func (s *State) Topic(tenant string, kind kernel.TopicKind, name string) (*kernel.Topic, bool) {
	return s.names.Get(topicKey(tenant, kind, name))
}

// TopicByID returns a topic by UUID.
func (s *State) TopicByID(id kernel.TopicID) (*kernel.Topic, bool) {
	return s.topics.Get(string(id[:]))
}

// Group returns a share group of a topic.
func (s *State) Group(topic kernel.TopicID, group string) (*Group, bool) {
	return s.groups.Get(groupKey(topic, group))
}

// Exchanges calls fn for every durable exchange, by tenant and name.
func (s *State) Exchanges(fn func(*kernel.Exchange)) { s.exchanges.Each(fn) }

// Topics calls fn for every topic, by UUID.
func (s *State) Topics(fn func(*kernel.Topic)) { s.topics.Each(fn) }

// Groups calls fn for every share group, by topic UUID and name.
func (s *State) Groups(fn func(*Group)) { s.groups.Each(fn) }

// Bindings calls fn for every binding, by tenant and target.
func (s *State) Bindings(fn func(*Binding)) { s.bindings.Each(fn) }

// Predeclared reports whether an exchange of that name is always there.
func Predeclared(exchange string) bool {
	return exchange == kernel.ExchangeDefault || strings.HasPrefix(exchange, "amq.")
}

// The keys. Names contain no NUL, which kernel.CheckName sees to.

func join(parts ...string) string { return strings.Join(parts, "\x00") }

func topicKey(tenant string, kind kernel.TopicKind, name string) string {
	return join(tenant, string('0'+rune(kind)), name)
}

func groupKey(topic kernel.TopicID, group string) string { return string(topic[:]) + group }

// exchangeMark tells exchanges from queues among the targets of bindings: no
// name has a NUL.
const exchangeMark = "\x00"

func target(b *Binding) string {
	if b.ToExchange {
		return exchangeMark + b.Queue
	}
	return b.Queue
}

// bindingKey ends in the parts that may contain any byte.
func bindingKey(b *Binding, first, second string) string {
	tail := codec.AppendArguments(codec.AppendString(nil, b.Key), b.Arguments)
	return join(b.Tenant, first, second, string(tail))
}
