// Package route is the routing table of a tenant: which topics and session-less
// subscribers a publish reaches. It is pure.
//
// A Table is an immutable snapshot; every change returns a new one that shares
// all but the changed paths, so a change costs the same with ten as with ten
// thousand queues. Lookups allocate; callers remember what they looked up for
// as long as the table stays the same.
package route

import (
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
	"github.com/trivium-mq/trivium/metasvc/pmap"
)

// Topic is a topic that publishes can reach. Immutable.
type Topic struct {
	*kernel.Topic
	// Parts numbers the topic's partitions within its placement group, by index.
	Parts []uint64
	// Subscribed says that a subscription reads the topic, so that publishes to
	// the exchange ExchangeTopic reach it by its name.
	Subscribed bool
}

// Table is the routing table of one tenant. The methods that change it return
// the changed table. Make one with New.
type Table struct {
	tenant    string
	exchanges pmap.Map[*exchange]
	topics    pmap.Map[*Topic] // plain, by name
	ids       pmap.Map[*Topic] // by UUID, both kinds
	filters   trie[*Topic]
	live      trie[*Live]
	targets   pmap.Map[*edge] // all bindings, by target, exchange, ...
	bindings  int
}

// New returns the table of a tenant with the predeclared exchanges.
func New(tenant string) *Table {
	t := &Table{tenant: tenant}
	for name, kind := range predeclared {
		t = t.PutExchange(kernel.Exchange{Tenant: tenant, Name: name, Type: kind, Durable: true})
	}
	return t
}

var predeclared = map[string]kernel.ExchangeType{
	kernel.ExchangeDirect: kernel.Direct,
	kernel.ExchangeFanout: kernel.Fanout,
	kernel.ExchangeTopic:  kernel.Topics,

	kernel.ExchangeHeaders: kernel.Headers,
	kernel.ExchangeMatch:   kernel.Headers,
}

// Predeclared reports whether every tenant has that exchange from the start.
func Predeclared(exchange string) bool {
	_, ok := predeclared[exchange]
	return ok || exchange == kernel.ExchangeDefault
}

// PredeclaredType is the type of an exchange that every tenant has from the
// start, but for the default one.
func PredeclaredType(exchange string) (kernel.ExchangeType, bool) {
	kind, ok := predeclared[exchange]
	return kind, ok
}

// Topic returns a topic by name.
func (t *Table) Topic(kind kernel.TopicKind, name string) (*Topic, bool) {
	if kind == kernel.Plain {
		return t.topics.Get(name)
	}
	return t.filters.exact(&filterGrammar, name).Get("")
}

// TopicByID returns a topic by UUID.
func (t *Table) TopicByID(id kernel.TopicID) (*Topic, bool) { return t.ids.Get(string(id[:])) }

// Topics calls fn for the plain topics by name.
func (t *Table) Topics(fn func(*Topic)) { t.topics.Each(fn) }

// AllTopics calls fn for the topics of both kinds by UUID.
func (t *Table) AllTopics(fn func(*Topic)) { t.ids.Each(fn) }

// Len returns how many topics of both kinds there are.
func (t *Table) Len() int { return t.ids.Len() }

// PutTopic adds a topic or replaces the one of the same name.
func (t *Table) PutTopic(topic *Topic) *Table {
	c := *t
	if old, ok := t.Topic(topic.Kind, topic.Name); ok && old.ID != topic.ID {
		c.ids = c.ids.Delete(string(old.ID[:]))
	}
	c.ids = c.ids.Put(string(topic.ID[:]), topic)
	if topic.Kind == kernel.Plain {
		c.topics = c.topics.Put(topic.Name, topic)
	} else {
		c.filters = c.filters.put(&filterGrammar, topic.Name, "", topic)
	}
	return &c
}

// DropTopic removes a topic with its bindings. It returns the exchanges that
// lost a binding.
func (t *Table) DropTopic(id kernel.TopicID) (next *Table, sources []string) {
	topic, ok := t.TopicByID(id)
	if !ok {
		return t, nil
	}
	c := *t
	next = &c
	c.ids = c.ids.Delete(string(id[:]))
	if topic.Kind == kernel.Filter {
		c.filters = c.filters.delete(&filterGrammar, topic.Name, "")
		return next, nil
	}
	c.topics = c.topics.Delete(topic.Name)
	return next.UnbindAll(topic.Name)
}

// UnbindAll removes all bindings to a queue. It returns the exchanges that lost
// one.
func (t *Table) UnbindAll(queue string) (next *Table, sources []string) {
	return t.unbindAll(t.BindingsOf(queue))
}

func (t *Table) unbindAll(list []kernel.Binding) (next *Table, sources []string) {
	next = t
	for _, b := range list {
		var ok bool
		if next, ok = next.Unbind(b); ok && (len(sources) == 0 || sources[len(sources)-1] != b.Exchange) {
			sources = append(sources, b.Exchange)
		}
	}
	return next, sources
}

// PutExchange adds an exchange; bindings of an existing one of the same type
// stay.
func (t *Table) PutExchange(x kernel.Exchange) *Table {
	c, e := *t, &exchange{}
	if old, ok := t.exchanges.Get(x.Name); ok {
		*e = *old
	}
	e.Exchange, e.alternate = x, x.Text(kernel.ArgAlternate)
	c.exchanges = c.exchanges.Put(x.Name, e)
	return &c
}

