package route

import (
	"strings"

	"github.com/trivium-mq/trivium/metasvc/pmap"
)

// grammar says how patterns and names are written. In both, the wildcard one
// stands for exactly one word and rest for any number, none included; an empty
// word counts; the empty name has no words.
type grammar struct {
	sep       byte
	one, rest string
	hidden    byte // a name beginning with it does not match a pattern that begins with a wildcard; 0 = none
}

var (
	keyGrammar    = grammar{sep: '.', one: "*", rest: "#"}
	filterGrammar = grammar{sep: '/', one: "+", rest: "#", hidden: '$'}
)

// trie is a persistent set of values by pattern. The zero value is empty.
type trie[V any] struct{ root *node[V] }

type node[V any] struct {
	words  pmap.Map[*node[V]]
	one    *node[V]
	rest   *node[V]
	isRest bool // it is the rest child of its parent
	values pmap.Map[V]
}

func (n *node[V]) empty() bool {
	return n.values.Len() == 0 && n.words.Len() == 0 && n.one == nil && n.rest == nil
}

// put returns the trie with value v under (pattern, id).
func (t trie[V]) put(g *grammar, pattern, id string, v V) trie[V] {
	return t.change(g, pattern, func(m pmap.Map[V]) pmap.Map[V] { return m.Put(id, v) })
}

// delete returns the trie without the value under (pattern, id).
func (t trie[V]) delete(g *grammar, pattern, id string) trie[V] {
	return t.change(g, pattern, func(m pmap.Map[V]) pmap.Map[V] { return m.Delete(id) })
}

func (t trie[V]) change(g *grammar, pattern string, fn func(pmap.Map[V]) pmap.Map[V]) trie[V] {
	n := changeNode(t.root, g, pattern, pattern != "", false, fn)
	if n.empty() {
		n = nil
	}
	return trie[V]{n}
}

// changeNode returns a copy of n with fn applied to the values at the end of
// the path rest. more says whether there is a word to go.
func changeNode[V any](n *node[V], g *grammar, path string, more, isRest bool, fn func(pmap.Map[V]) pmap.Map[V]) *node[V] {
	c := &node[V]{isRest: isRest}
	if n != nil {
		*c = *n
	}
	if !more {
		c.values = fn(c.values)
		return c
	}
	word, path, more := cut(path, g.sep)
	switch word {
	case g.one:
		c.one = pruned(changeNode(c.one, g, path, more, false, fn))
	case g.rest:
		c.rest = pruned(changeNode(c.rest, g, path, more, true, fn))
	default:
		old, _ := c.words.Get(word)
		if child := pruned(changeNode(old, g, path, more, false, fn)); child != nil {
			c.words = c.words.Put(word, child)
		} else {
			c.words = c.words.Delete(word)
		}
	}
	return c
}

func pruned[V any](n *node[V]) *node[V] {
	if n.empty() {
		return nil
	}
	return n
}

func cut(s string, sep byte) (word, rest string, more bool) {
	if i := strings.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// exact returns the values under a pattern.
func (t trie[V]) exact(g *grammar, pattern string) pmap.Map[V] {
	n, more := t.root, pattern != ""
	for n != nil && more {
		var word string
		word, pattern, more = cut(pattern, g.sep)
		switch word {
		case g.one:
			n = n.one
		case g.rest:
			n = n.rest
		default:
			n, _ = n.words.Get(word)
		}
	}
	if n == nil {
		return pmap.Map[V]{}
	}
	return n.values
}

// match calls fn for every value whose pattern matches name, once per value.
// It walks all patterns word by word at once, so that a pattern of many "#"
// costs no more than its length times that of the name.
func (t trie[V]) match(g *grammar, name string, fn func(V)) {
	if t.root == nil {
		return
	}
	hidden := g.hidden != 0 && name != "" && name[0] == g.hidden
	now, next := &frontier[V]{}, &frontier[V]{}
	if hidden {
		now.nodes = append(now.nodes, t.root)
	} else {
		now.add(t.root)
	}
	for more := name != ""; more && len(now.nodes) > 0; hidden = false {
		var word string
		word, name, more = cut(name, g.sep)
		for _, n := range now.nodes {
			if child, ok := n.words.Get(word); ok {
				next.add(child)
			}
			if n.one != nil && !hidden {
				next.add(n.one)
			}
			if n.isRest {
				next.add(n)
			}
		}
		now, next = next, now
		next.reset()
	}
	for _, n := range now.nodes {
		n.values.Each(fn)
	}
}

// frontier is the set of nodes reached so far.
type frontier[V any] struct {
	nodes []*node[V]
	seen  map[*node[V]]struct{} // used beyond manyNodes
}

const manyNodes = 16

// add adds n and what it reaches without a word.
func (f *frontier[V]) add(n *node[V]) {
	for ; n != nil; n = n.rest {
		if !f.insert(n) {
			return
		}
	}
}

func (f *frontier[V]) insert(n *node[V]) bool {
	if len(f.nodes) < manyNodes {
		for _, o := range f.nodes {
			if o == n {
				return false
			}
		}
		f.nodes = append(f.nodes, n)
		return true
	}
	if f.seen == nil {
		f.seen = make(map[*node[V]]struct{}, 4*manyNodes)
	}
	if len(f.seen) == 0 {
		for _, o := range f.nodes {
			f.seen[o] = struct{}{}
		}
	}
	if _, ok := f.seen[n]; ok {
		return false
	}
	f.seen[n] = struct{}{}
	f.nodes = append(f.nodes, n)
	return true
}

func (f *frontier[V]) reset() {
	f.nodes = f.nodes[:0]
	clear(f.seen)
}
