package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// asides are the directories with what was damaged.
func asides(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, asidePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRejoinAfterDamage: a node whose log is damaged in the middle comes back by itself
// under another name, with all that was confirmed; what it had lies beside. When that is
// still there at the next damage, it does not start, and says so.
func TestRejoinAfterDamage(t *testing.T) {
	dirs, at, peers := threePeers(t)
	first, b := whoServes(t, peers, 3)
	publishHundred(t, b)
	i := 0
	if peers[i] == first {
		i = 1
	}
	peers[i].end(t)
	was := peers[i].ID()
	damage(t, files(t, filepath.Join(dirs[i], walDir), ".wal")[0], 8<<10)
	off := Config{DataDir: dirs[i], NodeID: fmt.Sprint(i + 1), Logger: zerolog.Nop(), Cluster: Cluster{Listen: at[i]}}
	if _, err := OpenNode(soon(t), off); !errors.Is(err, ErrMember) || !errors.Is(err, wal.ErrCorrupt) {
		t.Fatalf("without rejoin: %v", err)
	}
	peers[i] = openPeer(t, dirs[i], fmt.Sprint(i+1), at[i], "") // by the addresses that it knows
	if peers[i].ID() == was {
		t.Error("it has kept its name")
	}
	_, b = whoServes(t, peers, 3)
	caughtUp(t, peers[i], b)
	aside := asides(t, dirs[i])
	if len(aside) != 1 {
		t.Fatalf("%v", aside)
	}
	for _, name := range []string{walDir, catalogDir, placementDir, nodeFileName, rejoinName} {
		if _, err := os.Stat(filepath.Join(aside[0], name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dirs[i], rejoinName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still about to join: %v", err)
	}
	if info, err := connect(t, b).Queue("q"); err != nil || info.Ready != 100 {
		t.Fatalf("%d messages, %v", info.Ready, err)
	}
	peers[i].end(t)
	peers[i] = openPeer(t, dirs[i], fmt.Sprint(i+1), at[i], "")
	peers[i].end(t)
	damage(t, files(t, filepath.Join(dirs[i], walDir), ".wal")[0], 8<<10)
	off.Cluster.Rejoin = true
	if _, err := OpenNode(soon(t), off); !errors.Is(err, ErrRejoined) || !strings.Contains(err.Error(), filepath.Base(aside[0])) {
		t.Errorf("a second time: %v", err)
	}
	for j, p := range peers {
		if j != i {
			p.end(t)
		}
	}
}

// member makes the directory of a member whose data are damaged, and of which the rejoin
// has been planned.
func member(t *testing.T, fsys vfs.FS) (r *rejoin, fresh nodeFile) {
	t.Helper()
	old := nodeFile{Format: FormatVersion, Node: "2", Raft: "2-old", Incarnation: "old", Cluster: "c", Secret: []byte("s"), Used: true}
	if err := writeNodeFile(fsys, "", old); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wal/1.wal", "wal/2.wal", "catalog/1.ckpt", "placement-1/checkpoints/1.ckpt", "placement-1/segments/1.seg"} {
		if err := fsys.MkdirAll(filepath.Dir(name)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceFile(fsys, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	r = &rejoin{Raft: "2-new", Incarnation: "new", Aside: asidePrefix + "1", Found: "rot",
		Former: cluster.Former{Raft: old.Raft, Incarnation: old.Incarnation, Cluster: old.Cluster}}
	data, err := json.Marshal(r)
	if err == nil {
		err = vfs.ReplaceFile(fsys, rejoinName, data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, nodeFile{Format: FormatVersion, Node: "2", Raft: r.Raft, Incarnation: r.Incarnation, Cluster: "c", Secret: []byte("s")}
}

// TestRejoinInterrupted: whatever step of setting the damaged data aside is the last one
// that is done, the next start finishes it, and nothing of them is lost.
func TestRejoinInterrupted(t *testing.T) {
	for step := 0; ; step++ {
		disk := vfs.NewMem()
		r, fresh := member(t, disk)
		broken := vfs.NewFault(disk, vfs.Rule{After: step, Err: errors.New("interrupted")})
		interrupted := r.settle(broken, "", fresh) != nil
		n := &Node{cfg: Config{Cluster: Cluster{Listen: "127.0.0.1:0", Rejoin: true}}, log: zerolog.Nop()}
		var err error
		if n.file, err = identify(disk, "", "2", false); err == nil {
			err = n.resume(disk, "")
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if n.again != nil {
			if n.file.Raft != r.Raft || n.file.Cluster != "" {
				t.Fatalf("step %d: it asks as %+v", step, n.file)
			}
			if err := n.again.settle(disk, "", fresh); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if now, err := identify(disk, "", "2", false); err != nil || now.Raft != r.Raft || now.Used {
			t.Fatalf("step %d: %+v, %v", step, now, err)
		}
		if err := unused(disk, ""); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for _, name := range []string{"wal/1.wal", "wal/2.wal", "catalog/1.ckpt", "placement-1/checkpoints/1.ckpt", "placement-1/segments/1.seg", rejoinName} {
			if _, err := disk.Size(filepath.Join(r.Aside, name)); err != nil {
				t.Errorf("step %d: %v", step, err)
			}
		}
		if was, err := identify(disk, r.Aside, "2", false); err != nil || was.Raft != r.Former.Raft {
			t.Errorf("step %d: aside is %+v, %v", step, was, err)
		}
		if !interrupted {
			return
		}
	}
}

// TestRejoinTurnedOff: a rejoin that was planned is not gone on with when the operator
// wants to look first, nor on a directory that has become another one since.
func TestRejoinTurnedOff(t *testing.T) {
	disk := vfs.NewMem()
	member(t, disk)
	resume := func(auto bool) *Node {
		t.Helper()
		n := &Node{cfg: Config{Cluster: Cluster{Listen: "127.0.0.1:0", Rejoin: auto}}, log: zerolog.Nop()}
		var err error
		if n.file, err = identify(disk, "", "2", false); err == nil {
			err = n.resume(disk, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := resume(false); n.again != nil || n.file.Raft != "2-old" {
		t.Errorf("%+v", n.file)
	}
	if n := resume(true); n.again == nil {
		t.Error("it does not go on")
	}
	alone, err := identify(disk, "", "2", false)
	if err != nil {
		t.Fatal(err)
	}
	alone.Incarnation, alone.Cluster = "alone", "another" // as recover --alone does
	if err := writeNodeFile(disk, "", alone); err != nil {
		t.Fatal(err)
	}
	if n := resume(true); n.again != nil || n.file.Incarnation != "alone" {
		t.Errorf("%+v", n.file)
	}
	if r, err := readRejoin(disk, ""); r != nil || err != nil {
		t.Errorf("the file of the node that was is still there: %+v, %v", r, err)
	}
}

// TestRejoinNotForAMissingLog: a log that is not there at all may be on a disk that is not
// mounted: the node does not take itself for damaged.
func TestRejoinNotForAMissingLog(t *testing.T) {
	dirs, at := []string{t.TempDir(), t.TempDir()}, []string{freePort(t), freePort(t)}
	a := openPeer(t, dirs[0], "1", at[0], "")
	b := openPeer(t, dirs[1], "2", at[1], at[0])
	whoServes(t, []*peer{a, b}, 2)
	b.end(t)
	if err := os.Rename(filepath.Join(dirs[1], walDir), filepath.Join(t.TempDir(), walDir)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := OpenNode(ctx, Config{DataDir: dirs[1], NodeID: "2", Logger: zerolog.Nop(), Cluster: Cluster{Listen: at[1], Rejoin: true}})
	if !errors.Is(err, ErrIncomplete) || !errors.Is(err, ErrMember) {
		t.Errorf("%v", err)
	}
	if len(asides(t, dirs[1])) != 0 {
		t.Error("something was set aside")
	}
	a.end(t)
}
