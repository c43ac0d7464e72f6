package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// fakeCluster notes what it is asked.
type fakeCluster struct{ did string }

func (f *fakeCluster) Login(_ context.Context, user, password string, remote net.Addr) (*kernel.User, error) {
	if user == "later" {
		return nil, kernel.Errorf(kernel.CodeUnavailable, "", "", "users may be missing here")
	}
	if password != "secret" || remote == nil {
		return nil, kernel.Errorf(kernel.CodeAccessRefused, "user", user, "wrong")
	}
	return &kernel.User{Name: user, Tags: []string{user}}, nil
}

func (f *fakeCluster) Status() kernel.ClusterStatus {
	return kernel.ClusterStatus{Cluster: "c", Node: "2", Nodes: []kernel.ClusterNode{
		{Name: "1", State: kernel.NodeServing, Replicas: []kernel.ClusterReplica{{Group: 1, Leads: true, Votes: true, Whole: true, Applied: 7}}},
	}, Groups: []kernel.ClusterGroup{{Group: 1, Leader: "1", Voters: []string{"1"}}}}
}

func (f *fakeCluster) Remove(_ context.Context, node string, force bool) error {
	if node == "9" {
		return kernel.Errorf(kernel.CodeNotFound, "node", node, "it is no member")
	}
	if !force {
		return kernel.Errorf(kernel.CodePrecondition, "node", node, "no majority")
	}
	f.did = "remove " + node
	return nil
}

func (f *fakeCluster) Drain(_ context.Context, node string, undo bool) error {
	f.did = "drain " + node
	if undo {
		f.did += " undo"
	}
	return nil
}

func (f *fakeCluster) Move(_ context.Context, group uint32, node string) error {
	f.did = "move " + node
	return nil
}

func (f *fakeCluster) Checksums(context.Context) ([]kernel.ReplicaChecksum, error) {
	return []kernel.ReplicaChecksum{{Catalog: true, Index: 5, Records: 2}, {Index: 7, Records: 1}, {Tenant: "/", Topic: "q", Partition: 3, End: 9, Records: 10, Windows: 11}}, nil
}

func (f *fakeCluster) Rebalance(context.Context) (string, error) { return "1", nil }

// TestClusterResources: a node that does not serve answers what is about the cluster,
// to those who may ask.
func TestClusterResources(t *testing.T) {
	f := &fakeCluster{}
	g := NewGate(GateConfig{
		Ready:   func() error { return kernel.Errorf(kernel.CodeUnavailable, "", "", "no leader") },
		Cluster: func() Cluster { return f }, Gatherer: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	node := httptest.NewUnstartedServer(http.HandlerFunc(g.route))
	node.Config.ConnContext = g.http.ConnContext
	node.Start()
	defer node.Close()
	for _, tt := range []struct {
		user, method, path, body string
		status                   int
		answer, did              string
	}{
		{"administrator", "GET", "cluster", "", 200, `"state":"serving"`, ""},
		{"monitoring", "GET", "cluster", "", 200, `"leads":[1]`, ""},
		{"management", "GET", "cluster", "", 401, "not_authorised", ""},
		{"", "GET", "cluster", "", 401, "Not_Authorized", ""},
		{"later", "GET", "cluster", "", 503, "users may be missing here", ""},
		{"administrator", "GET", "cluster-name", "", 503, "no node serves", ""},
		{"administrator", "GET", "cluster/none", "", 404, "Not Found", ""},
		{"administrator", "POST", "cluster", "", 405, "", ""},
		{"monitoring", "DELETE", "cluster/nodes/2?force=true", "", 401, "", ""},
		{"administrator", "DELETE", "cluster/nodes/2?force=true", "", 204, "", "remove 2"},
		{"administrator", "DELETE", "cluster/nodes/2?force=x", "", 400, "", ""},
		{"administrator", "DELETE", "cluster/nodes/2", "", 400, "no majority", ""},
		{"administrator", "DELETE", "cluster/nodes/9", "", 404, "it is no member", ""},
		{"administrator", "PUT", "cluster/nodes/2/drain", "", 204, "", "drain 2"},
		{"administrator", "DELETE", "cluster/nodes/2/drain", "", 204, "", "drain 2 undo"},
		{"administrator", "PUT", "cluster/groups/1/leader", `{"node":"2"}`, 204, "", "move 2"},
		{"administrator", "PUT", "cluster/groups/1/leader", `{}`, 400, "", ""},
		{"administrator", "PUT", "cluster/groups/x/leader", `{"node":"2"}`, 400, "", ""},
		{"administrator", "GET", "cluster/checksums", "", 200, `{"vhost":"/","topic":"q","partition":3,"index":0,"start":0,"end":9,"records":"000000000000000a","windows":"000000000000000b"}`, ""},
		{"administrator", "GET", "cluster/checksums", "", 200, `{"catalog":true,"vhost":"","topic":"","partition":0,"index":5,`, ""},
		{"monitoring", "GET", "cluster/checksums", "", 401, "", ""},
		{"administrator", "POST", "cluster/rebalance", "", 200, `"leader":"1"`, ""},
	} {
		f.did = ""
		req, _ := http.NewRequest(tt.method, node.URL+"/api/"+tt.path, strings.NewReader(tt.body))
		if tt.user != "" {
			req.SetBasicAuth(tt.user, "secret")
		}
		resp, err := node.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(b), tt.answer) || f.did != tt.did {
			t.Errorf("%s %s %s: %d %s, %q", tt.user, tt.method, tt.path, resp.StatusCode, b, f.did)
		}
	}
}
