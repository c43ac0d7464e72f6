package broker

import (
	"context"
	"crypto/rand"
	"runtime"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// leaver is a client that outlasts its facade: it does something when it is asked to
// leave, and leaves.
func leaver(t *testing.T, b *Broker, before func(c *Conn)) *Conn {
	t.Helper()
	id, err := b.Authenticate(context.Background(), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	self := make(chan *Conn, 1)
	c, err := b.Connect(id, kernel.ConnectionInfo{Protocol: "test", Token: rand.Text()}, func(error) {
		go func() {
			c := <-self
			before(c)
			c.Close()
		}()
	})
	if err != nil {
		t.Fatal(err)
	}
	self <- c
	return c
}

// TestClientsLeaveTogether: what a client still publishes when a facade ends in good order
// comes to the exclusive queue, and the consumer, of one that has come to leave before,
// also if that has left on the news that the facade is about to end.
func TestClientsLeaveTogether(t *testing.T) {
	for _, retired := range []bool{false, true} {
		b := open(t, t.TempDir())
		first := leaver(t, b, func(*Conn) {})
		last := leaver(t, b, func(c *Conn) {
			for leaving := 0; leaving == 0; runtime.Gosched() {
				b.mu.Lock()
				leaving = b.leaving
				b.mu.Unlock()
			}
			p := c.Publisher(nil)
			defer p.Close()
			if n, err := p.ToExchange("", "mine", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{Mandatory: true}, 1); n != 1 || err != nil {
				t.Error(n, err)
			}
			if err := p.Settle(soon(t)); err != nil {
				t.Error(err)
			}
		})
		declare(t, first, QueueSpec{Name: "mine", Exclusive: true})
		_, in := consume(t, first, "mine", kernel.MemberOptions{AutoSettle: true}, 10)
		if retired {
			b.Retire() // Close may come much later
			if _, err := b.Connect(last.Identity(), kernel.ConnectionInfo{Protocol: "test"}, nil); kernel.CodeOf(err) != kernel.CodeUnavailable {
				t.Error(err)
			}
		}
		if err := b.Close(soon(t)); err != nil {
			t.Error(err)
		}
		in.wait(t, 1)
	}
}

// TestPartingIsBounded: a client that does not leave holds up the others for a moment
// only, and a leadership that is lost holds up nobody.
func TestPartingIsBounded(t *testing.T) {
	b := open(t, t.TempDir())
	stay := make(chan struct{})
	leaver(t, b, func(*Conn) { <-stay })
	c := leaver(t, b, func(*Conn) {})
	b.Retire()
	<-c.done
	close(stay)
	if err := b.Close(soon(t)); err != nil {
		t.Error(err)
	}

	b = open(t, t.TempDir())
	asked := make(chan struct{})
	c = leaver(t, b, func(*Conn) { close(asked) })
	leaver(t, b, func(*Conn) { <-b.ctx.Done() })
	b.Retire()
	<-asked
	b.lose()
	<-c.done
}

// TestOnlyWhoComesBackParts: clients that end with the facade, as those of Kafka, are not
// asked before their server has let them finish; they wait for nobody, and nobody for them.
func TestOnlyWhoComesBackParts(t *testing.T) {
	b := open(t, t.TempDir())
	id, err := b.Authenticate(context.Background(), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	connect := func() *Conn {
		c, err := b.Connect(id, kernel.ConnectionInfo{Protocol: "test"}, func(error) { t.Error("it is asked to leave") })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	stays, goes := connect(), connect()
	c := leaver(t, b, func(*Conn) {})
	b.Retire()
	goes.Close()
	<-c.done
	b.mu.Lock()
	leaving := b.leaving
	b.mu.Unlock()
	if leaving != 1 {
		t.Errorf("%d connections have come to leave", leaving)
	}
	stays.Close()
}
