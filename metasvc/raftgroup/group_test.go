package raftgroup

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

func TestSingleVoter(t *testing.T) {
	disk := vfs.NewMem()
	slow := nodeOptions{timing: Timing{Heartbeat: time.Hour}} // who is alone waits for nobody
	n := startNode(t, "a", disk, slow)
	first := n.waitLeader(t)
	n.propose(t, "x", 200, 100)
	if err := n.group.VerifyLeader(context.Background()); err != nil {
		t.Error(err)
	}
	if err := n.group.Barrier(context.Background()); err != nil {
		t.Error(err)
	}
	index, count, sum := n.machine.state()
	n.close(t)

	n = startNode(t, "a", disk, slow)
	second := n.waitLeader(t)
	if second.Term <= first.Term {
		t.Errorf("term %d after %d", second.Term, first.Term)
	}
	if i, c, s := n.machine.state(); i != index || c != count || s != sum {
		t.Errorf("replayed to %d %d %x, not %d %d %x", i, c, s, index, count, sum)
	}
	meta := n.checkpoint(t)
	n.propose(t, "y", 50, 100)
	index, count, sum = n.machine.state()
	n.close(t)

	n = startNode(t, "a", disk, slow)
	n.waitLeader(t)
	if i, c, s := n.machine.state(); i != index || c != count || s != sum {
		t.Errorf("restored to %d %d %x, not %d %d %x", i, c, s, index, count, sum)
	}
	if n.machine.restores != 1 || meta.Index == 0 || meta.ConfigurationIndex != 1 {
		t.Errorf("restores %d, checkpoint %+v", n.machine.restores, meta)
	}
	n.close(t)
	if err := n.group.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	failed := make(chan error, 1)
	n.group.Propose(nil, func(err error) { failed <- err })
	if err := <-failed; !errors.Is(err, ErrNotApplied) {
		t.Errorf("propose after close: %v", err)
	}
}

func TestCutKeeps(t *testing.T) {
	n := startNode(t, "a", vfs.NewMem(), nodeOptions{keep: 10 << 10, fileSize: 16 << 10})
	n.waitLeader(t)
	n.propose(t, "x", 100, 1000)
	meta := n.checkpoint(t)
	first, _ := n.wal.Group(7).FirstIndex()
	kept := n.wal.Group(7).Bytes(first, meta.Index)
	if kept < 10<<10 || kept > 12<<10 {
		t.Errorf("kept %d bytes from %d to %d", kept, first, meta.Index)
	}
	if files := n.wal.Stats().Files; files > 2 {
		t.Errorf("%d files remain", files)
	}
	if err := n.group.Cut(meta.Index + 1); err == nil {
		t.Error("cut beyond the checkpoint")
	}
	n.close(t)
}

// TestReconcile is about the places where a crash may come between writing a
// checkpoint, installing one, and cutting or emptying the log.
func TestReconcile(t *testing.T) {
	tests := []struct {
		name        string
		first, last uint64 // of the log, in term 2
		index, term uint64 // of the checkpoint
		wantFirst   uint64
		corrupt     bool
	}{
		{name: "fresh"},
		{name: "no checkpoint yet", first: 1, last: 9, wantFirst: 1},
		{name: "checkpoint written, not cut", first: 1, last: 9, index: 7, term: 2, wantFirst: 1},
		{name: "cut", first: 5, last: 9, index: 7, term: 2, wantFirst: 5},
		{name: "checkpoint at the end", first: 5, last: 7, index: 7, term: 2, wantFirst: 5},
		{name: "installed, log not emptied: ends before", first: 1, last: 6, index: 7, term: 3},
		{name: "installed, log not emptied: stale tail", first: 1, last: 9, index: 7, term: 3},
		{name: "installed, log emptied", index: 7, term: 3},
		{name: "installed, log goes on", first: 8, last: 9, index: 7, term: 1, wantFirst: 8},
		{name: "gap", first: 9, last: 9, index: 7, term: 2, corrupt: true},
		{name: "begin is missing", first: 2, last: 9, corrupt: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, err := wal.Open(vfs.NewMem(), "wal", wal.Options{NoAhead: true})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			g := w.Group(1)
			for i := tt.first; i > 0 && i <= tt.last; i++ {
				if err := g.StoreLog(&raft.Log{Index: i, Term: 2}); err != nil {
					t.Fatal(err)
				}
			}
			err = reconcile(g, checkpoint.Meta{Index: tt.index, Term: tt.term})
			if errors.Is(err, ErrCorrupt) != tt.corrupt || (err != nil && !tt.corrupt) {
				t.Fatalf("error %v", err)
			}
			if first, _ := g.FirstIndex(); !tt.corrupt && first != tt.wantFirst {
				t.Errorf("log begins at %d, not %d", first, tt.wantFirst)
			}
		})
	}
}

