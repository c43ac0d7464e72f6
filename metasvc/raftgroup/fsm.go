package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// fsm is what the Raft library knows of the machine.
type fsm struct {
	machine  Machine
	restored chan<- struct{} // a checkpoint was installed; cap 1
	// configured is told of configurations as they are applied.
	configured func(raft.Configuration)

	handed    atomic.Uint64 // everything up to it is committed and given to the machine
	applied   atomic.Uint64 // everything up to it is in the machine
	entries   []Entry       // reused
	responses []any         // reused; all nil

	mu      sync.Mutex
	configs []configuration // ascending; the last one at or below an index is valid there
}

// configuration is one that has been applied.
type configuration struct {
	index uint64
	data  []byte
}

var _ raft.BatchingFSM = (*fsm)(nil)

// ApplyBatch implements raft.BatchingFSM. Entries that the machine has already
// are skipped: after a restart of the library it begins anew behind the last
// checkpoint.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	applied := f.applied.Load()
	f.entries = f.entries[:0]
	for _, l := range logs {
		if l.Index <= applied {
			continue
		}
		applied = l.Index
		switch l.Type {
		case raft.LogCommand:
			f.entries = append(f.entries, Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		case raft.LogConfiguration:
			f.mu.Lock()
			f.configs = append(f.configs, configuration{l.Index, l.Data})
			f.mu.Unlock()
			f.configured(raft.DecodeConfiguration(l.Data))
		}
	}
	f.handed.Store(applied)
	if len(f.entries) > 0 {
		f.machine.Apply(f.entries)
		clear(f.entries)
	}
	f.applied.Store(applied)
	if n := len(logs); n > len(f.responses) {
		f.responses = make([]any, n)
	}
	return f.responses[:len(logs)]
}

// Apply implements raft.FSM.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// Snapshot implements raft.FSM: there is never a snapshot to take.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }

// Restore implements raft.FSM. The stream comes from snapshots.Open.
func (f *fsm) Restore(r io.ReadCloser) error {
	inner := r
	for {
		w, ok := inner.(raft.ReadCloserWrapper)
		if !ok {
			break
		}
		inner = w.WrappedReadCloser()
	}
	stream, ok := inner.(*snapshotStream)
	if !ok {
		return fmt.Errorf("raftgroup: restore from %T", inner)
	}
	if err := f.machine.Restore(stream.meta, r); err != nil {
		return fmt.Errorf("raftgroup: restore checkpoint %s: %w", stream.meta.ID(), err)
	}
	f.begin(stream.meta)
	select {
	case f.restored <- struct{}{}:
	default: // one is waiting already
	}
	return nil
}

// begin takes a checkpoint as the point from which everything goes on.
func (f *fsm) begin(m checkpoint.Meta) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.configs = f.configs[:0]
	if m.Index > 0 {
		f.configs = append(f.configs, configuration{m.ConfigurationIndex, m.Configuration})
	}
	f.handed.Store(m.Index)
	f.applied.Store(m.Index)
}

// configurationAt returns the configuration valid at index.
func (f *fsm) configurationAt(index uint64) (configuration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range slices.Backward(f.configs) {
		if c.index <= index {
			return c, nil
		}
	}
	return configuration{}, errors.New("raftgroup: no configuration is known there")
}

// forget drops the configurations that no checkpoint from index on can need.
func (f *fsm) forget(index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.configs) > 1 && f.configs[1].index <= index {
		f.configs = f.configs[1:]
	}
}
