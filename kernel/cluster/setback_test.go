package cluster

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TestSetBackDirectory: a node whose directory is an older copy does not vote with what
// it has left.
func TestSetBackDirectory(t *testing.T) {
	list := three(t)
	propose(t, list...)
	until(t, "all have it", func() bool { return list[1].toy.applied() >= 1 && list[2].toy.applied() >= 1 })
	for i, m := range list { // a follower, then the leader
		leads, _ := m.placed.Leader()
		if leads {
			continue
		}
		old := m.dir.copied()
		for range 5 {
			propose(t, list...)
		}
		until(t, "the node has confirmed it", func() bool { return m.toy.applied() >= 6 })
		m.stop()
		refusedBack(t, old, "", list[(i+1)%3].address())
		return
	}
}

// TestSetBackLeader: what a follower got from its leader is what that one must have.
func TestSetBackLeader(t *testing.T) {
	list := three(t)
	propose(t, list...)
	var lead *member
	var old *dir
	until(t, "a leader stays and is known", func() bool { // a busy machine may depose it
		if lead = placedLeader(list); lead == nil {
			return false
		}
		term := lead.placed.Term()
		old = lead.dir.copied()
		for range 5 {
			propose(t, list...)
		}
		all, index := lead.toy.applied(), lead.placed.CommitIndex()
		known := func(m *member) bool {
			m.node.seen.mu.Lock()
			defer m.node.seen.mu.Unlock()
			return m == lead || m.toy.applied() >= all && m.placed.CommitIndex() >= index &&
				m.node.seen.of[witnessKey{placedGroup, lead.dir.identity.Raft}].led == term
		}
		for placedLeader(list) == lead && lead.placed.Term() == term {
			if known(list[0]) && known(list[1]) && known(list[2]) {
				return true
			}
			<-time.After(time.Millisecond)
		}
		return false
	})
	var seeds []string
	for _, m := range list {
		if m != lead {
			seeds = append(seeds, m.address())
		}
	}
	lead.stop()
	refusedBack(t, old, "", seeds...)
}

// placedLeader returns who leads the placement group, nil if nobody does.
func placedLeader(list []*member) *member {
	for _, m := range list {
		if leads, _ := m.placed.Leader(); leads {
			return m
		}
	}
	return nil
}

// TestSetBackWhileAllWereStopped: what was promised is known after the others have
// stopped, too.
func TestSetBackWhileAllWereStopped(t *testing.T) {
	list := three(t)
	propose(t, list...)
	until(t, "all have it", func() bool { return list[1].toy.applied() >= 1 && list[2].toy.applied() >= 1 })
	old := list[2].dir.copied()
	for range 5 {
		propose(t, list...)
	}
	for _, m := range list {
		until(t, "all have all", func() bool { return m.toy.applied() >= 6 })
		key := witnessKey{placedGroup, list[2].dir.identity.Raft}
		if leads, _ := list[0].placed.Leader(); m == list[0] && leads {
			until(t, "the leader knows it", func() bool {
				m.node.seen.mu.Lock()
				defer m.node.seen.mu.Unlock()
				return m.node.seen.of[key].floor >= m.placed.CommitIndex()
			})
		}
	}
	var addresses []string
	for _, m := range list {
		addresses = append(addresses, m.address())
		m.stop()
	}
	for i := range 2 {
		if _, err := start(t, list[i].dir, addresses[i], addresses...); err != nil {
			t.Fatal(err)
		}
	}
	refusedBack(t, old, addresses[2], addresses...)
}

// refusedBack starts a node on an older image of its directory, which the others mind: at
// once or a moment later.
func refusedBack(t *testing.T, old *dir, listen string, seeds ...string) {
	t.Helper()
	back, err := start(t, old, listen, seeds...)
	if err == nil {
		select {
		case err = <-back.refused:
		case <-time.After(time.Minute):
			t.Fatal("nobody minds")
		}
	}
	refusedWith(t, err, transport.CodeRolledBack)
}
