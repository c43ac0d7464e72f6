package broker

import (
	"context"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// autoDeleted is a client with what goes with its last user: a consumer's queue, and an
// exchange that its exclusive queue is bound to. All but the exclusive queue is durable.
func autoDeleted(t *testing.T, b *Broker) *Conn {
	t.Helper()
	id, err := b.Authenticate(context.Background(), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Connect(id, kernel.ConnectionInfo{Protocol: "test", Token: "t"}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	declare(t, c, QueueSpec{Name: "q", Durable: true, AutoDelete: true})
	consume(t, c, "q", kernel.MemberOptions{}, 1)
	declare(t, c, QueueSpec{Name: "mine", Exclusive: true})
	err = c.DeclareExchange(soon(t), kernel.Exchange{Name: "x", Type: kernel.Direct, AutoDelete: true, Durable: true})
	if err == nil {
		err = c.Bind(soon(t), kernel.Binding{Exchange: "x", Queue: "mine", Key: "k"})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAutoDeletedOutlastsTheLink: durable queues and exchanges that go with their last user
// stay when that one only changes its link, because another facade comes or the link is
// broken. Once it has been away for too long they go, and at once if it leaves.
func TestAutoDeletedOutlastsTheLink(t *testing.T) {
	there := func(c *Conn) (queue, exchange bool) {
		_, err := c.Queue("q")
		_, xerr := c.Exchange("x")
		return err == nil, xerr == nil
	}
	check := func(t *testing.T, c *Conn, want bool) {
		t.Helper()
		if q, x := there(c); q != want || x != want {
			t.Errorf("the queue is there: %v, the exchange: %v, want %v", q, x, want)
		}
	}
	t.Run("another facade comes", func(t *testing.T) {
		n, b := serveNode(t)
		c := autoDeleted(t, b)
		b.Retire()
		c.Close()
		check(t, connect(t, serveAgain(t, n)), true)
	})
	t.Run("the link breaks", func(t *testing.T) {
		b := open(t, t.TempDir())
		c, other := autoDeleted(t, b), connect(t, b)
		c.Suspend()
		c.Close()
		check(t, other, true)
	})
	t.Run("the link breaks, and the client does not come back", func(t *testing.T) {
		b := open(t, t.TempDir())
		b.patience = time.Millisecond
		c, other := autoDeleted(t, b), connect(t, b)
		c.Suspend()
		c.Close()
		until(t, "both are gone", func() bool { q, x := there(other); return !q && !x })
	})
	t.Run("the client leaves", func(t *testing.T) {
		b := open(t, t.TempDir())
		c, other := autoDeleted(t, b), connect(t, b)
		c.Close()
		check(t, other, false)
	})
}
