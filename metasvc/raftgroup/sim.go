package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Sim is a group of one voter without the Raft library: no goroutine, no timer,
// no network. A proposal is in the log and synced when Propose returns, and
// reaches the machine at the next Step. The same calls give the same bytes on
// the disk, so that a test can replay a history from a seed.
//
// It is not safe for concurrent use.
type Sim struct {
	log     *wal.Group
	machine Machine
	term    uint64
	next    uint64 // index of the next proposal
	applied uint64
	keep    int64
}

// simConfiguration stands for the cluster configuration.
var simConfiguration = raft.EncodeConfiguration(raft.Configuration{
	Servers: []raft.Server{{Suffrage: raft.Voter, ID: "sim", Address: "sim"}},
})

// NewSim begins a term of its own on the log. The machine must hold the state
// as of the checkpoint restored (the zero Meta for none); what the log has after
// it is applied by Step. keepBytes is as Config.KeepBytes.
func NewSim(log *wal.Group, machine Machine, restored checkpoint.Meta, keepBytes int64) (*Sim, error) {
	if err := reconcile(log, restored); err != nil {
		return nil, err
	}
	term, err := log.GetUint64([]byte(keyCurrentTerm))
	if err != nil && !errors.Is(err, wal.ErrKeyNotFound) {
		return nil, err
	}
	s := &Sim{log: log, machine: machine, term: term + 1, applied: restored.Index, keep: keepBytes}
	if err := log.SetUint64([]byte(keyCurrentTerm), s.term); err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, err
	}
	s.next = max(last, restored.Index) + 1
	// As a leader's first entry does: it marks the begin of the term.
	err = log.StoreLog(&raft.Log{Index: s.next, Term: s.term, Type: raft.LogNoop})
	if err != nil {
		return nil, err
	}
	s.next++
	return s, nil
}

// Propose appends a command. On an error it calls failed before it returns: with
// ErrUnknown, since a crash may leave the entry in the log.
func (s *Sim) Propose(data []byte, failed func(error)) {
	err := s.log.StoreLog(&raft.Log{Index: s.next, Term: s.term, Type: raft.LogCommand, Data: data})
	if err != nil {
		failed(classify(err))
		return
	}
	s.next++
}

// Step applies everything appended so far and returns the number of commands.
func (s *Sim) Step() (int, error) {
	var entries []Entry
	for s.applied+1 < s.next {
		var l raft.Log
		if err := s.log.GetLog(s.applied+1, &l); err != nil {
			return 0, fmt.Errorf("raftgroup: entry %d: %w", s.applied+1, err)
		}
		if l.Type == raft.LogCommand {
			entries = append(entries, Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		}
		s.applied = l.Index
	}
	if len(entries) > 0 {
		s.machine.Apply(entries)
	}
	return len(entries), nil
}

// Term returns the term of this Sim; each NewSim on a log has a higher one.
func (s *Sim) Term() uint64 { return s.term }

// Candidacy is as Group's.
func (s *Sim) Candidacy() uint64 { return s.term }

// LastIndex returns the index of the newest entry.
func (s *Sim) LastIndex() uint64 { return s.next - 1 }

// AppliedIndex returns the index up to which Step has gone.
func (s *Sim) AppliedIndex() uint64 { return s.applied }

// CheckpointMeta is as Group.CheckpointMeta.
func (s *Sim) CheckpointMeta(index uint64) (checkpoint.Meta, error) {
	if index > s.applied {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d, applied is %d", index, s.applied)
	}
	term, err := s.log.Term(index)
	if err != nil {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d: %w", index, err)
	}
	return checkpoint.Meta{Index: index, Term: term, Configuration: simConfiguration, ConfigurationIndex: 1}, nil
}

// Cut is as Group.Cut.
func (s *Sim) Cut(index uint64) error { return cutLog(s.log, index, s.keep) }
