package wal

import (
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// Group is the log and the stable store of one Raft group. It implements
// raft.LogStore, raft.StableStore and raft.MonotonicLogStore.
//
// The Data of stored entries must not change afterwards: the newest ones are
// served from memory, as the same slices.
type Group struct {
	w  *WAL
	id uint32

	mu    sync.RWMutex
	first uint64 // of the log; first == next: it is empty
	next  uint64
	locs  []loc // of first..next-1
	bytes uint64
	cache []raft.Log // the newest entries, up to next-1
	held  int64      // bytes in cache

	kv       map[string][]byte
	voteTerm []byte // waits for the candidate, see Set
}

// loc is where an entry is.
type loc struct {
	file *file
	off  uint32
	size uint32 // of the frame
	sum  uint64 // frame bytes of the group before this entry, since Open
}

var (
	_ raft.LogStore          = (*Group)(nil)
	_ raft.StableStore       = (*Group)(nil)
	_ raft.MonotonicLogStore = (*Group)(nil)
)

// cacheOverhead is what an entry costs in the cache besides its data.
const cacheOverhead = 128

// ID returns the id of the group.
func (g *Group) ID() uint32 { return g.id }

// Room is [WAL.Room].
func (g *Group) Room() error { return g.w.Room() }

// MakeRoom is [WAL.MakeRoom].
func (g *Group) MakeRoom() error { return g.w.MakeRoom() }

// IsMonotonic says that the log has no holes.
func (g *Group) IsMonotonic() bool { return true }

// FirstIndex returns the index of the first entry, 0 when there is none.
func (g *Group) FirstIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.first == g.next {
		return 0, nil
	}
	return g.first, nil
}

// LastIndex returns the index of the last entry, 0 when there is none.
func (g *Group) LastIndex() (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.first == g.next {
		return 0, nil
	}
	return g.next - 1, nil
}

// GetLog reads an entry, from memory if it is one of the newest. An entry that
// is not there gives raft.ErrLogNotFound itself.
func (g *Group) GetLog(index uint64, l *raft.Log) error {
	g.mu.RLock()
	if index < g.first || index >= g.next {
		g.mu.RUnlock()
		return raft.ErrLogNotFound
	}
	if back := g.next - index; back <= uint64(len(g.cache)) {
		*l = g.cache[uint64(len(g.cache))-back]
		g.mu.RUnlock()
		return nil
	}
	at := g.locs[index-g.first]
	at.file.refs.Add(1)
	g.mu.RUnlock()

	h, data, ext, err := at.file.read(int64(at.off), int64(at.size))
	_ = at.file.release() // a file only read: nothing is lost with a failed close
	if err != nil {
		return err
	}
	if h.index != index || h.group != g.id {
		return corrupt(at.file.name, int64(at.off), fmt.Sprintf("entry %d of group %d, not %d of %d",
			h.index, h.group, index, g.id))
	}
	h.toLog(data, ext, l)
	return nil
}

// Data returns the payload of one entry. It may be shared and must not be
// changed.
func (g *Group) Data(index uint64) ([]byte, error) {
	var l raft.Log
	if err := g.GetLog(index, &l); err != nil {
		return nil, err
	}
	return l.Data, nil
}

// Bytes returns what the entries from..to (inclusive, as far as they are
// there) take on the disk.
func (g *Group) Bytes(from, to uint64) int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	from, to = max(from, g.first), min(to, g.next-1)
	if g.first == g.next || from > to {
		return 0
	}
	end := g.locs[to-g.first]
	return int64(end.sum + uint64(end.size) - g.locs[from-g.first].sum)
}

// StoreLog appends one entry.
func (g *Group) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries. When it returns nil they are durable. The indexes
// must continue the log; an empty log may begin anywhere.
func (g *Group) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	r := newRequest(g, kindEntry)
	defer r.free()
	r.logs = logs
	if n := r.size(); n > maxAppend {
		return fmt.Errorf("wal: append of %d bytes to group %d is too large", n, g.id)
	}
	for _, l := range logs {
		if len(l.Extensions) > maxExtension {
			return fmt.Errorf("wal: entry %d of group %d: extension of %d bytes", l.Index, g.id, len(l.Extensions))
		}
		r.sums = append(r.sums, dataSum(l.Data, l.Extensions))
	}
	return g.w.submit(r)
}

// DeleteRange removes the entries lo..hi (inclusive), which must touch an end
// of the log. It is durable when it returns. Entries that are not there are no
// error.
func (g *Group) DeleteRange(lo, hi uint64) error {
	g.mu.RLock()
	first, next := g.first, g.next
	g.mu.RUnlock()
	if first == next || hi < first || lo >= next || lo > hi {
		return nil
	}
	var r *request
	switch {
	case lo <= first:
		r = newRequest(g, kindCut)
		r.index = min(hi, next-1) + 1
	case hi >= next-1:
		r = newRequest(g, kindTrunc)
		r.index = lo
	default:
		return fmt.Errorf("wal: delete %d..%d inside of %d..%d", lo, hi, first, next-1)
	}
	err := g.w.submit(r)
	r.free()
	if err != nil {
		return err
	}
	return g.w.reclaim()
}

