package admin

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
)

// fakeArchive notes what it is asked.
type fakeArchive struct {
	fakeCluster
	order kernel.BackupOrder
}

func (f *fakeArchive) Backup(ctx context.Context, order kernel.BackupOrder) (kernel.BackupReport, error) {
	if order.Dir == "/full" {
		return kernel.BackupReport{}, kernel.Errorf(kernel.CodePressure, "", "", "no space left")
	}
	f.order = order
	return kernel.BackupReport{Dir: order.Dir, Node: "1", Took: time.Second, Files: 3, Bytes: 9, Linked: 4}, ctx.Err()
}

// TestBackupResource: a node is asked for a backup by administrators only, whether it serves or not.
func TestBackupResource(t *testing.T) {
	f := &fakeArchive{}
	g := NewGate(GateConfig{
		Ready:   func() error { return kernel.Errorf(kernel.CodeUnavailable, "", "", "no leader") },
		Archive: func() Archive { return f }, Log: zerolog.Nop(),
	})
	node := httptest.NewUnstartedServer(http.HandlerFunc(g.route))
	node.Config.ConnContext = g.http.ConnContext
	node.Start()
	defer node.Close()
	for _, tt := range []struct {
		user, method, body string
		status             int
		answer             string
	}{
		{"", "POST", `{"directory":"/b"}`, 401, "not_authorized"},
		{"monitoring", "POST", `{"directory":"/b"}`, 401, "administrators"},
		{"administrator", "GET", "", 405, "method_not_allowed"},
		{"administrator", "POST", "", 400, "directory"},
		{"administrator", "POST", `{"directory":7}`, 400, "directory"},
		{"administrator", "POST", `{"directory":"/full"}`, 503, "no space left"},
		{"administrator", "POST", `{"directory":"/b","rate":5}`, 200, `"linked_bytes":4`},
	} {
		req, err := http.NewRequest(tt.method, node.URL+"/api/backup", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.user != "" {
			req.SetBasicAuth(tt.user, "secret")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status || !strings.Contains(string(b), tt.answer) {
			t.Errorf("%s %q as %q: %d %s", tt.method, tt.body, tt.user, resp.StatusCode, b)
		}
	}
	if f.order != (kernel.BackupOrder{Dir: "/b", Rate: 5}) {
		t.Errorf("%+v", f.order)
	}
}
