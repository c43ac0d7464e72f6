package listener

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, opt Options) *Listener {
	t.Helper()
	l, err := Listen("127.0.0.1:0", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestListenErrors(t *testing.T) {
	l := listen(t, Options{})
	if _, err := Listen(l.Addr().String(), Options{}); !errors.Is(err, ErrAddressInUse) {
		t.Errorf("second listen: %v, want ErrAddressInUse", err)
	}
	for _, addr := range []string{"127.0.0.1:99999", "127.0.0.1", "no.such.host.invalid:1"} {
		if other, err := Listen(addr, Options{}); err == nil {
			_ = other.Close()
			t.Errorf("Listen(%q) succeeded", addr)
		}
	}
}

func TestBudget(t *testing.T) {
	budget := NewBudget(1)
	refused := make(chan error, 1)
	l := listen(t, Options{Budgets: []*Budget{budget}, OnError: func(err error) { refused <- err }})
	accepted := make(chan net.Conn, 2)
	var g Group
	go func() {
		_ = g.Serve(l, func(c net.Conn) {
			accepted <- c
			_, _ = io.Copy(io.Discard, c)
		})
	}()
	first := dial(t, l)
	<-accepted
	second := dial(t, l)
	if err := <-refused; !errors.Is(err, ErrBudget) {
		t.Errorf("reported %v, want ErrBudget", err)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("a connection over the budget was served")
	}
	_ = first.Close()
	// The place comes back when the handler ends; until then a dial is refused.
	go func() {
		for range refused {
		}
	}()
	for served := false; !served; {
		c := dial(t, l)
		select {
		case <-accepted:
			served = true
		case <-time.After(20 * time.Millisecond):
		}
		_ = c.Close()
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(refused)
	if n := budget.Open(); n != 0 {
		t.Errorf("%d connections still counted", n)
	}
}

func TestWritevIsReachable(t *testing.T) {
	l := listen(t, Options{Budgets: []*Budget{NewBudget(1)}})
	dial(t, l)
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, ok := c.(*conn); !ok {
		t.Fatalf("accepted a %T", c)
	}
	if _, ok := c.(syscall.Conn); !ok {
		t.Error("the raw connection cannot be reached")
	}
}

func TestShutdownAwaits(t *testing.T) {
	l := listen(t, Options{})
	var g Group
	var running atomic.Int32
	started := make(chan struct{}, 1)
	served := make(chan error, 1)
	go func() {
		served <- g.Serve(l, func(c net.Conn) {
			running.Add(1)
			started <- struct{}{}
			_, _ = io.Copy(io.Discard, c)
			running.Add(-1)
		})
	}()
	dial(t, l) // never closed by the client: Shutdown must do it
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d handlers outlived Shutdown", n)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := g.Serve(listen(t, Options{}), nil); err != nil {
		t.Errorf("Serve after Shutdown: %v", err)
	}
}

func TestTemporary(t *testing.T) {
	wrap := func(e error) error { return &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", e)} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{wrap(syscall.EMFILE), true}, {wrap(syscall.ECONNABORTED), true},
		{wrap(syscall.EINVAL), false}, {net.ErrClosed, false},
	} {
		if got := temporary(c.err); got != c.want {
			t.Errorf("temporary(%v) = %v", c.err, got)
		}
	}
}
