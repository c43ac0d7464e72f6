package broker

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestRetiredReplacesNobody: a client that is linked anew to a facade which is about to
// close is refused, and what its earlier link has there stays.
func TestRetiredReplacesNobody(t *testing.T) {
	b := open(t, t.TempDir())
	id := kernel.Identity{User: "guest", Tenant: "/"}
	info := kernel.ConnectionInfo{Protocol: "test", Token: "token"}
	c, err := b.Connect(id, info, nil)
	must(t, err)
	b.Retire()
	if _, err := b.Connect(id, info, nil); kernel.CodeOf(err) != kernel.CodeUnavailable {
		t.Error(err)
	}
	declare(t, c, QueueSpec{Name: "q", Exclusive: true})
	c.Close()
}