// DropExchange removes an exchange with the bindings from and to it. It
// returns the exchanges that lost a binding to it.
func (t *Table) DropExchange(name string) (next *Table, sources []string) {
	if !t.exchanges.Has(name) {
		return t, nil
	}
	next, sources = t.unbindAll(t.BindingsTo(name))
	e, _ := next.exchanges.Get(name) // it may have been bound to itself
	c := *next
	c.exchanges = c.exchanges.Delete(name)
	e.each(func(b *edge) {
		c.targets = c.targets.Delete(bindingKey(&b.Binding))
		c.bindings--
	})
	return &c, sources
}

// DropUnused removes those of the exchanges that are to go with their last
// binding and have lost it, and those that lose theirs with them. It returns
// what has gone.
func (t *Table) DropUnused(names []string) (next *Table, gone []kernel.Exchange) {
	next = t
	for names = slices.Clone(names); len(names) > 0; names = names[1:] {
		x, bindings, ok := next.Exchange(names[0])
		if !ok || !x.AutoDelete || bindings > 0 {
			continue
		}
		var more []string
		next, more = next.DropExchange(x.Name)
		gone, names = append(gone, x), append(names, more...)
	}
	return next, gone
}

// Exchange returns an exchange and how many bindings it has as a source.
func (t *Table) Exchange(name string) (x kernel.Exchange, bindings int, ok bool) {
	if e, found := t.exchanges.Get(name); found {
		return e.Exchange, e.count, true
	}
	return x, 0, false
}

// ExchangeCount returns how many exchanges there are, but for the default one.
func (t *Table) ExchangeCount() int { return t.exchanges.Len() }

// Exchanges calls fn for the exchanges by name.
func (t *Table) Exchanges(fn func(kernel.Exchange)) {
	t.exchanges.Each(func(e *exchange) { fn(e.Exchange) })
}

// Bind adds a binding. It reports false, and changes nothing, if an equal one
// is there or an end is missing.
func (t *Table) Bind(b kernel.Binding) (*Table, bool) {
	e, ok := t.exchanges.Get(b.Exchange)
	if !ok || !t.HasTarget(&b) || t.HasBinding(b) {
		return t, false
	}
	c, n := *t, newEdge(e.Type, b)
	c.exchanges = c.exchanges.Put(b.Exchange, e.bind(n))
	c.targets = c.targets.Put(bindingKey(&b), n)
	c.bindings++
	return &c, true
}

// HasTarget reports whether what a binding leads to is there.
func (t *Table) HasTarget(b *kernel.Binding) bool {
	if b.ToExchange {
		return t.exchanges.Has(b.Queue)
	}
	return t.topics.Has(b.Queue)
}

// Unbind removes a binding and reports whether it was there.
func (t *Table) Unbind(b kernel.Binding) (*Table, bool) {
	e, ok := t.exchanges.Get(b.Exchange)
	if !ok || !t.HasBinding(b) {
		return t, false
	}
	c := *t
	c.exchanges = c.exchanges.Put(b.Exchange, e.unbind(&b))
	c.targets = c.targets.Delete(bindingKey(&b))
	c.bindings--
	return &c, true
}

// HasBinding reports whether an equal binding is there.
func (t *Table) HasBinding(b kernel.Binding) bool { return t.targets.Has(bindingKey(&b)) }

// Bindings returns how many bindings there are.
func (t *Table) Bindings() int { return t.bindings }

// AllBindings calls fn for the bindings: those to exchanges, then those to
// queues, by target and exchange.
func (t *Table) AllBindings(fn func(kernel.Binding)) {
	t.targets.Each(func(b *edge) { fn(b.Binding) })
}

// BindingsOf returns the bindings to a queue, by exchange.
func (t *Table) BindingsOf(queue string) []kernel.Binding { return t.bindingsOf(queue) }

// BindingsTo returns the bindings to an exchange, by the one they come from.
func (t *Table) BindingsTo(exchange string) []kernel.Binding {
	return t.bindingsOf(exchangeMark + exchange)
}

func (t *Table) bindingsOf(target string) []kernel.Binding {
	var list []kernel.Binding
	t.targets.Walk(target+"\x00", func(_ string, b *edge) bool {
		list = append(list, b.Binding)
		return true
	})
	return list
}

// BindingsFrom returns the bindings from an exchange.
func (t *Table) BindingsFrom(exchange string) []kernel.Binding {
	var list []kernel.Binding
	if e, ok := t.exchanges.Get(exchange); ok {
		e.each(func(b *edge) { list = append(list, b.Binding) })
	}
	return list
}

// exchangeMark tells exchanges from queues among the targets of bindings: no
// name has a NUL.
const exchangeMark = "\x00"

// target names what a binding leads to.
func target(b *kernel.Binding) string {
	if b.ToExchange {
		return exchangeMark + b.Queue
	}
	return b.Queue
}

// bindingKey identifies a binding. The parts that may hold any byte come last.
func bindingKey(b *kernel.Binding) string {
	return strings.Join([]string{target(b), b.Exchange, bindingID(b)}, "\x00")
}

// bindingID identifies a binding among those of one exchange.
func bindingID(b *kernel.Binding) string {
	return target(b) + "\x00" + string(codec.AppendArguments(codec.AppendString(nil, b.Key), b.Arguments))
}
