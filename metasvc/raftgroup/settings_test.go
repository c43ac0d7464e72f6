package raftgroup

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestSettings: the settings of the library without which something else does not hold.
func TestSettings(t *testing.T) {
	n := startNode(t, "a", vfs.NewMem(), nodeOptions{})
	defer n.close(t)
	c := n.group.raftConfig()
	for what, ok := range map[string]bool{
		"a proposer gets more than one entry into a sync":                c.BatchApplyCh,
		"a node that was cut off raises no term":                         !c.PreVoteDisabled,
		"the library makes no snapshots":                                 c.SnapshotThreshold > 1<<62 && c.SnapshotInterval >= time.Hour,
		"checkpoints are restored before NewRaft, and not by it":         c.NoSnapshotRestoreOnStart && !c.RestoreCommittedLogs,
		"a removed member is not stopped behind our back":                !c.ShutdownOnRemove,
		"a slow watcher does not hold the main loop up at once":          c.NotifyCh != nil && cap(c.NotifyCh) >= 16,
		"no names of peers in metrics":                                   c.NoLegacyTelemetry,
		"group commits and messages are bounded: 16 entries":             c.MaxAppendEntries == 16,
		"a stall of the disk of some 200 ms ends no leadership":          c.LeaderLeaseTimeout >= 400*time.Millisecond,
		"a leader gives up before another one can be elected":            c.LeaderLeaseTimeout < c.HeartbeatTimeout && c.HeartbeatTimeout == c.ElectionTimeout,
		"messages to members that are away for a moment stay in the log": n.group.cfg.KeepPeers >= 64<<20,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	if _, err := n.group.fsm.Snapshot(); !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		t.Errorf("a snapshot: %v", err)
	}
}

// TestManyProposalsASync: what is proposed while a sync is under way goes with the next
// one, all together, also from one proposer.
func TestManyProposalsASync(t *testing.T) {
	fault := vfs.NewFault(vfs.NewMem())
	n := startNode(t, "a", fault, nodeOptions{})
	n.waitLeader(t)
	n.propose(t, "before", 1, 10)
	fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Delay: 20 * time.Millisecond})
	before, count := n.wal.Stats().Syncs, 160
	_, had, _ := n.machine.state()
	for range count {
		n.group.Propose([]byte("x"), func(err error) { t.Errorf("not applied: %v", err) })
	}
	n.machine.waitFor(t, "all of them", func() bool { return n.machine.count == had+uint64(count) })
	if syncs := n.wal.Stats().Syncs - before; syncs > int64(count)/4 {
		t.Errorf("%d syncs for %d proposals", syncs, count)
	}
	fault.Clear()
	n.close(t)
}

// TestWhoComesBackDisturbsNobody: a follower that hears nobody asks whether it would be
// elected before it stands for election. So it raises no term, and whoever leads when it
// is back goes on. The transports on top of the library's must not hide that they can ask.
func TestWhoComesBackDisturbsNobody(t *testing.T) {
	synctest.Test(t, testWhoComesBackDisturbsNobody)
}

func testWhoComesBackDisturbsNobody(t *testing.T) {
	c := newCluster(t, nodeOptions{})
	lead := c.leader(t, 0, 1, 2)
	away := (lead + 1) % 3
	c.nodes[lead].propose(t, "before", 3, 10)
	c.waitEqual(t, lead, away, (lead+2)%3)
	term := c.nodes[lead].group.Term()
	for round := range 3 {
		c.net.Isolate(c.nodes[away].id)
		time.Sleep(20 * fastTiming.Heartbeat) // of the bubble: many elections could have begun
		if got := c.nodes[away].group.Term(); got != term {
			t.Errorf("alone it has come to term %d, from %d", got, term)
		}
		c.net.Rejoin(c.nodes[away].id)
		c.nodes[lead].propose(t, fmt.Sprint("after", round), 3, 10)
		c.waitEqual(t, lead, away, (lead+2)%3)
	}
	// Deaf on one side: it is heard, and hears nobody.
	for _, n := range c.nodes {
		if n != c.nodes[away] {
			c.net.Cut(n.id, c.nodes[away].id)
		}
	}
	time.Sleep(20 * fastTiming.Heartbeat)
	if ok, _ := c.nodes[lead].group.Leader(); !ok || c.nodes[lead].group.Term() != term {
		t.Errorf("a member that hears nobody has ended a leadership: term %d, from %d", c.nodes[lead].group.Term(), term)
	}
	for _, n := range c.nodes {
		c.net.Rejoin(n.id)
	}
	c.nodes[c.leader(t, 0, 1, 2)].propose(t, "end", 3, 10)
	for _, n := range c.nodes {
		n.close(t)
	}
}
