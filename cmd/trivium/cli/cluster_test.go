package cli

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel/cluster"
)

const twoNodes = `{"cluster":"c","node":"1","nodes":[
{"name":"1","state":"serving","address":"h1:7420","draining":false,"disk_low":false,"disk_slow":false,"version":"1.0","listeners":{},"leads":[0,1],"replicas":[]},
{"name":"2","state":"standby","address":"h2:7420","draining":true,"disk_low":true,"disk_slow":false,"version":"1.0","listeners":{},"leads":[],"replicas":[]}],
"groups":[{"group":0,"leader":"1","term":3,"commit":17,"voters":["1","2"],"learners":[]},
{"group":1,"leader":"1","term":4,"commit":99,"voters":["1"],"learners":["2"]}]}`

func TestClusterStatus(t *testing.T) {
	got, out, err := run(t, 200, twoNodes, "", "cluster", "status")
	if err != nil || len(got) != 1 || got[0].method != "GET" || got[0].path != "/api/cluster" {
		t.Fatalf("%+v %v", got, err)
	}
	want := `cluster c, as node 1 sees it

NODE  STATE    LEADS  DRAINING  DISK LOW  DISK SLOW  ADDRESS  VERSION
1     serving  0,1    false     false     false      h1:7420  1.0
2     standby         true      true      false      h2:7420  1.0

GROUP  LEADER  TERM  COMMIT  VOTERS  LEARNERS
0      1       3     17      1,2     
1      1       4     99      1       2
`
	if out != want {
		t.Errorf("%s", out)
	}
	if _, out, err = run(t, 200, twoNodes, "", "cluster", "status", "-o", "json"); err != nil || !strings.Contains(out, `"state": "standby"`) {
		t.Errorf("%s %v", out, err)
	}
}

// TestClusterStatusWithoutMajority: a node that is left alone may look well; the status
// says that nothing goes on, and fails, in every format.
func TestClusterStatusWithoutMajority(t *testing.T) {
	const left = `{"cluster":"c","node":"3","nodes":[{"name":"1","state":"unreachable"},{"name":"2","state":"%s"},{"name":"3","state":"standby"}],
"groups":[{"group":0,"leader":"","voters":["1","2","3"]},{"group":1,"leader":"","voters":["1","2","3"]}]}`
	for state, good := range map[string]bool{"unreachable": false, "refused": false, "catching up": true} {
		for _, format := range []string{"table", "json"} {
			_, out, err := run(t, 200, fmt.Sprintf(left, state), "", "cluster", "status", "-o", format)
			if !strings.Contains(out, "standby") || (err == nil) != good || isUsage(err) {
				t.Errorf("node 2 is %s, as %s: %v\n%s", state, format, err, out)
			}
			if err != nil && !strings.Contains(err.Error(), "no majority: of the 3 nodes that vote in group 0 node 3 reaches 1") {
				t.Errorf("it says %v", err)
			}
		}
	}
}

func TestClusterCommands(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want asked
	}{
		{[]string{"remove", "2"}, asked{method: "DELETE", path: "/api/cluster/nodes/2"}},
		{[]string{"remove", "2", "--force"}, asked{method: "DELETE", path: "/api/cluster/nodes/2?force=true"}},
		{[]string{"drain", "2"}, asked{method: "PUT", path: "/api/cluster/nodes/2/drain"}},
		{[]string{"drain", "2", "--undo"}, asked{method: "DELETE", path: "/api/cluster/nodes/2/drain"}},
		{[]string{"move", "1", "2"}, asked{method: "PUT", path: "/api/cluster/groups/1/leader", body: `{"node":"2"}`}},
		{[]string{"rebalance"}, asked{method: "POST", path: "/api/cluster/rebalance"}},
	} {
		got, _, err := run(t, 200, `{"leader":"1"}`, "", append([]string{"cluster"}, tt.args...)...)
		if tt.want.user = "guest:guest"; err != nil || len(got) != 1 || got[0] != tt.want {
			t.Errorf("%v: %+v %v", tt.args, got, err)
		}
	}
	if got, _, err := run(t, 200, "", "", "cluster", "move", "x", "2"); err == nil || len(got) > 0 {
		t.Errorf("a group without number: %+v %v", got, err)
	}
	// It waits for what the node says.
	serving := strings.Replace(twoNodes, `"node":"1"`, `"node":"trivium@1"`, 1)
	if got, _, err := run(t, 200, serving, "", "cluster", "drain", "2", "--wait"); err != nil || len(got) != 4 {
		t.Errorf("%+v %v", got, err)
	}
	if got, _, err := run(t, 200, serving, "", "cluster", "move", "0", "1", "--wait"); err != nil || len(got) != 3 || got[1].path != "/api/cluster" || got[2].path != "/api/overview" {
		t.Errorf("%+v %v", got, err)
	}
}

