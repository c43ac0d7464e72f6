package admin

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// ID makes a fakeNode a Local.
func (n *fakeNode) ID() string { return "2" }

// TestEveryNodeTellsOfItsOwnAlarms: the check of a node's own alarms is answered by the node
// that is asked, and that of the cluster's by who serves, for all.
func TestEveryNodeTellsOfItsOwnAlarms(t *testing.T) {
	here := &fakeNode{}
	var ready error
	gate, url := gateOn(t, GateConfig{Ready: func() error { return ready }, Local: func() Local { return here }})
	check := func(path string, status int, want ...string) {
		t.Helper()
		got, body := read(t, url+"/api/health/checks/"+path)
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s: %s, want %s", path, body, part)
			}
		}
		if got != status {
			t.Errorf("%s: %d, want %d: %s", path, got, status, body)
		}
	}
	check("local-alarms", http.StatusOK, `"ok"`)
	here.alarms.Disk = broker.Alarm{On: true, Reason: "0 MiB are free"}
	check("local-alarms", http.StatusServiceUnavailable, localAlarms, `"trivium@2"`, `"0 MiB are free"`)
	here.alarms.Disk.On = false
	ready = errors.New("no leader")
	check("local-alarms", http.StatusServiceUnavailable, "no leader")

	serves := &fakeNode{}
	peers := []kernel.ClusterNode{{Name: "1"}, {Name: "3", Low: true}}
	gate.Serving(NewServer(serves, Config{Log: zerolog.Nop(), Peers: func() []kernel.ClusterNode { return peers }}))
	check("local-alarms", http.StatusOK)
	check("alarms", http.StatusServiceUnavailable, `"trivium@3"`, `"disk"`)
	if _, body := read(t, url+"/api/nodes/trivium@3"); !strings.Contains(body, `"disk_free_alarm":true`) {
		t.Error(body)
	}
	if _, body := read(t, url+"/api/nodes/trivium@1"); !strings.Contains(body, `"disk_free_alarm":false`) {
		t.Error(body)
	}
	peers[1].Low = false
	check("alarms", http.StatusOK)
	serves.alarms.Replicas = broker.Alarm{On: true}
	check("local-alarms", http.StatusOK)
	check("alarms", http.StatusServiceUnavailable, `"replicas"`)
}
