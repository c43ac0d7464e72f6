package serve

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestSIGTERMEndsANodeThatWaitsToBeLetIn: a node whose seeds do not let it in stops at
// the first signal, as one that serves does.
func TestSIGTERMEndsANodeThatWaitsToBeLetIn(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), quiet(t, "--node-id", "2", "--cluster", "127.0.0.1:0", "--join", "127.0.0.1:1")...)
	cmd.Env = os.Environ()
	stderr, err := cmd.StderrPipe()
	harness.Must(t, err)
	harness.Must(t, cmd.Start())
	defer time.AfterFunc(harness.Patience, func() { _ = cmd.Process.Kill() }).Stop()
	var said []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said = append(said, lines.Text())
		if strings.Contains(lines.Text(), "not let into the cluster yet") {
			harness.Must(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("got %v, want exit code 0\n%s", err, strings.Join(said, "\n"))
	}
}

// TestANodeThatWaitsToBeLetInIsAlive: it answers what is asked of its health and its
// metrics, and refuses the rest in time.
func TestANodeThatWaitsToBeLetInIsAlive(t *testing.T) {
	web, err := harness.FreeAddress()
	harness.Must(t, err)
	cmd := exec.CommandContext(t.Context(), harness.Binary(t),
		quiet(t, "--node-id", "2", "--cluster", "127.0.0.1:0", "--join", "127.0.0.1:1", "--http", web)...)
	cmd.Env = os.Environ()
	stderr, err := cmd.StderrPipe()
	harness.Must(t, err)
	harness.Must(t, cmd.Start())
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "not let into the cluster yet") {
			break
		}
	}
	client := &http.Client{Timeout: harness.Patience}
	for path, want := range map[string]int{
		"/health/live": 200, "/health/ready": 503, "/metrics": 200, "/api/cluster": 503, "/api/overview": 503, "/": 503,
	} {
		resp, err := client.Get("http://" + web + path)
		harness.Must(t, err)
		body, _ := io.ReadAll(resp.Body)
		harness.Must(t, resp.Body.Close())
		if resp.StatusCode != want || want == 503 && !strings.Contains(string(body), "let into its cluster") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	harness.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, stderr)
	harness.Must(t, cmd.Wait())
}
