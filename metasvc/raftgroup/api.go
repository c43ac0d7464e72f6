// Package raftgroup runs one Raft group: hashicorp/raft behind a small
// interface of ours, with the work-arounds that library needs.
//
// The library's own snapshots are not used. The owner of the machine writes
// checkpoints with [checkpoint.Store.Write] when the log says so, and calls
// [Group.Cut] afterwards; on start it restores its machine from
// [checkpoint.Store.Latest] before it calls [Open], and the group replays what
// the log has after that. Only a follower that lags so far that the leader's
// log no longer reaches back to it gets a checkpoint over the network, by
// [Machine.Restore].
package raftgroup

import (
	"errors"
	"io"

	"github.com/trivium-mq/trivium/storage/checkpoint"
)

var (
	// ErrNotApplied says that a proposal was certainly not appended to the log:
	// it may be repeated without the danger of a duplicate.
	ErrNotApplied = errors.New("raftgroup: not applied")

	// ErrUnknown says that the outcome of a proposal is not known: a later
	// leader may still commit it. It must never be answered positively.
	ErrUnknown = errors.New("raftgroup: outcome unknown")

	// ErrNotLeader is returned by VerifyLeader.
	ErrNotLeader = errors.New("raftgroup: not the leader")

	// ErrCorrupt is returned by Open when log and checkpoint do not fit
	// together, so that committed entries must be missing.
	ErrCorrupt = errors.New("raftgroup: damaged state")

	// ErrClosed is returned after Close.
	ErrClosed = errors.New("raftgroup: closed")
)

// Entry is one committed command.
type Entry struct {
	Index, Term uint64
	Data        []byte // immutable; may be kept (and sliced) for as long as one likes
}

// Machine is the replicated state machine. Its methods are called from one
// goroutine at a time.
type Machine interface {
	// Apply applies committed commands in the order of the log, each once. The
	// indexes rise, but have holes where the log holds entries of Raft itself.
	// The slice belongs to the caller, the Data in it to everybody.
	Apply(entries []Entry)

	// Restore replaces the whole state by that of a checkpoint which a leader
	// has sent; the checkpoint is already in the store. It must be quick: the
	// group answers nothing meanwhile. An error leaves the old state in place.
	Restore(meta checkpoint.Meta, payload io.Reader) error
}

// Server is a member of a group.
type Server struct {
	ID      string
	Address string
	Learner bool // gets the log, has no vote
}

// Leadership tells who leads.
type Leadership struct {
	// Leader is true when this node leads and everything committed before its
	// term has been applied here.
	Leader   bool
	LeaderID string // "" = nobody, as far as is known
	Term     uint64
}

// Stats are the figures of a group.
type Stats struct {
	State        string // Follower, Candidate, Leader, Shutdown
	Term         uint64
	FirstIndex   uint64
	LastIndex    uint64
	CommitIndex  uint64
	AppliedIndex uint64
	LogBytes     int64
}
