// Package raftgroup runs one Raft group: hashicorp/raft behind a small
// interface of ours, with the work-arounds that library needs.
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
)

// Entry is one committed command.
type Entry struct {
	Index, Term uint64
	Data        []byte // immutable; may be kept (and sliced) for as long as one likes
}

// Machine is the replicated state machine. Its methods are called from one
// goroutine at a time.
type Machine interface {
	// Apply applies committed commands in the order of the log. The indexes
	// rise, but have holes where the log holds entries of Raft itself. The slice
	// belongs to the caller, the Data in it to everybody.
	Apply(entries []Entry)

	// Restore replaces the whole state by that of a checkpoint which a leader
	// has sent. It must be quick: the group answers nothing meanwhile. An error
	// leaves the old state in place.
	Restore(meta checkpoint.Meta, payload io.Reader) error
}
