// Package transport connects the members of Raft groups: [Mux] carries all
// groups of a node over one TCP port, [Memory] connects nodes inside one
// process, and [Solo] is for a node that has no peers and opens no socket.
package transport

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// errAlone is returned by every call to a peer of a Solo.
var errAlone = errors.New("transport: this node has no peers")

// Solo is the transport of a group whose only member is this node. It has no
// socket and no goroutine.
type Solo struct {
	id      raft.ServerAddress
	consume chan raft.RPC
}

var (
	_ raft.Transport   = (*Solo)(nil)
	_ raft.WithPreVote = (*Solo)(nil)
)

// NewSolo returns the transport of the node with the given id.
func NewSolo(id string) *Solo {
	return &Solo{id: raft.ServerAddress(id), consume: make(chan raft.RPC, 1)}
}

// Consumer implements raft.Transport.
func (s *Solo) Consumer() <-chan raft.RPC { return s.consume }

// LocalAddr implements raft.Transport.
func (s *Solo) LocalAddr() raft.ServerAddress { return s.id }

// AppendEntriesPipeline implements raft.Transport.
func (s *Solo) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, errAlone
}

// AppendEntries implements raft.Transport.
func (s *Solo) AppendEntries(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error {
	return errAlone
}

// RequestVote implements raft.Transport.
func (s *Solo) RequestVote(raft.ServerID, raft.ServerAddress, *raft.RequestVoteRequest, *raft.RequestVoteResponse) error {
	return errAlone
}

// RequestPreVote implements raft.WithPreVote.
func (s *Solo) RequestPreVote(raft.ServerID, raft.ServerAddress, *raft.RequestPreVoteRequest, *raft.RequestPreVoteResponse) error {
	return errAlone
}

// InstallSnapshot implements raft.Transport.
func (s *Solo) InstallSnapshot(raft.ServerID, raft.ServerAddress, *raft.InstallSnapshotRequest, *raft.InstallSnapshotResponse, io.Reader) error {
	return errAlone
}

// EncodePeer implements raft.Transport.
func (s *Solo) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }

// DecodePeer implements raft.Transport.
func (s *Solo) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport.
func (s *Solo) SetHeartbeatHandler(func(raft.RPC)) {}

// TimeoutNow hands the request to this node itself, who then stands for
// election without waiting for its timer.
func (s *Solo) TimeoutNow(_ raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if target != s.id {
		return errAlone
	}
	done := make(chan raft.RPCResponse, 1)
	select {
	case s.consume <- raft.RPC{Command: args, RespChan: done}:
		return nil
	default:
		return errors.New("transport: busy")
	}
}
