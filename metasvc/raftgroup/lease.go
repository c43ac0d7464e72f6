package raftgroup

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Forever is the end of a lease that nobody can contest: there is no other voter.
const Forever int64 = math.MaxInt64

// lease is how long this node is certain to be the only leader without asking
// anybody: a voter that has taken a message of the leader starts no election, and
// votes in none, for a heartbeat timeout after it. So the lease is counted from
// before the newest message was sent that each of a majority has accepted, and
// is shorter than that timeout.
//
// It is not renewed by VerifyLeader, which the library lets succeed by the late
// answer to a message that was sent long before the question.
type lease struct {
	until atomic.Int64 // by now; 0 = none

	now     func() int64 // ns, monotonic
	length  int64        // ns
	self    string
	renewed func() // it holds again after it had lapsed; may be nil

	mu        sync.Mutex
	term      uint64 // of the leadership, 0 = none
	suspended int    // transfers under way
	voter     bool   // this node is one
	others    []string
	accepted  map[string]acceptance
	times     []int64 // scratch
}

// acceptance is the newest message that a voter has accepted.
type acceptance struct {
	term uint64
	sent int64
}

func newLease(cfg *Config) *lease {
	l := &lease{now: cfg.Mono, length: int64(cfg.Timing.Lease), self: cfg.NodeID, renewed: cfg.OnLease,
		accepted: make(map[string]acceptance)}
	if l.now == nil {
		start := time.Now()
		l.now = func() int64 { return int64(time.Since(start)) }
	}
	return l
}

// begin is called with a leadership, or 0 at its end.
func (l *lease) begin(term uint64, c raft.Configuration) {
	l.mu.Lock()
	l.term = term
	l.setVoters(c)
	l.count()
}

// configure takes in another configuration.
func (l *lease) configure(c raft.Configuration) {
	l.mu.Lock()
	l.setVoters(c)
	l.count()
}

func (l *lease) setVoters(c raft.Configuration) {
	l.voter, l.others = false, l.others[:0]
	for _, s := range c.Servers {
		switch {
		case s.Suffrage != raft.Voter:
		case string(s.ID) == l.self:
			l.voter = true
		default:
			l.others = append(l.others, string(s.ID))
		}
	}
}

// took notes that a member has accepted a message of this leader.
func (l *lease) took(id string, term uint64, sent int64) {
	l.mu.Lock()
	if a := l.accepted[id]; term < a.term || term == a.term && sent <= a.sent {
		l.mu.Unlock()
		return
	}
	l.accepted[id] = acceptance{term, sent}
	l.count()
}

// suspend ends the lease while the leadership is being given away.
func (l *lease) suspend() {
	l.mu.Lock()
	l.suspended++
	l.count()
}

// resume undoes suspend. What was accepted before counts no more: whoever was to
// lead may have begun to stand for election.
func (l *lease) resume() {
	l.mu.Lock()
	l.suspended--
	clear(l.accepted)
	l.count()
}

// count finds out how long the lease goes, and unlocks it.
func (l *lease) count() {
	until := l.end()
	old := l.until.Swap(until)
	l.mu.Unlock()
	if l.renewed != nil && until != 0 && old != Forever {
		if now := l.now(); old <= now && until > now {
			l.renewed()
		}
	}
}

func (l *lease) end() int64 {
	if l.term == 0 || l.suspended > 0 {
		return 0
	}
	need, voters := 0, len(l.others)
	if l.voter {
		voters++
		need--
	}
	need += voters/2 + 1
	if need <= 0 {
		return Forever
	}
	l.times = l.times[:0]
	for _, id := range l.others {
		if a := l.accepted[id]; a.term == l.term {
			l.times = append(l.times, a.sent)
		}
	}
	if len(l.times) < need {
		return 0
	}
	slices.Sort(l.times)
	return l.times[len(l.times)-need] + l.length
}

// witness is a transport that tells the lease what members have accepted. Raft
// sends its heartbeats over AppendEntries, whatever else is in a pipeline.
type witness struct {
	raft.Transport
	pre   raft.WithPreVote // the same
	lease *lease
}

var (
	_ raft.WithPreVote = (*witness)(nil)
	_ raft.WithClose   = (*witness)(nil)
)

// AppendEntries implements raft.Transport.
func (w *witness) AppendEntries(id raft.ServerID, addr raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	sent := w.lease.now()
	err := w.Transport.AppendEntries(id, addr, req, resp)
	if err == nil && resp.Success && resp.Term == req.Term {
		w.lease.took(string(id), req.Term, sent)
	}
	return err
}

// RequestPreVote implements raft.WithPreVote.
func (w *witness) RequestPreVote(id raft.ServerID, addr raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return w.pre.RequestPreVote(id, addr, req, resp)
}

// Close implements raft.WithClose.
func (w *witness) Close() error {
	if c, ok := w.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}

// observe puts a witness before a transport.
func (l *lease) observe(t raft.Transport) (*witness, error) {
	pre, ok := t.(raft.WithPreVote)
	if !ok {
		return nil, fmt.Errorf("raftgroup: a %T has no pre-votes", t)
	}
	return &witness{t, pre, l}, nil
}

// Lease returns until when this node is certain to be the only leader, on the clock
// of [Config.Mono] in nanoseconds: 0 or a time in the past when it is not, Forever
// while there is no other voter. It is an atomic load.
func (g *Group) Lease() int64 { return g.lease.until.Load() }
