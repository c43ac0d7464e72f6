package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	promisesName = "promises.json"
	// promisesEvery is how often what was promised is written down: a disk that is set
	// back further than that is found out also after all nodes have stopped.
	promisesEvery = 30 * time.Second
)

// promisesFile is what other nodes have promised, some time ago. All of it stays true
// for ever.
type promisesFile struct {
	Cluster  string         `json:"cluster"`
	Promises []promiseEntry `json:"promises"`
}

type promiseEntry struct {
	Raft  string `json:"raft"`
	Group uint32 `json:"group"`
	Term  uint64 `json:"term"`
	Floor uint64 `json:"index"` // committed
}

// load reads what was written down. A file of another cluster counts for nothing.
func (w *witness) load(fsys vfs.FS, dir, cluster string) error {
	if fsys == nil {
		return nil
	}
	var file promisesFile
	if err := readFile(fsys, dir, promisesName, &file); err != nil {
		return fmt.Errorf("cluster: %s: %w", promisesName, err)
	}
	if file.Cluster != cluster {
		return nil
	}
	for _, e := range file.Promises {
		w.note(e.Group, e.Raft, func(p *promise) { p.term, p.floor = max(p.term, e.Term), max(p.floor, e.Floor) })
	}
	return nil
}

// settle notes how far the promises are committed by now.
func (w *witness) settle(r *Replicas) {
	w.mu.Lock()
	keys := make(map[witnessKey]promise, len(w.of))
	for k, p := range w.of {
		keys[k] = p
	}
	w.mu.Unlock()
	for k, p := range keys {
		if g := r.group(k.group); g != nil {
			floor := p.committed(g.Raft)
			w.note(k.group, k.raft, func(p *promise) { p.floor = max(p.floor, floor) })
		}
	}
}

// entries are the promises of members, in order; what others have promised is forgotten.
func (w *witness) entries(member func(raftID string) bool) []promiseEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []promiseEntry
	for k, p := range w.of {
		if !member(k.raft) {
			delete(w.of, k)
			continue
		}
		out = append(out, promiseEntry{Raft: k.raft, Group: k.group, Term: p.term, Floor: p.floor})
	}
	slices.SortFunc(out, func(a, b promiseEntry) int { return cmp.Or(cmp.Compare(a.Raft, b.Raft), cmp.Compare(a.Group, b.Group)) })
	return out
}

// ledger writes the promises down.
type ledger struct {
	node *Node
	at   time.Time
	last []promiseEntry
}

// write writes them if that is due, or now, and there is something new.
func (l *ledger) write(now bool) {
	n := l.node
	if n.cfg.FS == nil || !now && time.Since(l.at) < promisesEvery {
		return
	}
	l.at = time.Now()
	members := map[string]bool{}
	for _, p := range n.others() {
		members[p.Raft] = true
	}
	entries := n.seen.entries(func(raftID string) bool { return members[raftID] })
	if slices.Equal(entries, l.last) {
		return
	}
	l.last = entries
	if err := writeFile(n.cfg.FS, n.cfg.Dir, promisesName, promisesFile{n.Self().Cluster, entries}); err != nil {
		n.log.Warn().Err(err).Msg("what other nodes have promised is not written down")
	}
}
