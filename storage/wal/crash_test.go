package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
)

var errCrash = errors.New("power is off")

// model is what the log has promised about one group.
type model struct {
	first, next uint64
	logs        map[uint64]*raft.Log
	kv          map[string]string
}

func newModel() *model { return &model{logs: map[uint64]*raft.Log{}, kv: map[string]string{}} }

func (m *model) clone() *model {
	c := newModel()
	c.first, c.next = m.first, m.next
	for k, v := range m.logs {
		c.logs[k] = v
	}
	for k, v := range m.kv {
		c.kv[k] = v
	}
	return c
}

func (m *model) append(l *raft.Log) {
	if m.first == m.next {
		m.first, m.next = l.Index, l.Index
	}
	m.logs[l.Index] = l
	m.next++
}

// diff compares a recovered group with one state that is allowed.
func (m *model) diff(g *Group) error {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	wantFirst, wantLast := m.first, m.next-1
	if m.first == m.next {
		wantFirst, wantLast = 0, 0
	}
	if first != wantFirst || last != wantLast {
		return fmt.Errorf("group %d holds %d..%d, not %d..%d", g.id, first, last, wantFirst, wantLast)
	}
	for i := m.first; i < m.next; i++ {
		var l raft.Log
		if err := g.GetLog(i, &l); err != nil {
			return fmt.Errorf("group %d entry %d: %w", g.id, i, err)
		}
		w := m.logs[i]
		if l.Index != i || l.Term != w.Term || l.Type != w.Type || !bytes.Equal(l.Data, w.Data) ||
			!bytes.Equal(l.Extensions, w.Extensions) || !l.AppendedAt.Equal(w.AppendedAt) {
			return fmt.Errorf("group %d entry %d differs", g.id, i)
		}
	}
	for k, v := range m.kv {
		if got, err := g.Get([]byte(k)); err != nil || string(got) != v {
			return fmt.Errorf("group %d key %s: %q %v, not %q", g.id, k, got, err, v)
		}
	}
	if len(g.kv) != len(m.kv) {
		return fmt.Errorf("group %d has %d keys, not %d", g.id, len(g.kv), len(m.kv))
	}
	return nil
}

// history drives one log through random operations until the power fails.
type history struct {
	rng    *rand.Rand
	wal    *WAL
	models map[uint32]*model
	// allowed are the states in which an interrupted operation may have left
	// its group, besides the one before it.
	group   uint32
	allowed []*model
	left    *vfs.MemFS // the disk after the power has failed
}

const historyGroups = 3

func (h *history) logs(from uint64, n int) []*raft.Log {
	logs := make([]*raft.Log, n)
	for i := range logs {
		size := h.rng.Intn(200)
		if h.rng.Intn(4) == 0 {
			size = h.rng.Intn(3000) // beyond smallData, over several sectors
		}
		l := &raft.Log{Index: from + uint64(i), Term: uint64(h.rng.Intn(5)), Type: raft.LogType(h.rng.Intn(3)),
			Data: make([]byte, size), AppendedAt: time.Unix(0, h.rng.Int63())}
		h.rng.Read(l.Data)
		if h.rng.Intn(8) == 0 {
			l.Extensions = []byte("extension")
		}
		logs[i] = l
	}
	return logs
}