// TestClusterChangesAreTold: every command that changes the cluster says what it has done
// and how long that took, in every format.
func TestClusterChangesAreTold(t *testing.T) {
	serving := strings.Replace(twoNodes, `{"cluster":"c","node":"1"`, `{"leader":"1","cluster":"c","node":"trivium@1"`, 1)
	for _, tt := range []struct{ args, line, json string }{
		{"remove 2", "node 2 is removed", `"node": "2", "removed": true`},
		{"drain 2", "node 2 is to lead nothing", `"draining": true, "node": "2"`},
		{"drain 2 --wait", "node 2 leads nothing", `"draining": true, "leads": [], "node": "2"`},
		{"drain 2 --undo", "node 2 may lead again", `"draining": false, "node": "2"`},
		{"move 1 1", "node 1 leads", `"leader": "1"`},
		{"move 1 1 --wait", "node 1 serves", `"leader": "1", "seconds": S, "serving": true`},
		{"rebalance", "node 1 leads", `"leader": "1"`},
		{"rebalance --wait", "node 1 serves", `"leader": "1", "seconds": S, "serving": true`},
	} {
		args := append([]string{"cluster"}, strings.Fields(tt.args)...)
		_, out, err := run(t, 200, serving, "", args...)
		if err != nil || !regexp.MustCompile(`^`+tt.line+`, \d+\.\d\d s\n$`).MatchString(out) {
			t.Errorf("%s: %q %v", tt.args, out, err)
		}
		_, out, err = run(t, 200, serving, "", append(args, "-o", "json")...)
		out = regexp.MustCompile(`"seconds": [0-9.e-]+`).ReplaceAllString(strings.Join(strings.Fields(out), " "), `"seconds": S`)
		if want := tt.json; err != nil || out != "{ "+want+" }" && out != "{ "+want+`, "seconds": S }` {
			t.Errorf("%s as JSON: %s %v", tt.args, out, err)
		}
	}
	if _, out, err := run(t, 409, `{"error":"precondition","reason":"it is to be drained"}`, "", "cluster", "move", "1", "2"); err == nil || out != "" {
		t.Errorf("what was refused is told as done: %q %v", out, err)
	}
}

// TestDrainWithNobodyElse: a node that nobody can take over from is not waited for, and not
// drained either.
func TestDrainWithNobodyElse(t *testing.T) {
	alone := `{"cluster":"c","node":"1","nodes":[{"name":"1","state":"serving","draining":false,"leads":[0,1],"replicas":[]}],"groups":[]}`
	for answer, want := range map[string]string{alone: "the cluster has no other node", twoNodes: "all others are drained"} {
		got, _, err := run(t, 200, answer, "", "cluster", "drain", "1", "--wait")
		if err == nil || !strings.Contains(err.Error(), want) || len(got) != 1 || got[0].method != "GET" {
			t.Errorf("%+v %v, want %s", got, err, want)
		}
	}
}

// TestCerts: what it makes is what a node takes, for itself only; the authority stays.
func TestCerts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	if _, err := execute("", "cluster", "certs", "--out", dir, "1=10.0.0.1,node1.example", "2"); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	one := cluster.TLS{CA: file("ca.pem"), Cert: file("1.pem"), Key: file("1-key.pem")}
	if err := one.Check("1"); err != nil {
		t.Error(err)
	}
	if err := one.Check("2"); err == nil {
		t.Error("the certificate of node 1 is that of node 2")
	}
	mixed := cluster.TLS{CA: one.CA, Cert: one.Cert, Key: file("2-key.pem")}
	if err := mixed.Check("1"); err == nil || !strings.Contains(err.Error(), mixed.Cert) || !strings.Contains(err.Error(), mixed.Key) {
		t.Errorf("a key of another certificate: %v", err)
	}
	raw, _ := os.ReadFile(file("1.pem"))
	block, _ := pem.Decode(raw)
	if leaf, err := x509.ParseCertificate(block.Bytes); err != nil || leaf.VerifyHostname("node1.example") != nil || leaf.VerifyHostname("10.0.0.1") != nil {
		t.Error("the hosts are missing", err)
	}
	for _, key := range []string{"ca-key.pem", "1-key.pem"} {
		if info, err := os.Stat(file(key)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", key, info, err)
		}
	}
	if _, err := execute("", "cluster", "certs", "--out", dir, "3", "1"); !isUsage(err) {
		t.Errorf("a certificate was replaced: %v", err)
	}
	before, _ := os.ReadFile(file("ca.pem"))
	if _, err := execute("", "cluster", "certs", "--out", dir, "--renew", "3", "1"); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadFile(file("ca.pem"))
	if string(before) != string(after) {
		t.Error("the authority was replaced")
	}
	if err := (cluster.TLS{CA: file("ca.pem"), Cert: file("3.pem"), Key: file("3-key.pem")}).Check("3"); err != nil {
		t.Error(err)
	}
	for _, args := range [][]string{{"1"}, {"--out", dir}, {"--out", dir, "a/b"}, {"--out", dir, "node4"}, {"--out", dir, "04"}, {"--out", dir, "4="}, {"--out", dir, "4", "4"}, {"--out", dir, "--days", "0", "4"}} {
		if _, err := execute("", append([]string{"cluster", "certs"}, args...)...); !isUsage(err) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestRenewNeedsTheAuthority: in a directory that has none, nothing can be renewed: nodes
// would refuse what another authority has signed. Nothing is made there.
func TestRenewNeedsTheAuthority(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wrong")
	_, err := execute("", "cluster", "certs", "--out", dir, "--renew", "1")
	if !isUsage(err) || !strings.Contains(err.Error(), filepath.Join(dir, "ca.pem")) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory was made", err)
	}
}

func isUsage(err error) bool {
	_, ok := errors.AsType[UsageError](err)
	return ok
}
