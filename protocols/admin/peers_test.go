package admin

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// TestNodesOfACluster: all nodes are listed, whether they serve or not, and one is
// critical when the majority would go with it.
func TestNodesOfACluster(t *testing.T) {
	votes := []kernel.ClusterReplica{{Group: 0, Votes: true}, {Group: 1, Votes: true}}
	peers := []kernel.ClusterNode{
		{Name: "1", State: kernel.NodeServing, Replicas: votes}, {Name: "2", State: kernel.NodeStandby, Replicas: votes, Version: "0.2"},
		{Name: "3", State: kernel.NodeStandby, Replicas: votes}, {Name: "4", State: kernel.NodeLearner, Replicas: []kernel.ClusterReplica{{Group: 1}}},
	}
	gate, url := gateOn(t, GateConfig{Ready: func() error { return nil }})
	gate.Serving(NewServer(&fakeNode{}, Config{Log: zerolog.Nop(), Peers: func() []kernel.ClusterNode { return peers }}))

	_, body := read(t, url+"/api/nodes?columns=name,running")
	var nodes []struct {
		Name    string
		Running bool
	}
	if err := json.Unmarshal([]byte(body), &nodes); err != nil || len(nodes) != 4 || nodes[1].Name != "trivium@2" || !nodes[1].Running {
		t.Errorf("nodes: %s, %v", body, err)
	}
	if status, body := read(t, url+"/api/nodes/trivium@2"); status != http.StatusOK {
		t.Errorf("node 2: %d %s", status, body)
	}
	const check = "/api/health/checks/node-is-quorum-critical"
	if status, body := read(t, url+check); status != http.StatusOK {
		t.Errorf("three of three: %d %s", status, body)
	}
	peers[2].State = kernel.NodeUnreachable
	if status, body := read(t, url+check); status != http.StatusServiceUnavailable {
		t.Errorf("two of three: %d %s", status, body)
	}
}
