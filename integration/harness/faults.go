package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// FaultsVariable tells a binary with faults where to take orders, LoseVariable
// that what is not synced is lost when it is killed. Other binaries know neither.
const (
	FaultsVariable = "FAULTY_TRIVIUM"
	LoseVariable   = "FAULTY_TRIVIUM_LOSE"
)

// Rule is a fault of a node's files; see vfs.Rule. Clear removes all.
type Rule struct {
	Op    string        `json:"op"` // sync, write, preallocate, ...
	Name  string        `json:"name,omitempty"`
	After int           `json:"after,omitempty"`
	Times int           `json:"times,omitempty"`
	Error string        `json:"error,omitempty"` // EIO, ENOSPC or empty
	Delay time.Duration `json:"delay,omitempty"`
}

// FaultyBinary returns a binary that takes orders to break its own files and
// clock, built once by each test process.
func FaultyBinary(t testing.TB) string {
	t.Helper()
	path, err := faultyBinary()
	Must(t, err)
	return path
}

var faultyBinary = sync.OnceValues(func() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "trivium-faults-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := steppedTime(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "trivium.faults")
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(fresh)
	build := exec.Command("go", "build", "-tags", "faults,steps", "-overlay", overlay, "-o", fresh, "./cmd/trivium")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary with faults: %w\n%s", err, out)
	}
	return path, os.Rename(fresh, path)
})

// steppedTime writes a copy of package time whose Now is ahead by what was last
// given to TriviumStep, and leaves the monotonic clock alone: what a step of the
// machine's clock does. It returns the overlay for go build.
func steppedTime(dir string) (overlay string, err error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed := strings.Replace(string(source), reading, reading+"\tsec += triviumStep.Load()\n", 1)
	if changed == string(source) {
		return "", errors.New("this Go's time.Now is not as expected: the clock cannot be set")
	}
	added := "package time\n\nimport \"sync/atomic\"\n\nvar triviumStep atomic.Int64\n\n" +
		"// TriviumStep sets the clock of the process ahead, in whole seconds.\n" +
		"func TriviumStep(d Duration) { triviumStep.Store(int64(d / Second)) }\n"
	changedAt, addedAt := filepath.Join(dir, "time.go"), filepath.Join(dir, "step.go")
	if err := errors.Join(os.WriteFile(changedAt, []byte(changed), 0o644), os.WriteFile(addedAt, []byte(added), 0o644)); err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {
		original: changedAt, filepath.Join(filepath.Dir(original), "trivium_step.go"): addedAt,
	}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o644)
}

// faults is the socket that the node takes orders from.
func (n *Node) faults() string { return filepath.Join(n.cluster.sockets, fmt.Sprintf("%d.sock", n.ID)) }

// Break adds a fault of the node's files.
func (n *Node) Break(r Rule) error { return n.order(r) }

// Fill makes the node's volume look full, and writes to it fail.
func (n *Node) Fill() error {
	if err := n.order(map[string]any{"full": true}); err != nil {
		return err
	}
	for _, op := range []string{"create", "preallocate"} {
		if err := n.Break(Rule{Op: op, Error: "ENOSPC"}); err != nil {
			return err
		}
	}
	return nil
}

// Mend removes all faults of the node's files.
func (n *Node) Mend() error { return n.order(map[string]any{"clear": true}) }

// Step sets the node's clock ahead of the machine's, or behind it.
func (n *Node) Step(ahead time.Duration) error {
	return n.order(map[string]any{"clock": true, "step": ahead})
}

func (n *Node) order(o any) error {
	c, err := net.DialTimeout("unix", n.faults(), Patience)
	if err != nil {
		return fmt.Errorf("node %d takes no orders: %w", n.ID, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	if err := json.NewEncoder(c).Encode(o); err != nil {
		return fmt.Errorf("node %d: %w", n.ID, err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if answer = strings.TrimSpace(answer); err != nil || answer != "ok" {
		return fmt.Errorf("node %d on a fault: %q %w", n.ID, answer, err)
	}
	return nil
}
