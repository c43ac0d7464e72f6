package pressure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// ask answers a GET of a node.
func ask(t *testing.T, n *harness.Node, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+n.HTTP+path, nil)
	harness.Must(t, err)
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	return resp.StatusCode, string(raw)
}

// onSmallVolume has a node go on with its data on a volume of its own.
func onSmallVolume(t *testing.T, n *harness.Node, size string) {
	t.Helper()
	n.Kill()
	aside := t.TempDir()
	copied := func(from, to string) {
		out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	copied(n.Dir, aside)
	if err := syscall.Mount("tmpfs", n.Dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a volume of its own cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		n.Kill()
		_ = syscall.Unmount(n.Dir, syscall.MNT_DETACH)
	})
	copied(aside, n.Dir)
	harness.Must(t, n.Run())
}

// TestEveryNodeTellsOfItsOwnDisk: whoever serves, the node whose disk is full says so, with
// the figures of now, the others do not, and all say that there is one in the cluster.
func TestEveryNodeTellsOfItsOwnDisk(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3, Guest: true, Args: []string{"--disk-low", "48MiB"}})
	harness.Must(t, c.Whole(3*harness.Patience))
	low, err := c.Leader(3 * harness.Patience)
	harness.Must(t, err)
	onSmallVolume(t, low, "300m")
	harness.Must(t, c.Whole(3*harness.Patience))
	const local, all = "/api/health/checks/local-alarms", "/api/health/checks/alarms"
	row := fmt.Sprintf("/api/nodes/trivium@%d", low.ID)
	checks := func() string { // what is wrong, "" = nothing
		for _, n := range c.Nodes {
			status, body := ask(t, n, local)
			if status == http.StatusServiceUnavailable != (n == low) {
				return body
			}
			if status, body := ask(t, n, all); status != http.StatusServiceUnavailable || !strings.Contains(body, row[len("/api/nodes/"):]) {
				return body
			}
			var node struct {
				Alarm bool `json:"disk_free_alarm"`
			}
			_, body = ask(t, n, row)
			if err := json.Unmarshal([]byte(body), &node); err != nil || !node.Alarm {
				return body
			}
			want := "0"
			if n == low {
				want = "1"
			}
			if _, body := ask(t, n, "/metrics"); !strings.Contains(body, `trivium_alarm{resource="disk"} `+want) || !strings.Contains(body, "trivium_disk_free_bytes ") {
				return "no metrics of its disk"
			}
		}
		return ""
	}
	empty := fill(t, low.Dir, 20<<20)
	wrong := ""
	told := func() bool {
		wrong = checks()
		return wrong == ""
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(wrong)
		}
	})
	harness.Wait(t, 3*harness.Patience, "all tell of the disk", told)
	full := fill(t, low.Dir, 0)
	harness.Wait(t, harness.Patience, "the figures of now", func() bool {
		_, body := ask(t, low, local)
		return strings.Contains(body, `"0 MiB of the disk are free`)
	})
	full()
	empty()
	harness.Wait(t, 3*harness.Patience, "the end of the alarm", func() bool {
		for _, n := range c.Nodes {
			if status, _ := ask(t, n, all); status != http.StatusOK {
				return false
			}
		}
		status, _ := ask(t, low, local)
		return status == http.StatusOK
	})
}
