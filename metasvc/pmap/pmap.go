// Package pmap is a persistent (path-copied) ordered map with string keys.
//
// Put and Delete return a new map that shares all but the changed path with
// the old one, so a snapshot costs nothing and a change O(length of the key),
// however many entries there are. Any number of goroutines may read a map.
package pmap

import iradix "github.com/hashicorp/go-immutable-radix"

// Map is an immutable map; the zero value is empty. Copying it is cheap.
type Map[V any] struct{ t *iradix.Tree }

// Len returns the number of entries.
func (m Map[V]) Len() int {
	if m.t == nil {
		return 0
	}
	return m.t.Len()
}

// Get returns the value of key k.
func (m Map[V]) Get(k string) (V, bool) {
	if m.t != nil {
		if v, ok := m.t.Get([]byte(k)); ok {
			return v.(V), true
		}
	}
	var zero V
	return zero, false
}

// Has reports whether there is an entry with key k.
func (m Map[V]) Has(k string) bool {
	_, ok := m.Get(k)
	return ok
}

// Put returns the map with k set to v.
func (m Map[V]) Put(k string, v V) Map[V] {
	t := m.t
	if t == nil {
		t = iradix.New()
	}
	t, _, _ = t.Insert([]byte(k), v)
	return Map[V]{t}
}

// Delete returns the map without k.
func (m Map[V]) Delete(k string) Map[V] {
	if m.t == nil {
		return m
	}
	t, _, ok := m.t.Delete([]byte(k))
	if !ok {
		return m
	}
	if t.Len() == 0 {
		return Map[V]{}
	}
	return Map[V]{t}
}

// DeletePrefix returns the map without the entries whose key begins with p.
func (m Map[V]) DeletePrefix(p string) Map[V] {
	if m.t == nil {
		return m
	}
	t, ok := m.t.DeletePrefix([]byte(p))
	if !ok {
		return m
	}
	if t.Len() == 0 {
		return Map[V]{}
	}
	return Map[V]{t}
}

// Walk calls fn for the entries whose key begins with prefix, in order, until
// fn returns false.
func (m Map[V]) Walk(prefix string, fn func(k string, v V) bool) {
	if m.t == nil {
		return
	}
	m.t.Root().WalkPrefix([]byte(prefix), func(k []byte, v any) bool {
		return !fn(string(k), v.(V))
	})
}

// Each calls fn for all values in the order of their keys. It does not copy
// the keys.
func (m Map[V]) Each(fn func(v V)) {
	if m.t == nil {
		return
	}
	m.t.Root().Walk(func(_ []byte, v any) bool {
		fn(v.(V))
		return false
	})
}

// HasPrefix reports whether any key begins with prefix.
func (m Map[V]) HasPrefix(prefix string) bool {
	found := false
	m.Walk(prefix, func(string, V) bool { found = true; return false })
	return found
}
