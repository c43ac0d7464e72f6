package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 20 * time.Second
	dumpTimeout  = 3 * time.Second // for the stacks of a process that does not end
)

// Addresses are where a node listens, host:port each. Its methods open clients.
type Addresses struct{ AMQP, MQTT, Kafka, HTTP string }

// Broker is one broker process, running, killed or stopped.
type Broker struct {
	Addresses
	Dir string // data directory

	t testing.TB
	process
}

// Start starts a broker with extra arguments and ends it when the test ends.
func Start(t testing.TB, args ...string) *Broker {
	t.Helper()
	at, err := freeAddresses()
	Must(t, err)
	bin, err := binary()
	Must(t, err)
	b := &Broker{Addresses: at, Dir: t.TempDir(), t: t}
	b.process = process{bin: bin, args: append(serveArguments(at, b.Dir), args...)}
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("broker output (end):\n%s", b.Output())
		}
	})
	b.Run()
	return b
}

// Run starts the process (again, after Kill or Stop) on the same data directory
// and ports and waits until it is ready.
func (b *Broker) Run() {
	b.t.Helper()
	Must(b.t, b.start())
}

// Kill ends the process with SIGKILL and waits for it.
func (b *Broker) Kill() { b.kill() }

// Stop ends the process with SIGTERM and returns its exit code.
func (b *Broker) Stop() int {
	b.t.Helper()
	code, err := b.terminate()
	if err != nil {
		b.t.Error(err)
	}
	return code
}

// Shared runs the tests of a package beside one broker, whose addresses it
// stores in at before, and returns the exit code: that of the tests, or 1 if
// the broker did not end well. For TestMain.
func Shared(m *testing.M, at *Addresses) int {
	code, err := besideShared(m, at)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func besideShared(m *testing.M, at *Addresses) (code int, err error) {
	dir, err := os.MkdirTemp("", "trivium-shared-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	bin, err := binary()
	if err != nil {
		return 0, err
	}
	if *at, err = freeAddresses(); err != nil {
		return 0, err
	}
	p := process{bin: bin, args: serveArguments(*at, dir)}
	defer p.kill()
	if err := p.start(); err != nil {
		return 0, err
	}
	if code = m.Run(); code != 0 {
		fmt.Fprintf(os.Stderr, "shared broker output (end):\n%s\n", p.Output())
	}
	exit, err := p.terminate()
	if err == nil && exit != 0 {
		err = fmt.Errorf("the shared broker ended with exit code %d\n%s", exit, p.Output())
	}
	return code, err
}

func serveArguments(at Addresses, dir string) []string {
	return []string{"serve", "--data", dir, "--amqp", at.AMQP, "--mqtt", at.MQTT, "--kafka", at.Kafka, "--http", at.HTTP, "--cluster", "off"}
}

// freeAddresses returns loopback addresses for a node.
func freeAddresses() (at Addresses, err error) {
	for _, addr := range []*string{&at.AMQP, &at.MQTT, &at.Kafka, &at.HTTP} {
		if *addr, err = freeAddress(); err != nil {
			return at, err
		}
	}
	return at, nil
}

// process is the binary as it runs, one life after the other.
type process struct {
	bin  string
	args []string
	env  []string       // nil: that of the test
	tee  io.WriteCloser // gets all that it writes and is closed at its end; nil: none
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when the process has ended
	err  error         // of Wait, once done
}

// start starts the binary and waits until it is ready.
func (p *process) start() error {
	cmd, out, done := exec.Command(p.bin, p.args...), newOutput(), make(chan struct{})
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, p.env
	tee := p.tee
	if tee != nil {
		both := io.MultiWriter(out, tee)
		cmd.Stdout, cmd.Stderr = both, both
	}
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.bin, err)
	}
	p.cmd, p.out, p.done = cmd, out, done
	go func() {
		p.err = cmd.Wait()
		if tee != nil {
			_ = tee.Close()
		}
		close(done)
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-out.ready:
		return nil
	case <-done:
		return fmt.Errorf("broker ended before it was ready: %w\n%s", p.err, out.tail())
	case <-timer.C:
		p.kill()
		return fmt.Errorf("broker not ready after %v\n%s", startTimeout, out.tail())
	}
}

// kill ends the process, if there is one, with SIGKILL and waits for it.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// terminate ends the process with SIGTERM and returns its exit code; with
// SIGKILL and an error if it does not end, after it has written what its goroutines do.
func (p *process) terminate() (code int, err error) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		err = errors.New("broker still runs " + stopTimeout.String() + " after SIGTERM\n" + p.out.tail())
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-p.done:
		case <-time.After(dumpTimeout):
		}
		p.kill()
	}
	return p.cmd.ProcessState.ExitCode(), err
}

// PID is the process id.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Output is what the process has written so far (its end, if it is much).
func (p *process) Output() string {
	if p.out == nil {
		return ""
	}
	return p.out.tail()
}
