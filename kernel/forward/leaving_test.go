package forward

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestCallsOfWhoLeaves: a call that waits when its link is left, as in a planned move, says
// that it is to be made again.
func TestCallsOfWhoLeaves(t *testing.T) {
	n := serve(t, open(t))
	asked := make(chan struct{})
	_, _, err := n.connect(t).AttachSession(soon(t), broker.Attaching{ClientID: "c", Expiry: time.Hour}, func() { close(asked) })
	if err != nil {
		t.Fatal(err)
	}
	c := n.connect(t)
	done := make(chan error, 1)
	go func() {
		_, _, err := c.AttachSession(soon(t), broker.Attaching{ClientID: "c", Expiry: time.Hour}, nil)
		done <- err
	}()
	<-asked
	c.Close()
	if code := kernel.CodeOf(<-done); code != kernel.CodeUnknown && code != kernel.CodeUnavailable {
		t.Errorf("code %d", code)
	}
}
