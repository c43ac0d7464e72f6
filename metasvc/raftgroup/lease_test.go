package raftgroup

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

func voters(ids ...string) (c raft.Configuration) {
	for _, id := range ids {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter})
	}
	return c
}

// TestLease: a lease goes on from before the message was sent that a majority has
// accepted in the term, and not while the leadership is given away.
func TestLease(t *testing.T) {
	now, renewals := int64(1000), 0
	l := newLease(&Config{NodeID: "a", Timing: Timing{Lease: 100}, Mono: func() int64 { return now }, OnLease: func() { renewals++ }})
	is := func(want int64) {
		t.Helper()
		if got := l.until.Load(); got != want {
			t.Fatalf("the lease goes until %d, want %d", got, want)
		}
	}
	l.took("b", 7, 990)
	is(0) // nobody leads
	l.begin(7, voters("a", "b", "c"))
	is(1090)
	l.took("c", 6, 1000)
	l.took("b", 7, 980)
	is(1090) // of another term, and late
	l.took("c", 7, 995)
	is(1095)
	l.configure(voters("a", "b", "c", "d", "e"))
	is(1090) // two others are needed
	l.configure(voters("a"))
	is(Forever)
	c := voters("a", "b", "c")
	c.Servers[2].Suffrage = raft.Nonvoter
	l.configure(c)
	is(1090)
	l.configure(voters("b", "c", "d")) // it leads on until it is out
	is(1090)
	l.configure(voters("a", "b", "c"))
	renewals = 0
	now = 1095
	l.took("b", 7, 1094)
	if now = 1300; renewals != 1 { // it had ended just then
		t.Fatalf("%d renewals", renewals)
	}
	l.suspend()
	is(0)
	l.took("b", 7, 1299)
	is(0)
	l.resume()
	is(0)
	l.took("c", 7, 1300)
	is(1400)
	if renewals != 2 {
		t.Fatalf("%d renewals", renewals)
	}
	l.begin(0, raft.Configuration{})
	is(0)
}

// TestLeaseEnds: the lease of a leader that is cut off ends before another one can
// be elected, and there is none after a transfer.
func TestLeaseEnds(t *testing.T) { synctest.Test(t, testLeaseEnds) }

func testLeaseEnds(t *testing.T) {
	c := newCluster(t, nodeOptions{})
	lead := c.leader(t, 0, 1, 2)
	g := c.nodes[lead].group
	held := func(g *Group) bool { return g.lease.now() < g.Lease() }
	await(t, "a lease", func() bool { return held(g) })
	c.net.Isolate(c.nodes[lead].id)
	others := []int{(lead + 1) % 3, (lead + 2) % 3}
	next := c.leader(t, others...)
	if held(g) {
		t.Fatal("the old leader has a lease while another one leads")
	}
	c.net.Rejoin(c.nodes[lead].id)
	g = c.nodes[next].group
	await(t, "a lease of the new leader", func() bool { return held(g) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	await(t, "a transfer", func() bool {
		return c.nodes[next].group.TransferLeadershipTo(ctx, c.nodes[lead].id) == nil
	})
	if held(g) {
		t.Fatal("there is a lease after a transfer")
	}
	c.nodes[c.leader(t, lead)].propose(t, "x", 3, 10)
	if err := g.TransferLeadershipTo(ctx, "nobody"); err == nil {
		t.Fatal("nobody got the leadership")
	}
	for _, n := range c.nodes {
		n.close(t)
	}
}

// TestLeaseAlone: who is the only voter has a lease without an end.
func TestLeaseAlone(t *testing.T) {
	n := startNode(t, "a", vfs.NewMem(), nodeOptions{})
	n.waitLeader(t)
	if n.group.Lease() != Forever || !n.group.Alone() || !n.group.MayVote() {
		t.Fatalf("lease %d, alone %v, votes: %v", n.group.Lease(), n.group.Alone(), n.group.MayVote())
	}
	n.close(t)
}

// TestNoVoteAfterStart: a node that has just been started votes for nobody until the
// lease must be over of whom it may have heard of before, and says that it does not.
func TestNoVoteAfterStart(t *testing.T) {
	log, err := wal.Open(vfs.NewMem(), "wal", wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	now := int64(0)
	s := &store{Group: log.Group(7), now: func() int64 { return now }}
	s.quiet.Store(100)
	if err := s.SetUint64([]byte(keyVoteTerm), 3); !errors.Is(err, errQuiet) || s.mayVote() {
		t.Fatalf("a vote is stored: %v", err)
	}
	if err := s.SetUint64([]byte(keyCurrentTerm), 3); err != nil {
		t.Fatal(err)
	}
	if now = 100; !s.mayVote() {
		t.Error("it votes no more")
	}
	if err := errors.Join(s.SetUint64([]byte(keyVoteTerm), 3), s.Set([]byte("LastVoteCand"), []byte("b")), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCandidacy: the last term in which a node may have appended proposals is that of its
// last vote for itself, whoever was elected since.
func TestCandidacy(t *testing.T) {
	log, err := wal.Open(vfs.NewMem(), "wal", wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := &Group{store: &store{Group: log.Group(7), now: func() int64 { return 1 }, self: []byte("a")}}
	for _, vote := range []struct {
		term uint64
		whom string
		want uint64
	}{{2, "b", 0}, {3, "a", 3}, {5, "b", 3}, {6, "a", 6}} {
		err := errors.Join(g.store.SetUint64([]byte(keyCurrentTerm), vote.term),
			g.store.SetUint64([]byte(keyVoteTerm), vote.term), g.store.Set([]byte(keyVoteFor), []byte(vote.whom)))
		if got := g.Candidacy(); err != nil || got != vote.want {
			t.Errorf("after the vote for %s in term %d: %d, want %d (%v)", vote.whom, vote.term, got, vote.want, err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("there is no %s", what)
		}
	}
}
