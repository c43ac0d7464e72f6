package cluster

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// bulkSize is the size of a record of bulk, in bytes.
const bulkSize = 256 << 10

// bulk makes record n of a topic with much data.
func bulk(n int) []byte {
	b := make([]byte, bulkSize)
	rng := rand.New(rand.NewPCG(uint64(n), 9))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
}

// produceBulk appends the records from to to of the topic bulk.
func produceBulk(t *testing.T, nodes []*harness.Node, from, to int) {
	t.Helper()
	c, err := kafkaClient(nodes, kgo.DefaultProduceTopic("bulk"), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	harness.Must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for n := from; n < to; n++ {
		c.Produce(ctx, &kgo.Record{Value: bulk(n)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("record %d: %v", n, err)
			}
		})
	}
	harness.Must(t, c.Flush(ctx))
}

// readBulk reads the topic by way of a node, and compares every byte.
func readBulk(t *testing.T, n *harness.Node, want int) {
	t.Helper()
	log, err := replay(n, "bulk")
	if err != nil {
		t.Errorf("replay by way of node %d: %v", n.ID, err)
		return
	}
	if len(log) != want {
		t.Errorf("%d records, want %d", len(log), want)
	}
	for i, b := range log {
		if b != string(bulk(i)) {
			t.Errorf("record %d differs", i)
			return
		}
	}
}

// quiet is a cluster without load, with so many records in the topic bulk: enough
// for segments, if it is some hundred.
func quiet(t *testing.T, records int) *arena {
	t.Helper()
	full(t)
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), rng: rand.New(rand.NewPCG(1, 1))}
	a.whole()
	produceBulk(t, a.c.Nodes, 0, records)
	return a
}

// files are those of a node's folder with this ending, wherever they are.
func files(t *testing.T, n *harness.Node, ending string) (names []string) {
	t.Helper()
	harness.Must(t, filepath.WalkDir(n.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ending {
			names = append(names, path)
		}
		return nil // files come and go while it runs
	}))
	slices.Sort(names)
	return names
}

// serveFrom makes a node the one that serves. One that has just started does not vote
// for a moment, not for itself either, and the leadership goes elsewhere then.
func (a *arena) serveFrom(n *harness.Node) {
	a.t.Helper()
	for until := time.Now().Add(healed); ; {
		leader := a.leader()
		if leader == n {
			return
		}
		if time.Now().After(until) {
			a.t.Errorf("node %d serves, not node %d", leader.ID, n.ID)
			return
		}
		a.must(n.Lead(), "move the lead to node %d", n.ID)
		_, _ = a.c.NextLeader(leader, 3*time.Second) // else once more
	}
}

// flip changes one bit in the middle of what a file holds.
func flip(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	harness.Must(t, err)
	end := len(b)
	for end > 0 && b[end-1] == 0 { // a log file ends in zeros, which hold nothing
		end--
	}
	if end < 100 {
		t.Fatalf("%s holds only %d bytes", name, end)
	}
	b[end/2] ^= 1 << 3
	harness.Must(t, os.WriteFile(name, b, 0o600))
}

// damaged stops a follower, damages what do damages, starts it, makes it serve, and
// reads all from it.
func damaged(t *testing.T, ending string, do func(name string)) {
	t.Helper()
	const records = 700
	a := quiet(t, records)
	n := a.follower()
	harness.Wait(t, harness.Patience, "there is a file "+ending, func() bool { return len(files(t, n, ending)) > 0 })
	n.Kill()
	for _, name := range files(t, n, ending) {
		do(name)
	}
	a.must(n.Run(), "start with damage")
	a.whole()
	a.serveFrom(n)
	readBulk(t, n, records)
	if err := a.c.SameChecksums(healed); err != nil {
		t.Error(err)
	}
}

// TestJ2BitFlipInSegments: a bit has changed in every segment of one node. It gets
// them again from the others, and never serves anything else than what was sent.
func TestJ2BitFlipInSegments(t *testing.T) {
	damaged(t, ".seg", func(name string) { flip(t, name) })
}

// TestJ3TruncatedSegments: the segments of one node are half as long.
func TestJ3TruncatedSegments(t *testing.T) {
	damaged(t, ".seg", func(name string) {
		st, err := os.Stat(name)
		harness.Must(t, err)
		harness.Must(t, os.Truncate(name, st.Size()/2))
	})
}

