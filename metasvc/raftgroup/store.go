package raftgroup

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/wal"
)

// store is the log as the Raft library gets to see it. The library panics when
// the current term cannot be stored. A failed or full disk is no reason for
// that: store swallows the error and lets everything fail that relies on the
// term, that is, votes and entries. So the node neither votes nor appends nor
// leads until a term has been stored again, but goes on answering.
type store struct {
	*wal.Group
	unsaved atomic.Bool

	// An instance of the library that has just been started does not know whom the
	// one before it has heard of, and promised not to vote for another while the lease
	// that came of it lasts. So it does not vote until that must be over.
	now   func() int64
	quiet atomic.Int64 // until then

	self  []byte        // whom a vote of this node for itself names
	votes uint64        // the term of the vote that is being stored
	stood atomic.Uint64 // the highest term of a vote for itself, see Group.Candidacy
}

var errQuiet = errors.New("raftgroup: no vote so soon after the start")

var errTerm = errors.New("raftgroup: the current term could not be stored")

const (
	keyCurrentTerm = "CurrentTerm"
	keyVoteTerm    = "LastVoteTerm" // stored first, for each vote
	keyVoteFor     = "LastVoteCand"
)

func (s *store) mayVote() bool { return s.now() >= s.quiet.Load() }

// SetUint64 implements raft.StableStore.
func (s *store) SetUint64(key []byte, value uint64) error {
	if string(key) == keyVoteTerm {
		if !s.mayVote() {
			return errQuiet
		}
		s.votes = value
	}
	err := s.Group.SetUint64(key, value)
	if string(key) != keyCurrentTerm {
		return err
	}
	s.unsaved.Store(err != nil)
	return nil
}

// Set implements raft.StableStore.
func (s *store) Set(key, value []byte) error {
	if s.unsaved.Load() {
		return errTerm
	}
	if string(key) == keyVoteFor && bytes.Equal(value, s.self) {
		s.stood.Store(s.votes) // before the vote counts
	}
	return s.Group.Set(key, value)
}

// StoreLog implements raft.LogStore.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *store) StoreLogs(logs []*raft.Log) error {
	if s.unsaved.Load() {
		return errTerm
	}
	return s.Group.StoreLogs(logs)
}
