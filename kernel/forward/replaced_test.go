package forward

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestReplacedLinkPublishesNothing: what of a link is still to be read when its connection
// is linked anew is not published any more, or it would be behind what the new link brings.
func TestReplacedLinkPublishesNothing(t *testing.T) {
	n := serve(t, open(t))
	token := func(info *kernel.ConnectionInfo) { info.Token = "token" }
	old := n.connect(t, token)
	old.declare("q")
	before := publishing(t, old)
	before.to("", "q", "first")
	before.settle()
	slow := make(chan struct{})
	n.far.gate.Store(&slow)
	before.to("", "q", "late")
	next := n.connect(t, token)
	after := publishing(t, next)
	after.to("", "q", "next")
	after.settle()
	close(slow)
	old.Close()
	wantCode(t, before.done.wait(t, 2)[2], kernel.CodeUnavailable)
	if info, err := next.Queue("q"); err != nil || info.Ready != 2 {
		t.Errorf("%+v %v", info, err)
	}
}
