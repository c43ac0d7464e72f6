// Package harness starts the real binary for black-box tests: on free loopback
// ports, with a data directory of its own, and waits for it to say that it is
// ready. Tests drive it with real client libraries over real sockets.
package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	readyLine    = "Server startup complete"
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// Broker is one running (or killed) broker process.
type Broker struct {
	AMQP, MQTT, Kafka, HTTP string // host:port
	Dir                     string // data directory

	t    testing.TB
	bin  string
	args []string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when the process has ended
	err  error         // of Wait, once done
}

// Start starts a broker with extra arguments and stops it when the test ends.
func Start(t testing.TB, args ...string) *Broker {
	t.Helper()
	ports := freePorts(t, 4)
	b := &Broker{
		t: t, bin: Binary(t), args: args, Dir: t.TempDir(),
		AMQP: ports[0], MQTT: ports[1], Kafka: ports[2], HTTP: ports[3],
	}
	b.Run()
	t.Cleanup(func() {
		b.Kill()
		if t.Failed() {
			t.Logf("broker output (end):\n%s", b.out.tail())
		}
	})
	return b
}

// Run starts the process (again, after Kill or Stop) on the same data directory
// and ports and waits until it is ready.
func (b *Broker) Run() {
	b.t.Helper()
	args := append([]string{"serve", "--data", b.Dir, "--amqp", b.AMQP, "--mqtt", b.MQTT, "--kafka", b.Kafka, "--http", b.HTTP, "--cluster", "off"}, b.args...)
	b.cmd = exec.Command(b.bin, args...)
	b.out = newOutput()
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	b.done = make(chan struct{})
	if err := b.cmd.Start(); err != nil {
		b.t.Fatalf("start %s: %v", b.bin, err)
	}
	done, cmd := b.done, b.cmd
	go func() {
		b.err = cmd.Wait()
		close(done)
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-b.out.ready:
	case <-b.done:
		b.t.Fatalf("broker ended before it was ready: %v\n%s", b.err, b.out.tail())
	case <-timer.C:
		b.t.Fatalf("broker not ready after %v\n%s", startTimeout, b.out.tail())
	}
}

// Kill ends the process with SIGKILL and waits for it.
func (b *Broker) Kill() {
	_ = b.cmd.Process.Kill()
	<-b.done
}

// Stop ends the process with SIGTERM and returns its exit code.
func (b *Broker) Stop() int {
	b.t.Helper()
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
		b.t.Errorf("broker still runs %v after SIGTERM\n%s", stopTimeout, b.out.tail())
		b.Kill()
	}
	return b.cmd.ProcessState.ExitCode()
}

// PID is the process id.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Output is what the process has written so far (its end, if it is much).
func (b *Broker) Output() string { return b.out.tail() }

// output keeps the end of what a process writes and notices the ready line.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	ready chan struct{}
	once  sync.Once
	line  bytes.Buffer
}

func newOutput() *output { return &output{ready: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if over := o.buf.Len() - 1<<16; over > 1<<15 {
		o.buf.Next(over)
	}
	o.line.Write(p)
	if bytes.Contains(o.line.Bytes(), []byte(readyLine)) {
		o.once.Do(func() { close(o.ready) })
	}
	if i := bytes.LastIndexByte(o.line.Bytes(), '\n'); i >= 0 {
		o.line.Next(i + 1)
	}
	return len(p), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// freePorts returns n loopback addresses that were free a moment ago.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

var (
	buildOnce sync.Once
	builtPath string
	buildErr  error
)

// Binary returns the broker's binary: TRIVIUM_BIN, or one built for this test
// process.
func Binary(t testing.TB) string {
	t.Helper()
	if p := os.Getenv("TRIVIUM_BIN"); p != "" {
		return p
	}
	buildOnce.Do(func() {
		dir, err := os.MkdirTemp("", "trivium-bin-")
		if err != nil {
			buildErr = err
			return
		}
		builtPath = filepath.Join(dir, "trivium")
		out, err := exec.Command("go", "build", "-o", builtPath, "github.com/trivium-mq/trivium/cmd/trivium").CombinedOutput()
		if err != nil {
			buildErr = fmt.Errorf("build the binary: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return builtPath
}

// Wait polls cond until it is true, and fails the test after timeout. For
// conditions behind a network protocol that offers no event.
func Wait(t testing.TB, timeout time.Duration, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("after %v still not: %s", timeout, what)
		case <-tick.C:
		}
	}
}

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
	if _, err := exec.LookPath(argv[0]); err != nil {
		Missing(t, argv[0])
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = clientsDir(t)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(argv, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// NeedNode fails or skips unless the npm package is installed.
func NeedNode(t testing.TB, pkg string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(clientsDir(t), "node_modules", pkg)); err != nil {
		Missing(t, "npm "+pkg)
	}
}

// NeedPython fails or skips unless the Debian Python module is installed.
func NeedPython(t testing.TB, module string) {
	t.Helper()
	if err := exec.Command("/usr/bin/python3", "-c", "import "+module).Run(); err != nil {
		Missing(t, "python3 "+module)
	}
}

func clientsDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			return filepath.Join(dir, "integration", "clients")
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		break
	}
	t.Fatal("no go.mod above the test's folder")
	return ""
}

// Lines calls f for each line of r.
func Lines(r io.Reader, f func(string)) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		f(s.Text())
	}
}
