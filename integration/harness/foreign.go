package harness

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Python is Debian's interpreter, which sees Debian's modules.
const Python = "/usr/bin/python3"

// Missing reports a client that could not be installed: the test is skipped
// loudly, and fails in CI.
func Missing(t testing.TB, client string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("client %s is not installed, and CI may not skip it", client)
	}
	t.Skipf("SKIPPED: client %s is not installed (make clients)", client)
}

// Client runs a foreign client from the integration/clients folder with args
// and returns its standard output. It fails the test when the client fails.
func Client(t testing.TB, timeout time.Duration, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	NeedProgram(t, argv[0])
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = clientsDir(t)
	dieWithParent(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// NeedProgram fails or skips unless the programs are installed.
func NeedProgram(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			Missing(t, p)
		}
	}
}

// NeedNode fails or skips unless the npm package is installed.
func NeedNode(t testing.TB, pkg string) {
	t.Helper()
	NeedProgram(t, "node")
	if _, err := os.Stat(filepath.Join(clientsDir(t), "node_modules", pkg)); err != nil {
		Missing(t, "npm "+pkg)
	}
}

// NeedPython fails or skips unless the Debian Python module is installed.
func NeedPython(t testing.TB, module string) {
	t.Helper()
	if err := exec.Command(Python, "-c", "import "+module).Run(); err != nil {
		Missing(t, "python3 "+module)
	}
}

func clientsDir(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	Must(t, err)
	return filepath.Join(root, "integration", "clients")
}
