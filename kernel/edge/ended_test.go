package edge

import (
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// TestEndedWaitsForNobody: a call that waits for a host holds up no connection that is to
// be closed, as when a node of an earlier version serves, which will never be its host.
func TestEndedWaitsForNobody(t *testing.T) {
	w := newWorld(t)
	w.cfg.Patience = time.Hour
	w.serve()
	told := make(chan error, 1)
	c, err := w.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Name: t.Name(), Remote: &net.TCPAddr{}},
		func(reason error) { told <- reason })
	must(t, err)
	t.Cleanup(c.Close)
	w.Set(nil)
	done := make(chan error, 1)
	go func() {
		_, err := c.Queue("q")
		done <- err
	}()
	reason := errors.New("nobody will serve")
	w.Evict(reason)
	if err := <-told; err != reason {
		t.Errorf("ended: %v", err)
	}
	select {
	case err := <-done:
		if kernel.CodeOf(err) != kernel.CodeUnavailable {
			t.Errorf("%v", err)
		}
	case <-time.After(patience):
		t.Fatal("the call waits on")
	}
}

// TestLoginsWaitForNobodyAtTheEnd: a client that is about to log in while nobody serves
// holds up no node that stops, nor one whose clients another one is to have as bytes.
func TestLoginsWaitForNobodyAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.cfg.Patience = time.Hour
	remote := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	login := func() error {
		_, err := w.Anonymous("/", remote)
		return err
	}
	waiting := func() <-chan error {
		asked := make(chan error, 1)
		go func() { asked <- login() }()
		return asked
	}
	for _, end := range []func(error){w.Evict, w.Shut} {
		asked, ctx := waiting(), soon(t)
		for over := false; !over; { // it may have asked after the end
			if end(errClosed); ctx.Err() != nil {
				t.Fatal("it waits")
			}
			select {
			case err := <-asked:
				if kernel.CodeOf(err) != kernel.CodeUnavailable {
					t.Error(err)
				}
				over = true
			default:
				runtime.Gosched()
			}
		}
	}
	if err := login(); kernel.CodeOf(err) != kernel.CodeUnavailable {
		t.Error(err)
	}
	w.serve()
	if err := login(); kernel.CodeOf(err) == kernel.CodeUnavailable {
		t.Error(err)
	}
}
