package route

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/pmap"
)

// edge is a binding in the table, with what its exchange's type looks up.
// Immutable.
type edge struct {
	kernel.Binding
	match  *pattern // headers
	seed   uint64   // consistent hash
	weight uint32
}

func newEdge(kind kernel.ExchangeType, b kernel.Binding) *edge {
	e := &edge{Binding: b}
	switch kind {
	case kernel.Headers:
		e.match, _ = newPattern(b.Arguments) // checked by CheckBinding
	case kernel.ConsistentHash:
		n, _ := weightOf(b.Key)
		e.seed, e.weight = hashText(target(&b)), uint32(n)
	}
	return e
}

// bucket is the bindings that match together, by bindingID.
type bucket = pmap.Map[*edge]

// exchange is an immutable exchange with its bindings, kept in the one of
// three shapes that its type looks up.
type exchange struct {
	kernel.Exchange
	alternate string // where to go when no binding matches, "" = nowhere
	count     int
	all       bucket           // of types that look at all bindings
	keys      pmap.Map[bucket] // direct, by key
	topics    trie[*edge]      // topic, by pattern
	picks     *picks           // of dynamic types; made anew with every change of the bindings
}

// dynamic reports whether a type chooses by more than the key, so that the
// choice cannot be remembered.
func dynamic(kind kernel.ExchangeType) bool {
	switch kind {
	case kernel.Headers, kernel.ConsistentHash, kernel.ModulusHash, kernel.Random, kernel.LocalRandom:
		return true
	}
	return false
}

func (e *exchange) bind(b *edge) *exchange {
	c, id := *e, bindingID(&b.Binding)
	c.count++
	switch e.Type {
	case kernel.Topics:
		c.topics = c.topics.put(&keyGrammar, b.Key, id, b)
	case kernel.Direct:
		same, _ := c.keys.Get(b.Key)
		c.keys = c.keys.Put(b.Key, same.Put(id, b))
	default:
		c.all = c.all.Put(id, b)
		c.picks = &picks{}
	}
	return &c
}

func (e *exchange) unbind(b *kernel.Binding) *exchange {
	c, id := *e, bindingID(b)
	c.count--
	switch e.Type {
	case kernel.Topics:
		c.topics = c.topics.delete(&keyGrammar, b.Key, id)
	case kernel.Direct:
		same, _ := c.keys.Get(b.Key)
		if same = same.Delete(id); same.Len() == 0 {
			c.keys = c.keys.Delete(b.Key)
		} else {
			c.keys = c.keys.Put(b.Key, same)
		}
	default:
		c.all = c.all.Delete(id)
		c.picks = &picks{}
	}
	return &c
}

// match calls fn for every binding that a message matches. It returns false if
// it has to know more of the message than its key and does not.
func (e *exchange) match(msg *Message, fn func(*edge)) (known bool) {
	switch e.Type {
	case kernel.Fanout:
		e.all.Each(fn)
	case kernel.Topics:
		for i := range msg.keys() {
			e.topics.match(&keyGrammar, msg.key(i), fn)
		}
	case kernel.Direct:
		for i := range msg.keys() {
			same, _ := e.keys.Get(msg.key(i))
			same.Each(fn)
		}
	default:
		if msg.Record == nil {
			return false
		}
		e.pick(msg, fn)
	}
	return true
}

// each calls fn for every binding.
func (e *exchange) each(fn func(*edge)) {
	e.all.Each(fn)
	e.keys.Each(func(same bucket) { same.Each(fn) })
	if e.topics.root != nil {
		e.topics.root.each(fn)
	}
}

// each calls fn for every value at or below the node.
func (n *node[V]) each(fn func(V)) {
	n.values.Each(fn)
	n.words.Each(func(c *node[V]) { c.each(fn) })
	if n.one != nil {
		n.one.each(fn)
	}
	if n.rest != nil {
		n.rest.each(fn)
	}
}
