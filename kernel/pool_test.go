package kernel

import "testing"

// waker counts how often its turn came.
type waker struct{ woken int }

func (w *waker) Wake() { w.woken++ }

// TestPoolOwes: a member that could not use its turn comes first when it takes
// again, and keeps nothing from the others until then.
func TestPoolOwes(t *testing.T) {
	p := NewPool(1)
	var a, b, c waker
	if n := p.Take(&a, 5); n != 1 {
		t.Fatalf("the first got %d", n)
	}
	p.Owe(&a)
	p.Repay(&a, 1, false) // its records are not there yet
	if n := p.Take(&b, 1); n != 1 {
		t.Fatalf("who came meanwhile got %d", n)
	}
	p.Repay(&b, 0, true)
	if n := p.Take(&c, 1); n != 0 {
		t.Fatalf("a third got %d", n)
	}
	if n := p.Take(&a, 5); n != 0 {
		t.Fatalf("with all units out the first got %d", n)
	}
	p.Put(1)
	if a.woken != 1 || b.woken != 0 || c.woken != 0 {
		t.Fatalf("woken: %d %d %d, want the first alone", a.woken, b.woken, c.woken)
	}
	if n := p.Take(&b, 1); n != 0 {
		t.Errorf("out of turn: %d", n)
	}
	if n := p.Take(&a, 1); n != 1 {
		t.Errorf("in its turn: %d", n)
	}
	p.Repay(&a, 0, true)
	p.Put(1)
	if a.woken != 1 || b.woken != 1 {
		t.Errorf("woken then: %d %d, want the second", a.woken, b.woken)
	}
}
