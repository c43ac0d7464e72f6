package raftgroup

import (
	"errors"

	"github.com/hashicorp/raft"
)

// hangFactor is how many heartbeat timeouts a write with its sync takes until the disk counts
// as one that hangs. One that is slow only makes what is published wait for it.
const hangFactor = 10

var errHangs = errors.New("the disk hangs: others are to lead")

// silent is a transport through which a leader whose disk hangs says nothing. It commits
// nothing until the write returns, which it may never, and Raft's heartbeats, that need no
// disk, would keep the others from electing somebody who can. What it is asked, and what it
// answers, are for Raft's main loop, which hangs as well.
type silent struct {
	raft.Transport
	pre raft.WithPreVote // the same
	now func() bool
}

var (
	_ raft.WithPreVote = (*silent)(nil)
	_ raft.WithClose   = (*silent)(nil)
)

// hangs reports whether a write to the log has been under way for too long.
func (g *Group) hangs() bool {
	return g.cfg.Group.Writing() >= hangFactor*g.cfg.Timing.Heartbeat
}

// lookAtDisk ends a leadership, as far as Watch is told, if the disk hangs, and falls silent
// after that. So it stays until the library has stepped down, which it does when the write has
// returned: whoever serves would not know whether another one has begun to. The supervisor's.
func (g *Group) lookAtDisk() {
	l := g.leadership.Load()
	if !l.Leader || !g.hangs() || g.Lease() == Forever { // with no other voter the library would not step down
		return
	}
	g.cfg.Logger.Error().Uint32("group", g.cfg.Group.ID()).Dur("for", g.cfg.Group.Writing()).Msg("a write to the log hangs: others are to lead")
	g.lease.begin(0, raft.Configuration{})
	g.announce(Leadership{Term: l.Term})
	g.mute.Store(true)
}

// silence puts a silent before a transport.
func (g *Group) silence(t raft.Transport) raft.Transport {
	pre, ok := t.(raft.WithPreVote)
	if !ok {
		return t // lease.observe refuses it
	}
	return &silent{t, pre, g.mute.Load}
}

// AppendEntries implements raft.Transport.
func (s *silent) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if s.now() {
		return errHangs
	}
	return s.Transport.AppendEntries(id, addr, req, resp)
}

// AppendEntriesPipeline implements raft.Transport. Raft sends through a pipeline also when
// there is nothing new.
func (s *silent) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	if s.now() {
		return nil, errHangs
	}
	p, err := s.Transport.AppendEntriesPipeline(id, addr)
	if err != nil {
		return nil, err
	}
	return &silentPipeline{p, s.now}, nil
}

// RequestPreVote implements raft.WithPreVote.
func (s *silent) RequestPreVote(id raft.ServerID, addr raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return s.pre.RequestPreVote(id, addr, req, resp)
}

// Close implements raft.WithClose.
func (s *silent) Close() error {
	if c, ok := s.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}

type silentPipeline struct {
	raft.AppendPipeline
	now func() bool
}

// AppendEntries implements raft.AppendPipeline.
func (p *silentPipeline) AppendEntries(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.now() {
		return nil, errHangs
	}
	return p.AppendPipeline.AppendEntries(req, resp)
}
