// Package backup copies nodes while clients of all protocols publish, and makes new
// nodes of the copies and of what is left of a cluster.
package backup

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

var (
	must = harness.Must
	says = harness.Says
)

// command is a command of the binary that is not waited for.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), harness.Binary(t), args...)
}

// backupOf makes a backup of a node.
func backupOf(t *testing.T, http string, more ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "backup")
	says(t, 0, append([]string{"backup", "--url", "http://" + http, "--to", dir, "--rate", "0"}, more...), dir)
	return dir
}

// restored starts a node on what is restored from a backup.
func restored(t *testing.T, from string, args ...string) *harness.Broker {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	says(t, 0, []string{"restore", "--from", from, "--data", dir}, "founds cluster")
	return harness.Start(t, append([]string{"--data", dir}, args...)...)
}

// flip changes a byte in the middle of a file.
func flip(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	data = slices.Clone(data)
	data[len(data)/2] ^= 1
	must(t, os.WriteFile(name, data, 0o600))
}

// copyOf copies a backup, whose files may be those of a node, without the named ones.
func copyOf(t *testing.T, from string, without ...string) (to string) {
	t.Helper()
	to = filepath.Join(t.TempDir(), "copy")
	for _, name := range filesOf(t, from) {
		if slices.Contains(without, name) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		must(t, err)
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
	}
	return to
}

// filesOf lists the files of a backup.
func filesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, rel)
		}
		return err
	}))
	return names
}
