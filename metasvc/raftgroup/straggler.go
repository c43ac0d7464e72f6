package raftgroup

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// awayTime is how long a message may wait for a member that is not reached. The library
// pauses between messages that fail, longer each time, up to 10 s: so long a member would
// be without the log after it is back.
const awayTime = 30 * time.Second

var (
	errAway   = errors.New("the member is not reached")
	errBehind = errors.New("the member is too far behind for a pipeline")
)

// stragglers is a transport for members that have been away or are behind. The library
// sends a log in two ways: message by message until all of it is there, or through a
// pipeline, in which one message of at most MaxAppendEntries goes out whenever an entry
// is added, or after Timing.Commit. A member that is behind stays so in a pipeline; and
// when it is needed for a majority, nothing is added. So it gets none.
type stragglers struct {
	*witness
	last func() uint64 // of the own log
	most uint64        // entries of a message

	mu    sync.Mutex
	peers map[raft.ServerID]*straggler
	over  bool // nobody waits
}

// straggler is what is known of a member.
type straggler struct {
	has  uint64        // the index up to which it has taken the log, message by message
	back chan struct{} // closed when it is reached again; nil = it is
}

var (
	_ raft.WithPreVote = (*stragglers)(nil)
	_ raft.WithClose   = (*stragglers)(nil)
)

func newStragglers(w *witness, last func() uint64, most int) *stragglers {
	return &stragglers{witness: w, last: last, most: uint64(most), peers: map[raft.ServerID]*straggler{}}
}

// of returns a member's. mu is held.
func (s *stragglers) of(id raft.ServerID) *straggler {
	p := s.peers[id]
	if p == nil {
		p = &straggler{}
		s.peers[id] = p
	}
	return p
}

// AppendEntries implements raft.Transport.
func (s *stragglers) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	beat := len(req.Entries) == 0 && req.PrevLogEntry == 0 && req.LeaderCommitIndex == 0
	if !beat && !s.reached(id) {
		return errAway
	}
	err := s.witness.AppendEntries(id, addr, req, resp)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(id)
	switch {
	case err != nil && p.back == nil:
		p.back = make(chan struct{})
	case err == nil && p.back != nil:
		close(p.back)
		p.back = nil
	}
	if err == nil && resp.Success && !beat {
		p.has = req.PrevLogEntry + uint64(len(req.Entries))
	}
	return err
}

// reached waits until a member is reached again, by a heartbeat; false if that takes too
// long, or nobody is to wait any more.
func (s *stragglers) reached(id raft.ServerID) bool {
	s.mu.Lock()
	p := s.of(id)
	back, over := p.back, s.over
	s.mu.Unlock()
	if back == nil || over {
		return true // what becomes of the message, it finds out itself
	}
	timer := time.NewTimer(awayTime)
	defer timer.Stop()
	select {
	case <-back:
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.over
	case <-timer.C:
		return false
	}
}

// release ends all waits: another node leads. With over nobody waits any more.
func (s *stragglers) release(over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = s.over || over
	for _, p := range s.peers {
		if p.back != nil {
			close(p.back)
			p.back = nil
		}
	}
}

// InstallSnapshot implements raft.Transport.
func (s *stragglers) InstallSnapshot(id raft.ServerID, addr raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if !s.reached(id) {
		return errAway
	}
	return s.witness.InstallSnapshot(id, addr, req, resp, data)
}

// AppendEntriesPipeline implements raft.Transport.
func (s *stragglers) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	s.mu.Lock()
	has := s.of(id).has
	s.mu.Unlock()
	if s.last() > has+2*s.most {
		return nil, raft.ErrPipelineReplicationNotSupported // goes on message by message
	}
	p, err := s.witness.AppendEntriesPipeline(id, addr)
	if err != nil {
		return nil, err
	}
	return &pipeline{p, s}, nil
}

// pipeline ends when its member falls behind.
type pipeline struct {
	raft.AppendPipeline
	s *stragglers
}

// AppendEntries implements raft.AppendPipeline.
func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	n := uint64(len(req.Entries))
	if n >= p.s.most && p.s.last() > req.PrevLogEntry+n+8*p.s.most {
		return nil, errBehind
	}
	return p.AppendPipeline.AppendEntries(req, resp)
}
