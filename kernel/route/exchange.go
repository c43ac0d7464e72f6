package route

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/pmap"
)

// bucket is the bindings that match together, by bindingID.
type bucket = pmap.Map[*kernel.Binding]

// exchange is an immutable exchange with its bindings, kept in the one of
// three shapes that its type looks up.
type exchange struct {
	kernel.Exchange
	count  int
	all    bucket                // fanout
	keys   pmap.Map[bucket]      // direct, by key
	topics trie[*kernel.Binding] // topic, by pattern
}

func (e *exchange) bind(b *kernel.Binding) *exchange {
	c, id := *e, bindingID(b)
	c.count++
	switch e.Type {
	case kernel.Fanout:
		c.all = c.all.Put(id, b)
	case kernel.Topics:
		c.topics = c.topics.put(&keyGrammar, b.Key, id, b)
	default:
		same, _ := c.keys.Get(b.Key)
		c.keys = c.keys.Put(b.Key, same.Put(id, b))
	}
	return &c
}

func (e *exchange) unbind(b *kernel.Binding) *exchange {
	c, id := *e, bindingID(b)
	c.count--
	switch e.Type {
	case kernel.Fanout:
		c.all = c.all.Delete(id)
	case kernel.Topics:
		c.topics = c.topics.delete(&keyGrammar, b.Key, id)
	default:
		same, _ := c.keys.Get(b.Key)
		if same = same.Delete(id); same.Len() == 0 {
			c.keys = c.keys.Delete(b.Key)
		} else {
			c.keys = c.keys.Put(b.Key, same)
		}
	}
	return &c
}

// match calls fn for every binding that a key matches.
func (e *exchange) match(key string, fn func(*kernel.Binding)) {
	switch e.Type {
	case kernel.Fanout:
		e.all.Each(fn)
	case kernel.Topics:
		e.topics.match(&keyGrammar, key, fn)
	default:
		same, _ := e.keys.Get(key)
		same.Each(fn)
	}
}

// each calls fn for every binding.
func (e *exchange) each(fn func(*kernel.Binding)) {
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