// step does one operation; an error is a crash.
func (h *history) step() error {
	id := uint32(1 + h.rng.Intn(historyGroups))
	if h.rng.Intn(3) > 0 {
		id = 1 // one busy group, the others pin files
	}
	g, m := h.wal.Group(id), h.models[id]
	after := m.clone()
	h.group, h.allowed = id, nil
	var err error
	switch k := h.rng.Intn(20); {
	case k < 10:
		next := m.next
		if m.first == m.next {
			next = m.next + 1 + uint64(h.rng.Intn(3))
		}
		logs := h.logs(next, 1+h.rng.Intn(4))
		for _, l := range logs {
			after.append(l)
			h.allowed = append(h.allowed, after.clone())
		}
		err = g.StoreLogs(logs)
	case k < 14 && m.first < m.next:
		to := m.first + uint64(h.rng.Int63n(int64(m.next-m.first)))
		after.first = to + 1
		h.allowed = []*model{after}
		err = g.DeleteRange(m.first, to)
	case k < 16 && m.first < m.next:
		from := m.first + uint64(h.rng.Int63n(int64(m.next-m.first)))
		if from == m.first {
			after.first = m.next // everything goes
		} else {
			after.next = from
		}
		h.allowed = []*model{after}
		err = g.DeleteRange(from, m.next-1)
	case k < 18:
		after.kv[keyVoteTerm], after.kv[keyVoteCandidate] = fmt.Sprint(h.rng.Int()), fmt.Sprint(h.rng.Int())
		h.allowed = []*model{after}
		if err = g.Set([]byte(keyVoteTerm), []byte(after.kv[keyVoteTerm])); err == nil {
			err = g.Set([]byte(keyVoteCandidate), []byte(after.kv[keyVoteCandidate]))
		}
	case k == 18 && id == historyGroups:
		after = newModel()
		h.allowed = []*model{after}
		err = g.Drop()
	default:
		after.kv["CurrentTerm"] = fmt.Sprint(h.rng.Int())
		h.allowed = []*model{after}
		err = g.Set([]byte("CurrentTerm"), []byte(after.kv["CurrentTerm"]))
	}
	if err == nil && h.left == nil {
		h.models[id] = after
	}
	return err
}

// check compares what was recovered, and makes it the state from now on.
func (h *history) check() error {
	for id := uint32(1); id <= historyGroups; id++ {
		g := h.wal.Group(id)
		err := h.models[id].diff(g)
		if err != nil && id == h.group {
			i := slices.IndexFunc(h.allowed, func(m *model) bool { return m.diff(g) == nil })
			if i >= 0 {
				h.models[id], err = h.allowed[i], nil
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// life runs a log on disk until a random disk operation at which the power
// fails, and returns what is left of the disk.
func (h *history) life(disk *vfs.MemFS, keepAll bool) (*vfs.MemFS, error) {
	h.left = nil
	countdown := 1 + h.rng.Intn(120)
	fault := vfs.NewFault(disk)
	fault.Add(vfs.Rule{Before: func(vfs.Op, string) {
		if countdown--; countdown == 0 {
			rng := h.rng
			if keepAll {
				rng = nil
			}
			h.left = disk.CrashClone(rng)
			fault.Add(vfs.Rule{Err: errCrash})
		}
	}})
	w, err := Open(fault, "wal", Options{FileSize: 8 << 10, TailCacheBytes: 2000, NoAhead: true, Rand: h.rng})
	if err != nil {
		if h.left == nil {
			return nil, fmt.Errorf("open: %w", err)
		}
		return h.left, nil
	}
	h.wal = w
	err = h.check()
	if h.left != nil { // it failed during the check
		_ = w.Close()
		return h.left, nil
	}
	if err != nil {
		return nil, err
	}
	h.group, h.allowed = 0, nil
	for h.left == nil {
		if err := h.step(); err != nil && h.left == nil {
			return nil, fmt.Errorf("step: %w", err)
		}
	}
	_ = w.Close()
	return h.left, nil
}

// crashHistory is a sequence of lives of one disk.
func crashHistory(seed int64) error {
	h := &history{rng: rand.New(rand.NewSource(seed)), models: map[uint32]*model{}}
	for id := uint32(1); id <= historyGroups; id++ {
		h.models[id] = newModel()
	}
	disk := vfs.NewMem()
	for life := range 6 {
		left, err := h.life(disk, life%3 == 2)
		if err != nil {
			return fmt.Errorf("life %d: %w\n%s", life, err, disk)
		}
		disk = left
	}
	w, err := Open(disk, "wal", Options{FileSize: 8 << 10, NoAhead: true})
	if err != nil {
		return err
	}
	h.wal = w
	return errors.Join(h.check(), w.Close())
}

// TestCrash crashes hundreds of logs at random disk operations. What an append
// has returned is there afterwards, nothing is invented, and the log goes on
// from its last valid entry.
func TestCrash(t *testing.T) {
	n := int64(600)
	if testing.Short() {
		n = 100
	}
	for seed := range n {
		if err := crashHistory(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
