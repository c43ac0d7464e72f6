package kernel

import (
	"cmp"
	"slices"
)

// Ordered is a set that lists what is in it in the order in which that came, so that what
// is done for all of it is done in that order. The zero value is empty. It is not safe for
// concurrent use.
type Ordered[T any] struct {
	at   map[*T]uint64 // the number of each
	last uint64
}

// Add puts something into the set, behind all that is there.
func (o *Ordered[T]) Add(t *T) {
	if o.at == nil {
		o.at = make(map[*T]uint64)
	}
	o.last++
	o.at[t] = o.last
}

// Remove takes something out of the set, if it is there.
func (o *Ordered[T]) Remove(t *T) { delete(o.at, t) }

// Len returns how much is in the set.
func (o *Ordered[T]) Len() int { return len(o.at) }

// Has reports whether is is true of anything in the set.
func (o *Ordered[T]) Has(is func(t *T) bool) bool {
	for t := range o.at {
		if is(t) {
			return true
		}
	}
	return false
}

// List returns what is in the set. The slice is the caller's.
func (o *Ordered[T]) List() []*T {
	list := make([]*T, 0, len(o.at))
	for t := range o.at {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *T) int { return cmp.Compare(o.at[a], o.at[b]) })
	return list
}
