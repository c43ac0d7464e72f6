package raftgroup

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// faulty is a transport whose peers are away or not.
type faulty struct {
	raft.Transport
	raft.WithPreVote
	away bool
	sent int
}

func (f *faulty) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	f.sent++
	if f.away {
		return errors.New("no route")
	}
	resp.Success, resp.Term = true, req.Term
	return nil
}

func (f *faulty) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return noPipeline{}, nil
}

type noPipeline struct{ raft.AppendPipeline }

func (noPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	return nil, nil
}

func newFaulty(last *uint64) (*faulty, *stragglers) {
	f := &faulty{}
	w := &witness{f, f, newLease(&Config{Timing: Timing{Lease: time.Second}})}
	return f, newStragglers(w, func() uint64 { return *last }, 16)
}

func entries(after uint64, n int) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: after, Entries: make([]*raft.Log, n), LeaderCommitIndex: 1}
}

var beat = &raft.AppendEntriesRequest{Term: 1}

func (s *stragglers) send(req *raft.AppendEntriesRequest) error {
	return s.AppendEntries("b", "b", req, &raft.AppendEntriesResponse{})
}

// TestStragglerGetsNoPipeline: a member that is behind is sent the log message by message,
// which goes on by itself, and one that falls behind in a pipeline leaves it.
func TestStragglerGetsNoPipeline(t *testing.T) {
	last := uint64(5000)
	_, s := newFaulty(&last)
	if err := s.send(entries(100, 16)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AppendEntriesPipeline("b", "b"); !errors.Is(err, raft.ErrPipelineReplicationNotSupported) {
		t.Fatalf("a pipeline for a member at 116 of 5000: %v", err)
	}
	if err := s.send(beat); err != nil { // says nothing of the log
		t.Fatal(err)
	}
	if err := s.send(entries(4970, 16)); err != nil {
		t.Fatal(err)
	}
	p, err := s.AppendEntriesPipeline("b", "b")
	if err != nil {
		t.Fatalf("no pipeline for a member at 4986 of 5000: %v", err)
	}
	for _, c := range []struct {
		after, last uint64
		n           int
		behind      bool
	}{{4986, 5000, 14, false}, {5000, 5100, 16, false}, {5016, 5200, 16, true}, {5016, 9000, 3, false}} {
		last = c.last
		if _, err := p.AppendEntries(entries(c.after, c.n), nil); errors.Is(err, errBehind) != c.behind {
			t.Errorf("%d entries after %d of %d: %v", c.n, c.after, c.last, err)
		}
	}
}

// TestMessagesWaitForWhoIsAway: what is sent to a member that is away goes out when a
// heartbeat has got through, not after a pause that has grown meanwhile.
func TestMessagesWaitForWhoIsAway(t *testing.T) { synctest.Test(t, testMessagesWaitForWhoIsAway) }

func testMessagesWaitForWhoIsAway(t *testing.T) {
	last := uint64(100)
	f, s := newFaulty(&last)
	f.away = true
	if s.send(entries(1, 1)) == nil {
		t.Fatal("it is away")
	}
	begin := time.Now()
	if err := s.send(entries(1, 1)); !errors.Is(err, errAway) || time.Since(begin) != awayTime || f.sent != 1 {
		t.Fatalf("after %v, %d sent: %v", time.Since(begin), f.sent, err)
	}
	got := make(chan error, 1)
	go func() { got <- s.send(entries(1, 1)) }()
	synctest.Wait()
	if s.send(beat) == nil {
		t.Fatal("it is away")
	}
	f.away = false
	if err := s.send(beat); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil || f.sent != 4 {
		t.Fatalf("%d sent: %v", f.sent, err)
	}

	f.away = true
	_ = s.send(beat)
	go func() { got <- s.send(entries(2, 1)) }()
	synctest.Wait()
	s.release(true)
	if err := <-got; !errors.Is(err, errAway) {
		t.Fatalf("who stops waits: %v", err)
	}
	_ = s.send(beat)
	if err := s.send(entries(2, 1)); errors.Is(err, errAway) {
		t.Fatal("after the end somebody waits")
	}
}