func TestOpenRefusesWrongState(t *testing.T) {
	disk := vfs.NewMem()
	n := startNode(t, "a", disk, nodeOptions{})
	n.waitLeader(t)
	n.propose(t, "x", 3, 10)
	meta := n.checkpoint(t)
	n.close(t)
	w, err := wal.Open(disk, "a/wal", wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_, err = Open(Config{Group: w.Group(7), NodeID: "a", Checkpoints: n.store, Machine: newTally(), Restored: meta.Index - 1})
	if err == nil {
		t.Error("opened with a machine that is not at the checkpoint")
	}
}

// TestBootstrapAgain: the crash comes between the two writes of a bootstrap.
func TestBootstrapAgain(t *testing.T) {
	disk := vfs.NewMem()
	w, err := wal.Open(disk, "a/wal", wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Group(7).SetUint64([]byte(keyCurrentTerm), 1); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, "a", disk, nodeOptions{})
	n.waitLeader(t)
	n.close(t)
}

// TestFailedSync: nothing is confirmed after a failed sync, the error is final,
// and the process neither panics nor hangs.
func TestFailedSync(t *testing.T) {
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk)
	n := startNode(t, "a", fault, nodeOptions{})
	n.waitLeader(t)
	n.propose(t, "x", 10, 100)
	index, count, sum := n.machine.state()
	fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Times: 1, Err: io.ErrUnexpectedEOF})
	failed := make(chan error, 1)
	for range 3 {
		n.group.Propose([]byte("lost"), func(err error) { failed <- err })
		if err := <-failed; !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotApplied) {
			t.Errorf("failed with %v", err)
		}
	}
	if !errors.Is(n.wal.Err(), wal.ErrFailed) {
		t.Errorf("log: %v", n.wal.Err())
	}
	if err := n.group.VerifyLeader(context.Background()); err == nil {
		t.Error("still leads")
	}
	n.close(t)
	if i, c, s := n.machine.state(); i != index || c != count || s != sum {
		t.Error("a command was applied after the failure")
	}

	n = startNode(t, "a", disk.CrashClone(nil), nodeOptions{})
	n.waitLeader(t)
	if _, c, _ := n.machine.state(); c != count {
		t.Errorf("%d commands, not %d", c, count)
	}
	n.close(t)
}

// TestFullDisk: proposals are refused as not applied, and go on once there is
// space again, without a restart.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	n := startNode(t, "a", disk, nodeOptions{fileSize: 64 << 10, timing: fastTiming})
	n.waitLeader(t)
	disk.SetFree(0)
	failed := make(chan error, 1)
	sent, full := 0, false
	for ; sent < 1000 && !full; sent++ {
		n.group.Propose(append([]byte{byte(sent), byte(sent >> 8)}, make([]byte, 5000)...), func(err error) { failed <- err })
		n.machine.mu.Lock()
		for n.machine.count != uint64(sent+1) && len(failed) == 0 {
			timer := time.AfterFunc(time.Millisecond, n.machine.cond.Broadcast)
			n.machine.cond.Wait()
			timer.Stop()
		}
		full = len(failed) > 0
		n.machine.mu.Unlock()
	}
	if err := <-failed; !errors.Is(err, ErrNotApplied) || !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("full disk: %v", err)
	}
	disk.SetFree(-1)
	n.waitLeader(t)
	n.propose(t, "again", 10, 100)
	if err := n.wal.Err(); err != nil {
		t.Error(err)
	}
	n.close(t)
}

// TestCheckpointWhileApplying: what a machine captures in Apply may become a
// checkpoint before that call has returned.
func TestCheckpointWhileApplying(t *testing.T) {
	n := startNode(t, "a", vfs.NewMem(), nodeOptions{})
	n.waitLeader(t)
	n.machine.mu.Lock()
	n.machine.during = func(index uint64) {
		meta, err := n.group.CheckpointMeta(index)
		if err != nil || meta.Index != index || meta.Term == 0 || meta.ConfigurationIndex != 1 {
			t.Errorf("at %d: %+v, %v", index, meta, err)
		}
		if _, err := n.group.CheckpointMeta(index + 100); err == nil {
			t.Error("a checkpoint of what is not there yet")
		}
	}
	n.machine.mu.Unlock()
	n.propose(t, "x", 20, 100)
	n.close(t)
}
