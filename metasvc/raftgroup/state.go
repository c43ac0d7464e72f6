package raftgroup

import (
	"fmt"
	"sort"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// Leader tells whether this node leads and has applied everything committed
// before its term, and who leads as far as it knows.
func (g *Group) Leader() (isLeader bool, leaderID string) {
	l := g.leadership.Load()
	if l.Leader && g.raft.Load().State() == raft.Leader {
		return true, l.LeaderID
	}
	_, id := g.raft.Load().LeaderWithID()
	return false, string(id)
}

// Leadership returns what Watch was told last.
func (g *Group) Leadership() Leadership { return *g.leadership.Load() }

// MayVote reports whether this node votes already, also for itself: it does not for less
// than a heartbeat timeout after its start, and a leadership that is passed on to it then
// goes to nobody.
func (g *Group) MayVote() bool { return g.store.mayVote() }

// Term returns the current term.
func (g *Group) Term() uint64 { return g.raft.Load().CurrentTerm() }

// Candidacy returns the last term in which this node has voted for itself since the group
// was opened: it has appended proposals in none after it. Term may be higher, since others
// were elected.
func (g *Group) Candidacy() uint64 { return g.store.stood.Load() }

// CommitIndex returns the highest index known to be committed.
func (g *Group) CommitIndex() uint64 { return g.raft.Load().CommitIndex() }

// AppliedIndex returns the index up to which the machine has applied the log:
// that of the last command or configuration.
func (g *Group) AppliedIndex() uint64 { return g.fsm.applied.Load() }

// Stats returns the figures of the group.
func (g *Group) Stats() Stats {
	r := g.raft.Load()
	s := Stats{
		State:        r.State().String(),
		Term:         r.CurrentTerm(),
		CommitIndex:  r.CommitIndex(),
		AppliedIndex: g.AppliedIndex(),
	}
	s.FirstIndex, _ = g.cfg.Group.FirstIndex() // never fails
	s.LastIndex, _ = g.cfg.Group.LastIndex()
	s.LogBytes = g.cfg.Group.Bytes(s.FirstIndex, s.LastIndex)
	return s
}

// CheckpointMeta returns what belongs to a checkpoint of the state as of index:
// the term there and the configuration valid there. The index must have been
// given to the machine, whose Apply may still run, and be in the log or that of a
// checkpoint already.
func (g *Group) CheckpointMeta(index uint64) (checkpoint.Meta, error) {
	if handed := g.fsm.handed.Load(); index > handed {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d, the machine has got %d", index, handed)
	}
	for _, m := range g.cfg.Checkpoints.List() {
		if m.Index == index { // one that a leader sent: the log has no entry there
			m.Size = 0
			return m, nil
		}
	}
	term, err := g.cfg.Group.Term(index)
	if err != nil {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d: %w", index, err)
	}
	c, err := g.fsm.configurationAt(index)
	if err != nil {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d: %w", index, err)
	}
	return checkpoint.Meta{Index: index, Term: term, Configuration: c.data, ConfigurationIndex: c.index}, nil
}

// Cut deletes the log that nobody needs any more after a checkpoint at index
// was written: it keeps the entry at index and at least Config.KeepBytes before
// it. A smaller index than that of the checkpoint keeps more.
func (g *Group) Cut(index uint64) error {
	if index > newest(g.cfg.Checkpoints).Index {
		return fmt.Errorf("raftgroup: cut to %d, but the newest checkpoint is at %d", index, newest(g.cfg.Checkpoints).Index)
	}
	g.fsm.forget(index)
	if err := cutLog(g.cfg.Group, index, g.keepBytes()); err != nil {
		return fmt.Errorf("raftgroup: cut group %d: %w", g.cfg.Group.ID(), err)
	}
	return nil
}

func (g *Group) keepBytes() int64 {
	if g.Alone() {
		return g.cfg.KeepBytes
	}
	return g.cfg.KeepPeers
}

// logCutter is the part of a log that cutLog needs.
type logCutter interface {
	FirstIndex() (uint64, error)
	Bytes(from, to uint64) int64
	DeleteRange(lo, hi uint64) error
}

func cutLog(log logCutter, index uint64, keep int64) error {
	first, err := log.FirstIndex()
	if err != nil || first == 0 || index <= first {
		return err
	}
	// The first entry from which on less than keep bytes remain; the one before
	// it is the first to stay.
	n := sort.Search(int(index-first), func(i int) bool { return log.Bytes(first+uint64(i), index) < keep })
	if n <= 1 {
		return nil
	}
	return log.DeleteRange(first, first+uint64(n)-2)
}
