package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Binary returns the broker's binary: TRIVIUM_BIN, or bin/trivium.test, built
// once by each test process.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	Must(t, err)
	return path
}

var binary = sync.OnceValues(func() (string, error) {
	if p := os.Getenv("TRIVIUM_BIN"); p != "" {
		return p, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	// Others may build, or run, the same file at this moment: it is replaced
	// whole, never written to.
	path := filepath.Join(root, "bin", "trivium.test")
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(fresh)
	build := exec.Command("go", "build", "-o", fresh, "./cmd/trivium")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
})

// moduleRoot is the folder with go.mod that the tests run in or below.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the test's folder")
		}
		dir = parent
	}
}

// Command runs a command of the binary, for as long as patience lasts, and returns what it
// says and its exit code.
func Command(t testing.TB, patience time.Duration, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatalf("%v: %v", args, err)
		}
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// Says runs a command of the binary, which must end with a code and say all of want. It
// returns what it says.
func Says(t testing.TB, code int, args []string, want ...string) string {
	t.Helper()
	out, got := Command(t, 6*Patience, args...)
	if got != code {
		t.Fatalf("%v: exit code %d, want %d\n%s", args, got, code, out)
	}
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("%v: says nothing of %q:\n%s", args, w, out)
		}
	}
	return out
}
