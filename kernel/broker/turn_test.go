package broker

import (
	"context"
	"testing"
)

// TestFacadeOfALaterTurn: the leaderships of both groups begin at the same time, and the
// facade is made at once by whoever sees both. Who had noted the first one, and comes to
// look for facades only then, does not take it for that of another leadership.
func TestFacadeOfALaterTurn(t *testing.T) {
	n := &Node{changed: make(chan struct{})}
	n.note(func(l *lead) { l.catalog = 1 })
	n.note(func(l *lead) { l.placement = 1 })
	b := &Broker{lost: make(chan struct{}), lead: lead{1, 1}}
	_, b.cancel = context.WithCancel(context.Background())
	n.facade.Store(b)
	lost := func() bool {
		select {
		case <-b.lost:
			return true
		default:
			return false
		}
	}
	if n.outdate(); lost() {
		t.Fatal("the facade has lost a leadership that goes on")
	}
	if n.turn(func(l *lead) { l.placement = 0 }); !lost() {
		t.Fatal("the facade has not lost a leadership that is over")
	}
}
