package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// changing is a node of whose cluster the overview is, one after the other, what is given,
// the last for ever; "" is that nobody serves.
func changing(t *testing.T, overviews ...string) (asked *int) {
	asked = new(int)
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/overview" {
			_, _ = io.WriteString(w, strings.Replace(twoNodes, `{"cluster"`, `{"leader":"1","cluster"`, 1))
			return
		}
		now := overviews[min(*asked, len(overviews)-1)]
		if *asked++; now == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"node":"trivium@`+now+`"}`)
	}))
	t.Cleanup(node.Close)
	t.Setenv(envURL, node.URL)
	return asked
}

// TestRebalanceJustAfterAMove: the node that is asked may name who led a moment before.
func TestRebalanceJustAfterAMove(t *testing.T) {
	defer func(before time.Duration) { otherTime = before }(otherTime)
	otherTime = 0
	asked := 0
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/overview":
			_, _ = io.WriteString(w, `{"node":"trivium@1"}`)
		case "/api/cluster/rebalance":
			asked++
			_, _ = io.WriteString(w, `{"leader":"`+[]string{"2", "1"}[min(asked-1, 1)]+`"}`)
		default:
			_, _ = io.WriteString(w, twoNodes)
		}
	}))
	t.Cleanup(node.Close)
	t.Setenv(envURL, node.URL)
	if out, err := execute("", "cluster", "rebalance", "--wait"); err != nil || !strings.Contains(out, "node 1 serves") || asked != 2 {
		t.Errorf("%s %v after %d", out, err, asked)
	}
}

// TestWaitingForANodeThatServes: who leads all groups does not serve yet, and may never do.
func TestWaitingForANodeThatServes(t *testing.T) {
	defer func(before time.Duration) { otherTime = before }(otherTime)
	for _, command := range []string{"move 1 1", "rebalance"} {
		asked := changing(t, "2", "", "", "1")
		if out, err := execute("", append(append([]string{"cluster"}, strings.Fields(command)...), "--wait")...); err != nil || !strings.Contains(out, "node 1 serves") || *asked != 4 {
			t.Errorf("%s: %s %v after %d", command, out, err, *asked)
		}
		otherTime = 0
		changing(t, "", "2")
		if out, err := execute("", append(append([]string{"cluster"}, strings.Fields(command)...), "--wait")...); err == nil || err.Error() != "node 1 does not serve: node 2 does" {
			t.Errorf("%s: %s %v", command, out, err)
		}
		otherTime = 10 * time.Second
	}
	asked := changing(t, "", "2", "1")
	if out, err := execute("", "cluster", "drain", "2", "--wait"); err != nil || *asked != 3 {
		t.Errorf("%s %v after %d", out, err, *asked)
	}
}
