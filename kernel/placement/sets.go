package placement

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// setTable interns target sets, so that all who publish to the same
// partitions fill the same batches. A set goes when nobody holds it.
type setTable struct {
	mu   sync.RWMutex
	sets map[string]weak.Pointer[TargetSet]
	one  map[PartitionID]weak.Pointer[TargetSet]
}

// Targets returns the interned set of the given partitions, for Append. It is
// immutable. Partitions that do not exist (any more) discard what is sent to
// them.
func (g *Group) Targets(parts ...PartitionID) *TargetSet {
	if len(parts) == 1 {
		return g.sets.single(g.prop, parts[0])
	}
	parts = slices.Clone(parts)
	slices.Sort(parts)
	parts = slices.Compact(parts)
	key := make([]byte, 0, 8*len(parts))
	for _, p := range parts {
		key = binary.BigEndian.AppendUint64(key, uint64(p))
	}
	t := &g.sets
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sets[string(key)].Value(); s != nil {
		return s
	}
	s := g.prop.newSet(parts)
	if t.sets == nil {
		t.sets = make(map[string]weak.Pointer[TargetSet])
	}
	t.sets[string(key)] = weak.Make(s)
	runtime.AddCleanup(s, t.cleanSet, string(key))
	return s
}

// single is Targets of one partition.
func (t *setTable) single(p *proposer, id PartitionID) *TargetSet {
	t.mu.RLock()
	s := t.one[id].Value()
	t.mu.RUnlock()
	if s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.one[id].Value(); s != nil {
		return s
	}
	s = p.newSet([]PartitionID{id})
	if t.one == nil {
		t.one = make(map[PartitionID]weak.Pointer[TargetSet])
	}
	t.one[id] = weak.Make(s)
	runtime.AddCleanup(s, t.cleanOne, id)
	return s
}

func (t *setTable) cleanSet(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sets[key].Value() == nil { // else it was made anew
		delete(t.sets, key)
	}
}

func (t *setTable) cleanOne(id PartitionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.one[id].Value() == nil {
		delete(t.one, id)
	}
}

func (p *proposer) newSet(parts []PartitionID) *TargetSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &TargetSet{parts: parts}
	for _, id := range parts {
		s.tails = append(s.tails, p.tailOf(id))
	}
	return s
}
