package placement

import (
	"slices"
	"sync"
)

// dirtyKeys are the keys written since the last checkpoint that has them. When
// they are too many to remember, only that is remembered: then whoever wants to
// know looks at all keys, which have the log index that wrote them.
type dirtyKeys struct {
	mu    sync.Mutex
	keys  map[string]struct{}
	bytes int
	over  bool
	most  int // keys; 0 = maxDirtyKeys
}

// What is remembered at most: some 8 MiB.
const (
	maxDirtyKeys  = 1 << 16
	maxDirtyBytes = 4 << 20
)

// add notes keys that have been written, after that: who takes the keys reads
// their values then.
func (d *dirtyKeys) add(keys ...[]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range keys {
		if d.over {
			return
		}
		if _, ok := d.keys[string(k)]; ok {
			continue
		}
		if d.keys == nil {
			d.keys = make(map[string]struct{})
		}
		d.keys[string(k)] = struct{}{}
		d.bytes += len(k)
		d.check()
	}
}

func (d *dirtyKeys) check() {
	most := d.most
	if most == 0 {
		most = maxDirtyKeys
	}
	if d.over || len(d.keys) > most || d.bytes > maxDirtyBytes {
		d.over, d.keys, d.bytes = true, nil, 0
	}
}

// dirtySet is what take took: keys, or all that have changed if there are too many.
type dirtySet struct {
	keys map[string]struct{}
	over bool
}

func (s *dirtySet) empty() bool { return !s.over && len(s.keys) == 0 }

// sorted returns the keys in order, so that equal states give equal files.
func (s *dirtySet) sorted() []string {
	out := make([]string, 0, len(s.keys))
	for k := range s.keys {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// take hands over what is remembered, and begins anew.
func (d *dirtyKeys) take() dirtySet {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := dirtySet{d.keys, d.over}
	d.keys, d.bytes, d.over = nil, 0, false
	return set
}

// giveBack takes in again what take has given: it did not get into a checkpoint.
func (d *dirtyKeys) giveBack(set dirtySet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = d.over || set.over
	if len(d.keys) < len(set.keys) {
		d.keys, set.keys = set.keys, d.keys
	}
	for k := range set.keys {
		d.keys[k] = struct{}{}
	}
	d.bytes = 0
	for k := range d.keys {
		d.bytes += len(k)
	}
	d.check()
}
