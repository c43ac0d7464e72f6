package serve

import (
	"bufio"
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
