package transport

import (
	"io"
	"strings"

	"github.com/hashicorp/raft"
)

// Witness learns what peers have promised this node: that they have the log up to
// an index, in its present term, or that they have voted in a term. Its methods are
// called on goroutines of Raft and must return at once.
type Witness interface {
	// Acknowledged: the peer has the entry at index, which is this node's. stored says that
	// it has just stored some, and so has stored the term, too: one whose disk fails answers
	// what is empty also in a term that it could not store.
	Acknowledged(group uint32, raftID string, term, index uint64, stored bool)
	// Voted: the peer has been in the term.
	Voted(group uint32, raftID string, term uint64)
}

// serial passes every message through Raft's main loop: see [Mux.Group]. It tells
// the layer below whom a connection is for, and the witness what has come of it.
// Embedding keeps the optional methods.
type serial struct {
	*raft.NetworkTransport
	group   uint32
	resolve func(raftID string) (string, error)
	witness Witness
}

var _ raft.WithPreVote = (*serial)(nil)

// SetHeartbeatHandler implements raft.Transport; see [Mux.Group].
func (*serial) SetHeartbeatHandler(func(raft.RPC)) {}

// target is the node and its present address in one, as the layer wants it.
func (s *serial) target(id raft.ServerID, addr raft.ServerAddress) raft.ServerAddress {
	if s.resolve != nil {
		if now, err := s.resolve(string(id)); err == nil {
			addr = raft.ServerAddress(now)
		}
	}
	return raft.ServerAddress(id) + "\x00" + addr
}

func splitTarget(addr raft.ServerAddress) (id, at string) {
	id, at, ok := strings.Cut(string(addr), "\x00")
	if !ok {
		return "", id
	}
	return id, at
}

// AppendEntriesPipeline implements raft.Transport.
func (s *serial) AppendEntriesPipeline(id raft.ServerID, addr raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := s.NetworkTransport.AppendEntriesPipeline(id, s.target(id, addr))
	if err != nil || s.witness == nil {
		return p, err
	}
	return newWitnessed(p, func(req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) { s.appended(id, req, resp) }), nil
}

// AppendEntries implements raft.Transport.
func (s *serial) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := s.NetworkTransport.AppendEntries(id, s.target(id, addr), req, resp)
	if err == nil {
		s.appended(id, req, resp)
	}
	return err
}

func (s *serial) appended(id raft.ServerID, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	if s.witness != nil && resp.Success {
		n := len(req.Entries)
		s.witness.Acknowledged(s.group, string(id), resp.Term, req.PrevLogEntry+uint64(n), n > 0)
	}
}

// RequestVote implements raft.Transport.
func (s *serial) RequestVote(id raft.ServerID, addr raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	err := s.NetworkTransport.RequestVote(id, s.target(id, addr), req, resp)
	if err == nil && resp.Granted && s.witness != nil {
		s.witness.Voted(s.group, string(id), resp.Term)
	}
	return err
}

// RequestPreVote implements raft.WithPreVote.
func (s *serial) RequestPreVote(id raft.ServerID, addr raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return s.NetworkTransport.RequestPreVote(id, s.target(id, addr), req, resp)
}

// InstallSnapshot implements raft.Transport.
func (s *serial) InstallSnapshot(id raft.ServerID, addr raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return s.NetworkTransport.InstallSnapshot(id, s.target(id, addr), req, resp, data)
}

// TimeoutNow implements raft.Transport.
func (s *serial) TimeoutNow(id raft.ServerID, addr raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return s.NetworkTransport.TimeoutNow(id, s.target(id, addr), req, resp)
}

// witnessed is a pipeline whose answers are looked at before Raft gets them.
type witnessed struct {
	raft.AppendPipeline
	out  chan raft.AppendFuture
	stop chan struct{}
	done chan struct{}
}

func newWitnessed(p raft.AppendPipeline, look func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse)) *witnessed {
	w := &witnessed{AppendPipeline: p, out: make(chan raft.AppendFuture), stop: make(chan struct{}), done: make(chan struct{})}
	go w.pass(look)
	return w
}

func (w *witnessed) pass(look func(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse)) {
	defer close(w.done)
	for {
		select {
		case f := <-w.AppendPipeline.Consumer():
			if f.Error() == nil {
				look(f.Request(), f.Response())
			}
			select {
			case w.out <- f:
			case <-w.stop:
				return
			}
		case <-w.stop:
			return
		}
	}
}

// Consumer implements raft.AppendPipeline.
func (w *witnessed) Consumer() <-chan raft.AppendFuture { return w.out }

// Close implements raft.AppendPipeline. It is called once.
func (w *witnessed) Close() error {
	err := w.AppendPipeline.Close()
	close(w.stop)
	<-w.done
	return err
}