// Drop removes the group with its stable store, as when it moves away from this
// node. A group of this id begins anew.
func (g *Group) Drop() error {
	r := newRequest(g, kindDrop)
	err := g.w.submit(r)
	r.free()
	if err != nil {
		return err
	}
	return g.w.reclaim()
}

// blank reports whether there is nothing to remember. For the writer.
func (g *Group) blank() bool { return g.next == 0 && len(g.kv) == 0 }

// check tells whether a request goes into the log; if not, err is its result.
// For the writer, who alone changes what it reads.
func (g *Group) check(r *request) (proceed bool, err error) {
	switch r.kind {
	case kindEntry:
		want := g.next
		if g.first == g.next {
			want = max(r.logs[0].Index, 1)
		}
		for i, l := range r.logs {
			if l.Index != want+uint64(i) {
				return false, fmt.Errorf("wal: group %d: entry %d does not follow %d", g.id, l.Index, want+uint64(i)-1)
			}
		}
	case kindCopy:
		for i, l := range r.logs {
			if l.Index < g.first || l.Index >= g.next || g.locs[l.Index-g.first] != r.from[i] {
				return false, nil // cut or replaced meanwhile; the caller looks again
			}
		}
	case kindCut:
		return r.index > g.first && r.index <= g.next, nil
	case kindTrunc:
		return r.index >= g.first && r.index < g.next, nil
	}
	return true, nil
}

// publish applies a durable request. It returns how many of locs were its own.
func (g *Group) publish(r *request, locs []loc) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch r.kind {
	case kindEntry:
		if g.first == g.next {
			g.first, g.next = r.logs[0].Index, r.logs[0].Index
		}
		for i, l := range r.logs {
			g.addLoc(locs[i])
			g.cache = append(g.cache, *l)
			g.held += int64(len(l.Data)+len(l.Extensions)) + cacheOverhead
		}
		g.trimCache()
		return len(r.logs)
	case kindCopy:
		for i, l := range r.logs {
			g.moveLoc(l.Index, locs[i])
		}
		return len(r.logs)
	case kindCut:
		g.cut(r.index)
	case kindTrunc:
		g.truncate(r.index)
	case kindDrop:
		g.drop()
	case kindStable:
		g.mergePairs(r.data)
	}
	return 0
}

func (g *Group) addLoc(l loc) {
	l.sum = g.bytes
	g.bytes += uint64(l.size)
	g.locs = append(g.locs, l)
	g.next++
	l.file.hold(1, int64(l.size))
}

// moveLoc records that an entry is elsewhere now.
func (g *Group) moveLoc(index uint64, l loc) {
	old := &g.locs[index-g.first]
	old.file.hold(-1, int64(old.size))
	l.file.hold(1, int64(l.size))
	old.file, old.off = l.file, l.off
}

// cut drops the entries below index.
func (g *Group) cut(index uint64) {
	n := index - g.first
	for _, l := range g.locs[:n] {
		l.file.hold(-1, int64(l.size))
	}
	clear(g.locs[:n])
	g.locs, g.first = g.locs[n:], index
	for uint64(len(g.cache)) > g.next-g.first {
		g.dropOldest()
	}
	if len(g.locs) < cap(g.locs)/4 {
		g.locs = slices.Clip(slices.Clone(g.locs))
	}
}

// truncate drops the entries from index on.
func (g *Group) truncate(index uint64) {
	n := index - g.first
	for _, l := range g.locs[n:] {
		l.file.hold(-1, int64(l.size))
		g.bytes -= uint64(l.size)
	}
	clear(g.locs[n:])
	lost := int(min(g.next-index, uint64(len(g.cache))))
	for _, l := range g.cache[len(g.cache)-lost:] {
		g.held -= int64(len(l.Data)+len(l.Extensions)) + cacheOverhead
	}
	clear(g.cache[len(g.cache)-lost:])
	g.cache = g.cache[:len(g.cache)-lost]
	g.locs, g.next = g.locs[:n], index
}

func (g *Group) drop() {
	if g.first < g.next {
		g.cut(g.next)
	}
	g.first, g.next, g.locs, g.bytes = 0, 0, nil, 0
	g.cache, g.held, g.voteTerm = nil, 0, nil
	g.kv = map[string][]byte{}
}

// trimCache keeps the bytes bounded, and the newest entry in any case.
func (g *Group) trimCache() {
	for g.held > g.w.opts.TailCacheBytes && len(g.cache) > 1 {
		g.dropOldest()
	}
}

func (g *Group) dropOldest() {
	l := &g.cache[0]
	g.held -= int64(len(l.Data)+len(l.Extensions)) + cacheOverhead
	*l = raft.Log{}
	g.cache = g.cache[1:]
}
