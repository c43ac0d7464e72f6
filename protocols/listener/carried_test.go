package listener

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
)

// TestCarry: a connection of another node's client is what it was there, and takes
// places of this node until it is closed.
func TestCarry(t *testing.T) {
	budget, open := NewBudget(1), &atomic.Int64{}
	r := Carrier{Budgets: []*Budget{budget}, Addresses: NewAddresses(1), Open: open}
	told, err := Peer{Remote: "192.0.2.9:5", Local: "192.0.2.1:5671", Secure: true, Named: true, User: "anna", Node: "2-a"}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ReadPeer(told)
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	defer b.Close()
	c, err := r.Carry(a, p)
	if err != nil {
		t.Fatal(err)
	}
	user, shown := PeerUser(c)
	if c.RemoteAddr().String() != "192.0.2.9:5" || c.LocalAddr().String() != "192.0.2.1:5671" || !Secure(c) || !Rebindable(c) || user != "anna" || !shown || Via(c) != "2-a" {
		t.Errorf("%v -> %v, secure %v, named %v, user %q %v, via %q", c.RemoteAddr(), c.LocalAddr(), Secure(c), Rebindable(c), user, shown, Via(c))
	}
	x, _ := net.Pipe()
	if _, err := r.Carry(x, p); !errors.Is(err, ErrBudget) {
		t.Errorf("beyond the budget: %v", err)
	}
	budget.limit = 9
	if _, err := r.Carry(x, p); !errors.Is(err, ErrAddressBudget) || budget.Open() != 1 {
		t.Errorf("a second one that has not logged in: %v, %d places taken", err, budget.Open())
	}
	Authenticated(c)
	second, err := r.Carry(x, p)
	if err != nil || open.Load() != 2 {
		t.Fatalf("after the first has logged in: %v, %d open", err, open.Load())
	}
	for range 2 {
		_ = second.Close()
		_ = c.Close()
	}
	if budget.Open() != 0 || open.Load() != 0 {
		t.Errorf("after close: %d places, %d open", budget.Open(), open.Load())
	}
	if _, err := r.Carry(a, Peer{Remote: "nonsense", Local: "192.0.2.1:1"}); err == nil || budget.Open() != 0 {
		t.Errorf("an address that is none: %v", err)
	}
}
