package forward

import (
	"context"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// TestCallsTakeEffectOnce: the answer to a call is lost with the link, somebody else undoes
// what was done, and the call is repeated over the next link. It is answered, and what was
// undone stays so.
func TestCallsTakeEffectOnce(t *testing.T) {
	ctx := context.Background()
	queue := broker.QueueSpec{Name: "q", Durable: true}
	exchange := kernel.Exchange{Name: "x", Type: kernel.Direct, Durable: true}
	declareQueue := func(l edge.Link) error { _, err := l.DeclareQueue(ctx, queue); return err }
	deleteQueue := func(l edge.Link) error { _, err := l.DeleteQueue(ctx, "q", false, false); return err }
	declareExchange := func(l edge.Link) error { return l.DeclareExchange(ctx, exchange) }
	deleteExchange := func(l edge.Link) error { return l.DeleteExchange(ctx, "x", false) }
	publish := func(l edge.Link) error {
		p := l.Publisher(newOutcomes())
		defer p.Close()
		if _, err := p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, 1); err != nil {
			return err
		}
		return p.Settle(soon(t))
	}
	hasQueue := func(l edge.Link) bool { _, err := l.Queue("q"); return err == nil }
	hasExchange := func(l edge.Link) bool { _, err := l.Exchange("x"); return err == nil }
	hasRecord := func(l edge.Link) bool { info, err := l.Queue("q"); return err == nil && info.Ready == 1 }
	for name, c := range map[string]struct {
		before   []func(edge.Link) error
		do, undo func(edge.Link) error
		there    func(edge.Link) bool
		want     bool // what there says once it is done
	}{
		"declare a queue":     {nil, declareQueue, deleteQueue, hasQueue, true},
		"delete a queue":      {[]func(edge.Link) error{declareQueue}, deleteQueue, declareQueue, hasQueue, false},
		"declare an exchange": {nil, declareExchange, deleteExchange, hasExchange, true},
		"delete an exchange":  {[]func(edge.Link) error{declareExchange}, deleteExchange, declareExchange, hasExchange, false},
		"purge a queue": {
			[]func(edge.Link) error{declareQueue, publish},
			func(l edge.Link) error { _, err := l.PurgeQueue(ctx, "q"); return err }, publish, hasRecord, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			n, others := serve(t, b), serve(t, b)
			door := edge.New(edge.Config{Counters: b.Counters, Logger: zerolog.Nop()})
			t.Cleanup(door.Close)
			door.Set(NewHost(n, "1"))
			mine, err := door.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Remote: loopback},
				func(reason error) { t.Errorf("ended: %v", reason) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(mine.Close)
			other := others.connect(t)
			for _, do := range c.before {
				if err := do(other); err != nil {
					t.Fatal(err)
				}
			}
			link, shut := n.near, make(chan struct{})
			link.gate.Store(&shut)
			done := make(chan error, 1)
			go func() { done <- c.do(mine) }()
			eventually(t, "it is done", func() bool { return c.there(other) == c.want })
			if err := c.undo(other); err != nil {
				t.Fatal(err)
			}
			link.Close()
			if err := <-done; err != nil {
				t.Errorf("the repeated call: %v", err)
			}
			if n.near == link {
				t.Error("the link was not made anew")
			}
			if c.there(other) == c.want {
				t.Error("it was done twice")
			}
			if err := c.do(mine); err != nil {
				t.Error(err)
			}
			if c.there(other) != c.want {
				t.Error("the next call is taken for the same")
			}
		})
	}
}