// TestJ4DamagedCheckpoints: a bit has changed in every checkpoint of one node. It
// decides nothing by them: no queue goes, here or elsewhere. It joins again by itself.
func TestJ4DamagedCheckpoints(t *testing.T) {
	const records = 700
	a := quiet(t, records)
	n := a.follower()
	harness.Wait(t, harness.Patience, "there is a checkpoint of the messages", func() bool { return len(checkpoints(t, n)) > 0 })
	n.Kill()
	for _, name := range files(t, n, ".ckpt") {
		flip(t, name)
	}
	a.must(n.Run(), "start with damaged checkpoints")
	a.hasAll(n, records)
	if len(asides(t, n)) == 0 && strings.Contains(n.Output(), "a damaged checkpoint is set aside") {
		t.Log("its log still began where no checkpoint is needed")
		return
	}
	a.rejoined(n, records)
}

// checkpoints are those of a node's placement group, behind which its log is cut.
func checkpoints(t *testing.T, n *harness.Node) []string {
	t.Helper()
	return slices.DeleteFunc(files(t, n, ".ckpt"), func(name string) bool { return !strings.Contains(name, "placement-") })
}

// TestRow3DamagedLog: a bit has changed in the middle of one node's write-ahead log,
// behind it is more. The node joins again by itself, and never leads with a hole.
func TestRow3DamagedLog(t *testing.T) {
	const records = 100
	a := quiet(t, records)
	n := a.follower()
	n.Kill()
	flip(t, files(t, n, ".wal")[0])
	a.must(n.Run(), "start with a damaged log")
	a.rejoined(n, records)
}

// rejoined checks that a node has joined again because of damage: it has all again, and
// what was damaged lies beside.
func (a *arena) rejoined(n *harness.Node, records int) {
	a.t.Helper()
	a.hasAll(n, records)
	if aside := asides(a.t, n); len(aside) != 1 || len(aside[0]) == 0 {
		a.t.Errorf("set aside: %v", aside)
	}
}

// hasAll checks that a node has all records again, as the others have, and can serve.
func (a *arena) hasAll(n *harness.Node, records int) {
	a.t.Helper()
	a.whole()
	a.serveFrom(n)
	for _, one := range a.c.Nodes {
		readBulk(a.t, one, records)
	}
	if err := a.c.SameChecksums(healed); err != nil {
		a.t.Error(err)
	}
}

// asides are the directories with what was damaged at a node.
func asides(t *testing.T, n *harness.Node) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(n.Dir, "damaged-*"))
	harness.Must(t, err)
	return names
}

// TestDamagedMemberUnderLoad: a member whose log is damaged comes back by itself under
// load, and so does the one that has founded the cluster; nothing that was confirmed is
// lost, though the other two change meanwhile.
func TestDamagedMemberUnderLoad(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, 22)
	produceBulk(t, a.c.Nodes, 0, 60)
	for _, n := range slices.Clone(a.c.Nodes) {
		n.Kill()
		flip(t, files(t, n, ".wal")[0])
		a.must(n.Run(), "start node %d with a damaged log", n.ID)
		a.whole()
		a.l.moves(healed)
		if len(asides(t, n)) != 1 {
			t.Errorf("node %d has set nothing aside", n.ID)
		}
	}
	readBulk(t, a.leader(), 60)
	a.judge()
}

// flipLog damages the log of a member in the middle: it joins again by itself.
func (a *arena) flipLog(n *harness.Node) {
	n.Kill()
	if log := files(a.t, n, ".wal"); len(log) > 0 {
		flip(a.t, log[0])
	}
	a.must(n.Run(), "start node %d with a damaged log", n.ID)
	a.whole()
	for _, aside := range asides(a.t, n) { // else it would not do the same again
		a.must(os.RemoveAll(aside), "remove what node %d has set aside", n.ID)
	}
}

// flipSegments damages all segments that a member has.
func (a *arena) flipSegments(n *harness.Node) {
	n.Kill()
	segments := files(a.t, n, ".seg")
	for _, name := range segments {
		flip(a.t, name)
	}
	a.must(n.Run(), "start node %d with damaged segments", n.ID)
	a.t.Logf("node %d: %d segments are damaged", n.ID, len(segments))
}

