package main

import (
	"context"
	"net"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// TestHereInWhichLeadership: the connections of a node are back only in the leadership that
// it is asked about; a node without any holds up nobody.
func TestHereInWhichLeadership(t *testing.T) {
	b, err := broker.Open(broker.Config{DataDir: t.TempDir(), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Edge: edge.New(edge.Config{Counters: b.Counters, Logger: zerolog.Nop()})}
	defer func() {
		d.Close()
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if !d.here(1) {
		t.Error("there is nobody to wait for")
	}
	d.Set(edge.Local(b))
	d.epoch.Store(2)
	id := kernel.Identity{User: "guest", Tenant: kernel.DefaultTenant}
	c, err := d.Connect(id, kernel.ConnectionInfo{Protocol: "test", Remote: &net.TCPAddr{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if d.here(1) || !d.here(2) || d.here(3) {
		t.Error(d.here(1), d.here(2), d.here(3))
	}
}

// TestUntil: a question is asked until the answer is yes, or nobody waits for it.
func TestUntil(t *testing.T) {
	asked := 0
	until(t.Context(), func() bool { asked++; return asked == 3 })
	ctx, cancel := context.WithCancel(t.Context())
	until(ctx, func() bool { cancel(); return false })
	if asked != 3 {
		t.Error(asked)
	}
}
