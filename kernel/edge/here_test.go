package edge

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestHereWithAllThatWasDeclared: the connections of an edge are back when they have
// declared again what lives in memory only, not before.
func TestHereWithAllThatWasDeclared(t *testing.T) {
	w := newWorld(t)
	if w.Here() || !w.Empty() {
		t.Error("there is no host, and no connection")
	}
	w.serve()
	c := w.conn()
	if !w.Here() || w.Empty() {
		t.Error("a new connection is linked to the host")
	}
	w.declare(c, broker.QueueSpec{Name: "mine", Exclusive: true})
	w.rest()
	if w.Here() {
		t.Error("the host has gone")
	}
	declaring, proceed := make(chan struct{}), make(chan struct{})
	w.serveHooked(&hooked{declaring: func(broker.QueueSpec) {
		close(declaring)
		<-proceed
	}})
	<-declaring
	if w.Here() {
		t.Error("the queue is not there yet")
	}
	close(proceed)
	_, err := c.linked(soon(t))
	must(t, err)
	if !w.Here() {
		t.Error("all is there")
	}
}
