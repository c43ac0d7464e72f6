package raftgroup

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestLeaderWhoseDiskHangs: heartbeats need no disk, and those of a leader whose disk hangs
// would keep the others from electing somebody else. A sync that is only slow ends nothing.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	for name, op := range map[string]vfs.Op{"write": vfs.OpWrite, "sync": vfs.OpSync} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testLeaderWhoseDiskHangs(t, op) }) })
	}
}

func testLeaderWhoseDiskHangs(t *testing.T, op vfs.Op) {
	var hung atomic.Pointer[node]
	proceed := make(chan struct{}, 1)
	c := newCluster(t, nodeOptions{disk: func(id string, fs vfs.FS) vfs.FS {
		return vfs.NewFault(fs, vfs.Rule{Op: op, Name: "*.wal", Before: func(vfs.Op, string) {
			if n := hung.Load(); n != nil && n.id == id {
				<-proceed
			}
		}})
	}})
	lead := c.leader(t, 0, 1, 2)
	old := c.nodes[lead]
	old.propose(t, "before", 5, 10)
	others := []int{(lead + 1) % 3, (lead + 2) % 3}

	hung.Store(old)
	failed := make(chan error, 2)
	old.group.Propose([]byte("slow"), func(err error) { failed <- err })
	time.Sleep(hangFactor * fastTiming.Heartbeat / 2) // of the bubble
	if leads, _ := old.group.Leader(); !leads {
		t.Error("a slow sync has ended the leadership")
	}
	proceed <- struct{}{}
	old.machine.waitFor(t, "what was slow", func() bool { return old.machine.seen["slow"] != 0 })

	old.group.Propose([]byte("hangs"), func(err error) { failed <- err })
	next := c.leader(t, others...)
	if leads, _ := old.group.Leader(); leads || old.group.Leadership().Leader {
		t.Error("two lead")
	}
	c.nodes[next].propose(t, "after", 5, 10)
	hung.Store(nil)
	proceed <- struct{}{}
	if err := <-failed; !errors.Is(err, ErrUnknown) {
		t.Errorf("what was under way: %v", err)
	}
	c.waitEqual(t, next, (next+1)%3, (next+2)%3)
	for _, n := range c.nodes {
		n.close(t)
	}
}

// TestHungDiskAlone: the only voter waits for its disk, and leads on: nobody else could.
func TestHungDiskAlone(t *testing.T) { synctest.Test(t, testHungDiskAlone) }

func testHungDiskAlone(t *testing.T) {
	var hangs atomic.Bool
	proceed := make(chan struct{})
	n := startNode(t, "a", vfs.NewFault(vfs.NewMem(), vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Before: func(vfs.Op, string) {
		if hangs.Load() {
			<-proceed
		}
	}}), nodeOptions{timing: fastTiming})
	n.waitLeader(t)
	hangs.Store(true)
	n.group.Propose([]byte("hangs"), func(err error) { t.Errorf("it comes to nothing: %v", err) })
	time.Sleep(3 * hangFactor * fastTiming.Heartbeat) // of the bubble
	hangs.Store(false)
	close(proceed)
	n.machine.waitFor(t, "what hung", func() bool { return n.machine.seen["hangs"] != 0 })
	if leads, _ := n.group.Leader(); !leads {
		t.Error("nobody leads")
	}
	n.close(t)
}