// TestDamagedMemberWaits: while the others are no majority, a member with damage waits,
// says so, and changes nothing; it comes back when another one does.
func TestDamagedMemberWaits(t *testing.T) {
	const records = 100
	a := quiet(t, records)
	n := a.follower()
	down := a.neither(n, a.leader())
	n.Kill()
	down.Kill()
	flip(t, files(t, n, ".wal")[0])
	ready := make(chan error, 1)
	go func() { ready <- n.Run() }()
	harness.Wait(t, harness.Patience, "the node says that it waits", func() bool {
		log, err := os.ReadFile(n.Logs)
		return err == nil && strings.Contains(string(log), "not let into the cluster yet")
	})
	a.hold(2 * time.Second)
	select {
	case err := <-ready:
		t.Errorf("it does not wait: %v", err)
	default:
	}
	if len(asides(t, n)) > 0 || len(files(t, n, ".wal")) == 0 {
		t.Error("something has changed")
	}
	a.must(down.Run(), "start the other one")
	a.must(<-ready, "start with a damaged log")
	a.rejoined(n, records)
}

// TestRow12WipedNode: a node whose data directory has gone may not come back under
// its old identity as if nothing had been; with a new one it is a learner first, and
// nothing that was confirmed is lost.
func TestRow12WipedNode(t *testing.T) {
	a := quiet(t, 20)
	n := a.follower()
	n.Kill()
	harness.Must(t, os.RemoveAll(n.Dir))
	harness.Must(t, os.Mkdir(n.Dir, 0o755))
	if err := n.Run(); err == nil || !strings.Contains(err.Error(), "is a member with another data directory") {
		t.Errorf("node %d, whose directory was empty, is not refused: %v", n.ID, err)
	}
	readBulk(t, a.leader(), 20)
}

// TestRow12Twin: a copy of a data directory does not run beside its original.
func TestRow12Twin(t *testing.T) {
	a := quiet(t, 20)
	n := a.follower()
	code, err := n.Stop()
	if code != 0 || err != nil {
		t.Fatal(code, err)
	}
	twin := a.c.Twin(n)
	if out, err := exec.Command("cp", "-a", n.Dir+"/.", twin.Dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
	a.must(n.Run(), "start the original")
	a.whole()
	if err := twin.Run(); err == nil || !strings.Contains(err.Error(), "a directory cannot be copied to make another node") {
		t.Errorf("a copy of the directory of node %d, which runs, is not refused: %v", n.ID, err)
	}
	a.whole()
	readBulk(t, n, 20)
}

// TestRow13OlderImage: a node whose disk is put back to how it was some time ago
// has forgotten what it has acknowledged. Another one remembers, so it gets no vote:
// what was confirmed since is there although nobody else has it.
func TestRow13OlderImage(t *testing.T) {
	a := quiet(t, 20)
	n := a.follower()
	if code, err := n.Stop(); code != 0 || err != nil {
		t.Fatal(code, err)
	}
	image := t.TempDir()
	if out, err := exec.Command("cp", "-a", n.Dir+"/.", image).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
	a.must(n.Run(), "start")
	a.whole()
	leader := a.leader()
	third := a.neither(n, leader)
	third.Kill() // so that what follows is at the leader and n only
	produceBulk(t, []*harness.Node{leader, n}, 20, 40)
	n.Kill()
	harness.Must(t, os.RemoveAll(n.Dir))
	if out, err := exec.Command("cp", "-a", image, n.Dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
	}
	_ = n.Run() // it may be told only after it has begun
	harness.Wait(t, harness.Patience, "the node is told that it was set back", func() bool {
		return strings.Contains(n.Output(), "it was set back")
	})
	<-n.Ended()
	if code, _ := n.Stop(); code != 2 {
		t.Errorf("it ends with exit code %d", code)
	}
	a.must(third.Run(), "start the one that was not there")
	readBulk(t, third, 40)
	n.Removed = true
	a.must(a.nodes()[0].Forget(n), "remove the node that was set back")
	a.c.Add()
	a.whole()
	readBulk(t, a.leader(), 40)
}

// neither is the node that is neither of two.
func (a *arena) neither(x, y *harness.Node) *harness.Node {
	i := slices.IndexFunc(a.c.Nodes, func(n *harness.Node) bool { return n != x && n != y && !n.Removed })
	return a.c.Nodes[i]
}

// TestJ7Replace: a node is lost, removed, and another one takes its place, under
// load; then the other two are lost one after the other, and nothing with them.
func TestJ7Replace(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, 7)
	for _, lost := range slices.Clone(a.c.Nodes) {
		lost.Kill()
		lost.Removed = true
		a.l.moves(healed)
		a.must(a.nodes()[0].Forget(lost), "remove node %d", lost.ID)
		a.l.replace(lost, a.c.Add())
		a.whole()
		a.l.moves(healed)
	}
	a.judge()
}
