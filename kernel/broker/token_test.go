package broker

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestConnectionMadeAnew: a connection with the token of another one takes its place at
// once: what that holds is given back, its exclusive queue can be made again, and its
// node is told.
func TestConnectionMadeAnew(t *testing.T) {
	b := open(t, t.TempDir())
	info := kernel.ConnectionInfo{Protocol: "test", Remote: loopback, Token: "t"}
	told := make(chan error, 1)
	link := func() *Conn {
		t.Helper()
		c, err := b.Connect(kernel.Identity{User: "guest", Tenant: "/"}, info, func(reason error) { told <- reason })
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := link()
	own := declare(t, first, QueueSpec{Name: "own", Exclusive: true})
	second := link()
	wantCode(t, <-told, kernel.CodeFenced)
	if again := declare(t, second, QueueSpec{Name: own.Name, Exclusive: true}); again.Name != own.Name {
		t.Errorf("%+v", again)
	}
	if _, err := first.Queue("own"); err == nil {
		t.Error("the connection before still works")
	}
	first.Close() // late, and of no consequence
	third := link()
	wantCode(t, <-told, kernel.CodeFenced)
	third.Close()
	if n := len(b.tokens); n != 0 {
		t.Errorf("%d tokens are left", n)
	}
}
