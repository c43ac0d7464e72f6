package forward

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// TestPublishAfterClose: what a front-end has held until its channel was closed is
// published all the same, and no link breaks of it.
func TestPublishAfterClose(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	door := edge.New(edge.Config{Counters: b.Counters, Logger: zerolog.Nop()})
	t.Cleanup(door.Close)
	door.Set(NewHost(n, "1"))
	c, err := door.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Remote: loopback},
		func(reason error) { t.Errorf("ended: %v", reason) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	(&client{Link: c, t: t}).declare("q")
	p := c.Publisher(newOutcomes())
	publish := func() {
		t.Helper()
		if _, err := p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, 1); err != nil {
			t.Error(err)
		}
	}
	link := n.near
	p.Close()
	publish()
	p.Close()
	publish()
	if err := p.Settle(soon(t)); err != nil {
		t.Error(err)
	}
	if info, err := c.Queue("q"); err != nil || info.Ready != 2 {
		t.Errorf("%+v %v", info, err)
	}
	if n.near != link {
		t.Error("the link was made anew")
	}
}
