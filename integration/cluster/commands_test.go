package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// command runs one of our own commands against a node, as its administrator.
func command(t *testing.T, n *harness.Node, line string) (out string, code int) {
	t.Helper()
	args := append(strings.Fields(line), "--url", "http://"+n.HTTP, "--user", harness.ClusterUser, "--password", harness.ClusterPassword)
	cmd := exec.Command(harness.Binary(t), args...)
	cmd.Env = os.Environ()
	said, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatal(err)
	}
	return string(said), cmd.ProcessState.ExitCode()
}

// TestClusterCommands: what the commands say of a real cluster, and their exit codes. A
// command that waits has waited: what it was to do is done when it is over.
func TestClusterCommands(t *testing.T) {
	full(t)
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	want := func(n *harness.Node, line string, code int, text string) {
		t.Helper()
		if out, got := command(t, n, line); got != code || !strings.Contains(out, text) {
			t.Fatalf("trivium %s: exit code %d, want %d with %q\n%s", line, got, code, text, out)
		}
	}
	serves := func(n *harness.Node) {
		t.Helper()
		if leader, err := c.Leader(healed); err != nil || leader != n {
			t.Errorf("node %d does not serve: %v", n.ID, err)
		}
	}
	first, err := c.Leader(healed)
	harness.Must(t, err)
	second, third := c.Nodes[first.ID%3], c.Nodes[(first.ID+1)%3]
	for _, n := range c.Nodes {
		want(n, "cluster status", 0, "serving")
		want(n, "cluster status -o json", 0, `"state": "standby"`)
	}
	want(second, fmt.Sprintf("cluster drain %d --wait", first.ID), 0, "leads nothing")
	if s, err := second.Status(); err != nil || !drained(s, first) {
		t.Errorf("after the drain: %+v, %v", s, err)
	}
	want(first, fmt.Sprintf("cluster move 1 %d --wait", first.ID), 1, "drained")
	want(third, fmt.Sprintf("cluster drain %d --undo", first.ID), 0, "may lead again")
	harness.Must(t, c.Whole(healed))
	for _, n := range []*harness.Node{second, third, first} { // whoever is asked
		want(third, fmt.Sprintf("cluster move 1 %d --wait", n.ID), 0, "serves")
		serves(n)
	}
	want(third, "cluster rebalance --wait", 0, "serves")
	want(first, "cluster move 1 9", 1, "")
	want(first, "cluster move one 2", 2, "")
	want(first, "cluster drain 9", 1, "")
	want(first, fmt.Sprintf("cluster remove %d", third.ID), 0, "is removed")
	third.Removed = true
	select {
	case <-third.Ended():
	case <-time.After(healed):
		t.Error("a removed node still runs")
	}
	want(third, "cluster status", 3, "")
	want(second, fmt.Sprintf("cluster remove %d", third.ID), 1, "")
	harness.Must(t, c.Whole(healed))
	second.Kill()
	harness.Wait(t, healed, "the last node knows that it is alone", func() bool {
		out, code := command(t, first, "cluster status")
		return code == 1 && strings.Contains(out, "no majority")
	})
	want(first, fmt.Sprintf("cluster remove %d", second.ID), 1, "")
}

// drained reports whether a node is to lead nothing, and leads nothing.
func drained(s harness.Status, n *harness.Node) bool {
	for _, m := range s.Nodes {
		if m.Name != fmt.Sprint(n.ID) {
			continue
		}
		for _, r := range m.Replicas {
			if r.Leads {
				return false
			}
		}
		return m.Draining
	}
	return false
}
