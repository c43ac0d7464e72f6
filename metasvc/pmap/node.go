package pmap

import (
	"slices"
	"strings"
)

// most is how many entries a node has at most. A change copies one node per level.
const most = 16

type entry[V any] struct {
	key string
	val V
}

// node is a node of a B-tree: never changed once it is part of a map, and with no
// room to spare in its slices. None is empty; most are at least half full.
type node[V any] struct {
	items []entry[V]
	kids  []*node[V] // nil in a leaf, else one more than items
}

// search returns the place of the first item not below k, and whether it is k's.
func (n *node[V]) search(k string) (int, bool) {
	lo, hi := 0, len(n.items)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := strings.Compare(n.items[mid].key, k); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}

// split is what a put makes of a node: itself, and a right neighbour with the item
// between them if it has become too large.
type split[V any] struct {
	left  *node[V]
	mid   entry[V]
	right *node[V] // nil: left is all
	added bool
}

func (n *node[V]) put(e entry[V]) split[V] {
	i, found := n.search(e.key)
	if found {
		c := &node[V]{slices.Clone(n.items), n.kids}
		c.items[i] = e
		return split[V]{left: c}
	}
	if n.kids == nil {
		c := &node[V]{items: inserted(n.items, i, e)}
		return c.halve(i, true)
	}
	s := n.kids[i].put(e)
	if s.right == nil {
		c := &node[V]{n.items, slices.Clone(n.kids)}
		c.kids[i] = s.left
		return split[V]{left: c, added: s.added}
	}
	c := &node[V]{inserted(n.items, i, s.mid), inserted(n.kids, i+1, s.right)}
	c.kids[i] = s.left
	return c.halve(i, s.added)
}

// halve splits a new node that is too large; its last change was at place i. Keys
// that come in order leave full nodes behind.
func (n *node[V]) halve(i int, added bool) split[V] {
	if len(n.items) <= most {
		return split[V]{left: n, added: added}
	}
	at := most / 2
	if i == most {
		at = most - 1
	}
	s := split[V]{left: n.part(0, at), mid: n.items[at], right: n.part(at+1, len(n.items)), added: added}
	return s
}

// part copies the items from..to-1 and what lies between and beside them.
func (n *node[V]) part(from, to int) *node[V] {
	c := &node[V]{items: exact(n.items[from:to])}
	if n.kids != nil {
		c.kids = exact(n.kids[from : to+1])
	}
	return c
}

// remove returns the node without k, perhaps empty, and whether it was there.
func (n *node[V]) remove(k string) (*node[V], bool) {
	i, found := n.search(k)
	if n.kids == nil {
		if !found {
			return n, false
		}
		return &node[V]{items: without(n.items, i)}, true
	}
	c := &node[V]{n.items, slices.Clone(n.kids)}
	if found {
		var last entry[V]
		c.items = slices.Clone(n.items)
		c.kids[i], last = n.kids[i].removeLast()
		c.items[i] = last
	} else if c.kids[i], found = n.kids[i].remove(k); !found {
		return n, false
	}
	c.mend(i)
	return c, true
}

// removeLast returns the node without its last entry.
func (n *node[V]) removeLast() (*node[V], entry[V]) {
	last := len(n.items) - 1
	if n.kids == nil {
		return &node[V]{items: without(n.items, last)}, n.items[last]
	}
	c := &node[V]{n.items, slices.Clone(n.kids)}
	var e entry[V]
	c.kids[last+1], e = n.kids[last+1].removeLast()
	c.mend(last + 1)
	return c, e
}

// mend joins child i of a new node with a neighbour if it has become small, or
// divides what both have anew.
func (n *node[V]) mend(i int) {
	if len(n.kids[i].items) >= most/2 {
		return
	}
	if i == len(n.items) {
		i--
	}
	l, r := n.kids[i], n.kids[i+1]
	both := &node[V]{items: slices.Concat(l.items, []entry[V]{n.items[i]}, r.items)}
	if l.kids != nil {
		both.kids = slices.Concat(l.kids, r.kids)
	}
	if len(both.items) <= most {
		n.items, n.kids = without(n.items, i), without(n.kids, i+1)
		n.kids[i] = both
		return
	}
	at := len(both.items) / 2
	n.items = slices.Clone(n.items)
	n.items[i] = both.items[at]
	n.kids[i], n.kids[i+1] = both.part(0, at), both.part(at+1, len(both.items))
}

// walk calls fn for the entries from a key on until it returns false, and then does
// so itself.
func (n *node[V]) walk(from string, fn func(e *entry[V]) bool) bool {
	i, found := n.search(from)
	if n.kids != nil && !found && !n.kids[i].walk(from, fn) {
		return false
	}
	for ; i < len(n.items); i++ {
		if !fn(&n.items[i]) || n.kids != nil && !n.kids[i+1].walk("", fn) {
			return false
		}
	}
	return true
}

func exact[T any](s []T) []T { return append(make([]T, 0, len(s)), s...) }

func inserted[T any](s []T, i int, v T) []T {
	c := append(make([]T, 0, len(s)+1), s[:i]...)
	return append(append(c, v), s[i:]...)
}

func without[T any](s []T, i int) []T {
	return append(append(make([]T, 0, len(s)-1), s[:i]...), s[i+1:]...)
}
