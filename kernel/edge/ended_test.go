package edge

import (
	"errors"
	"net"
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
