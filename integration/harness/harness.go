// Package harness starts the real binary for black-box tests: on free loopback
// ports, with a data directory of its own, and waits for it to say that it is
// ready. Tests drive it with real client libraries over real sockets; the ones
// that most tests need are opened here.
package harness

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Patience is how long a test waits for what should come soon: long, because the
// machine that runs the tests has other work. A test that passes does not use it up.
const Patience = 20 * time.Second

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Receive takes one value from a channel, and fails the test when the channel is
// closed or nothing comes.
func Receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatal("closed")
		}
		return v
	case <-timer.C:
		t.Fatal("nothing came")
	}
	panic("unreachable")
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

var names atomic.Uint64

// Name makes a name that no other test has, not even of another run.
func Name(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, os.Getpid(), names.Add(1))
}
