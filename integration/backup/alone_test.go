package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// lostMajority is a cluster of which node 3 is left, stopped, with all that the crew
// has confirmed.
func lostMajority(t *testing.T) (cluster *harness.Cluster, left *harness.Node, want counts) {
	t.Helper()
	cluster = harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	must(t, cluster.Whole(3*harness.Patience))
	guest(t, cluster.Nodes[0])
	prepare(t, cluster.Nodes[0].Addresses)
	c := enlist(t, cluster.Nodes[0].Addresses)
	c.reach(t, 200)
	c.dismiss()
	must(t, cluster.SameChecksums(harness.Patience)) // node 3 has it all
	for _, n := range cluster.Nodes {
		n.Kill()
		n.Removed = n.ID != 3
	}
	return cluster, cluster.Nodes[2], c.confirmed()
}

// guest makes the user that the crew is.
func guest(t *testing.T, n *harness.Node) {
	t.Helper()
	for _, args := range [][]string{{"user", "add", "guest", "guest", "--tags", "administrator"}, {"permission", "set", "guest", ".*", ".*", ".*"}} {
		says(t, 0, append(args, "--url", "http://"+n.HTTP, "--user", harness.ClusterUser, "--password", harness.ClusterPassword))
	}
}

// TestRecoverAlone: a cluster loses two of three nodes for good. The third one goes on
// alone with all that it has, the lost ones are refused, and a fresh node joins.
func TestRecoverAlone(t *testing.T) {
	cluster, left, want := lostMajority(t)
	says(t, 2, []string{"recover", "--data", left.Dir, "--alone"}, "--yes")
	says(t, 2, []string{"recover", "--data", left.Dir, "--alone", "--check"}, "--alone")
	out := says(t, 0, []string{"recover", "--data", left.Dir, "--alone", "--yes"}, "node 3 is the only one of a new cluster", "is lost", "never be started again")
	if !strings.Contains(out, "with 1, 2-") {
		t.Errorf("the others are not named:\n%s", out)
	}
	says(t, 2, []string{"recover", "--data", left.Dir, "--alone", "--yes"}, "already")
	must(t, left.Run())
	holds(t, left.Addresses, want)
	old := cluster.Nodes[0]
	if err := old.Run(); err == nil || !strings.Contains(err.Error(), "belongs to cluster") {
		t.Errorf("a lost node came back: %v", err)
	}
	fresh := cluster.Add()
	must(t, cluster.Whole(3*harness.Patience))
	must(t, cluster.SameChecksums(harness.Patience))
	_, ch := fresh.DialAMQP(t)
	harness.Declare(t, ch, "new")
	code, err := left.Stop()
	if code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	must(t, left.Run())
	must(t, cluster.Whole(3*harness.Patience))
}

// TestRecoverAloneDamaged: a last node whose log is damaged, too, goes on with what was
// before the damage, if that is asked for.
func TestRecoverAloneDamaged(t *testing.T) {
	_, left, _ := lostMajority(t)
	log := filepath.Join(left.Dir, "wal", "0000000000000001.wal")
	data, err := os.ReadFile(log)
	must(t, err)
	at := bytes.LastIndex(data, body(150)) // of the protocol that is the slowest
	if at < 0 {
		t.Fatal("message 150 is not in the log")
	}
	data[at] ^= 1
	must(t, os.WriteFile(log, data, 0o600))
	says(t, 1, []string{"recover", "--data", left.Dir, "--alone", "--yes"}, "damaged", "--accept-loss")
	says(t, 0, []string{"recover", "--data", left.Dir, "--alone", "--accept-loss", "--yes"}, "damaged at", "messages and sessions: entries", "lost+", "is the only one")
	must(t, left.Run())
	holds(t, left.Addresses, counts{150, 150, 150})
}

// TestRecoverAloneOfASingleNode: it is the only one already, and stays as it is.
func TestRecoverAloneOfASingleNode(t *testing.T) {
	b := harness.Start(t)
	prepare(t, b.Addresses)
	c := enlist(t, b.Addresses)
	c.reach(t, 20)
	c.dismiss()
	says(t, 2, []string{"recover", "--data", b.Dir, "--alone", "--yes"}, "in use")
	b.Stop()
	says(t, 2, []string{"recover", "--data", b.Dir, "--alone", "--yes"}, "already")
	b.Run()
	holds(t, b.Addresses, c.confirmed())
}

// TestBackupOfAnyMember: each node of a cluster gives a backup with all that was confirmed
// by any, and other nodes join the one that is made of it.
func TestBackupOfAnyMember(t *testing.T) {
	cluster := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	must(t, cluster.Whole(3*harness.Patience))
	guest(t, cluster.Nodes[0])
	prepare(t, cluster.Nodes[0].Addresses)
	c := enlist(t, cluster.Nodes[0].Addresses)
	var backups []string
	var confirmed []counts
	for _, n := range cluster.Nodes {
		confirmed = append(confirmed, c.reach(t, 100))
		backups = append(backups, backupOf(t, n.HTTP))
	}
	c.reach(t, 20)
	c.dismiss()
	for _, n := range cluster.Nodes {
		n.Kill()
		n.Removed = true
	}
	for i, from := range backups[:2] {
		b := restored(t, from)
		holds(t, b.Addresses, confirmed[i])
		b.Kill()
	}
	first := cluster.Nodes[0]
	first.Dir, first.Removed = filepath.Join(t.TempDir(), "data"), false
	says(t, 0, []string{"restore", "--from", backups[2], "--data", first.Dir, "--node-id", "1"}, "founds cluster")
	must(t, first.Run())
	cluster.Add()
	must(t, cluster.Whole(3*harness.Patience))
	must(t, cluster.SameChecksums(harness.Patience))
	holds(t, first.Addresses, confirmed[2])
}
