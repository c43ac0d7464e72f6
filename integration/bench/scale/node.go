package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// node is a broker process and its data directory.
type node struct {
	bin, dir                string
	amqp, mqtt, kafka, http string
	cmd                     *exec.Cmd
	log                     *os.File
	sampled                 sampler
}

// started is what the process says when it can serve.
const started = "Server startup complete"

func newNode(o *options) (*node, error) {
	dir, err := os.MkdirTemp(o.dir, "trivium-scale-")
	if err != nil {
		return nil, err
	}
	n := &node{bin: o.bin, dir: dir}
	for _, at := range []*string{&n.amqp, &n.mqtt, &n.kafka, &n.http} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*at = l.Addr().String()
		defer l.Close()
	}
	return n, nil
}

// start starts the process and returns how long it takes until it serves.
func (n *node) start() (time.Duration, error) {
	begin := time.Now()
	n.cmd = exec.Command(n.bin, "serve", "--data", filepath.Join(n.dir, "data"), "--cluster", "off", "--log-level", "info", "--log-format", "json",
		"--amqp", n.amqp, "--mqtt", n.mqtt, "--kafka", n.kafka, "--http", n.http, "--connections-unknown-per-client", "0")
	pipe, err := n.cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	if n.log, err = os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return 0, err
	}
	if err := n.cmd.Start(); err != nil {
		return 0, err
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		told := false
		for s := bufio.NewScanner(pipe); s.Scan(); {
			fmt.Fprintln(n.log, s.Text())
			if !told && strings.Contains(s.Text(), started) {
				told = true
				close(ready)
			}
		}
	}()
	n.sampled.begin(n.cmd.Process.Pid)
	select {
	case <-ready:
		return time.Since(begin), nil
	case <-ended:
		return 0, fmt.Errorf("the broker ended: see %s", n.log.Name())
	case <-time.After(10 * time.Minute):
		return 0, errors.New("the broker has not come up")
	}
}

// end ends the process by a signal and waits for it.
func (n *node) end(sig syscall.Signal) {
	n.sampled.end()
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Signal(sig)
	_ = n.cmd.Wait()
	n.cmd = nil
	_ = n.log.Close()
}

// remove ends the process and removes its directory.
func (n *node) remove() {
	n.end(syscall.SIGKILL)
	_ = os.RemoveAll(n.dir)
}

// restarts measures a start after kill -9 and one after a clean end.
func (n *node) restarts(what string) error {
	n.end(syscall.SIGKILL)
	took, err := n.start()
	if err != nil {
		return err
	}
	say(what+": start after kill -9", "%.2f s, %.2f s of CPU, RSS %d MiB", took.Seconds(), n.cpu().Seconds(), n.status("VmRSS")>>20)
	n.end(syscall.SIGTERM)
	if took, err = n.start(); err != nil {
		return err
	}
	say(what+": start after a clean end", "%.2f s, %.2f s of CPU, RSS %d MiB", took.Seconds(), n.cpu().Seconds(), n.status("VmRSS")>>20)
	return nil
}

// status returns a figure of /proc/PID/status, in bytes.
func (n *node) status(field string) int64 { return statusOf(n.cmd.Process.Pid, field) }

func statusOf(pid int, field string) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// files counts the open files of the process.
func (n *node) files() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid))
	return len(list)
}

// cpu is the processor time the process has used.
func (n *node) cpu() time.Duration {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid))
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	sys, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+sys) * 10 * time.Millisecond
}

// sampler notes the highest RSS, looked at each second.
type sampler struct {
	mu   sync.Mutex
	pid  int
	high int64
	stop chan struct{}
}

func (s *sampler) begin(pid int) {
	s.end()
	stop := make(chan struct{})
	s.mu.Lock()
	s.pid, s.high, s.stop = pid, 0, stop
	s.mu.Unlock()
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.look()
			case <-stop:
				return
			}
		}
	}()
}

func (s *sampler) look() {
	rss := statusOf(s.pid, "VmRSS")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.high = max(s.high, rss)
}

func (s *sampler) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
}

// phase says what the highest RSS has been since the last call.
func (n *node) phase(what string) {
	n.sampled.look()
	n.sampled.mu.Lock()
	high := n.sampled.high
	n.sampled.high = 0
	n.sampled.mu.Unlock()
	say(what, "RSS at most %d MiB, VmHWM %d MiB", high>>20, n.status("VmHWM")>>20)
}
