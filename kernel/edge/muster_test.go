package edge

import (
	"context"
	"net"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestNobodyPublishesAlone: what a connection publishes as soon as another host serves
// finds the queues in memory of the others of its node.
func TestNobodyPublishesAlone(t *testing.T) {
	w := newWorld(t)
	h := &hooked{}
	w.serveHooked(h)
	fast, slow := w.conn(), w.conn()
	w.declare(fast, broker.QueueSpec{Name: "fast", Exclusive: true})
	w.declare(slow, broker.QueueSpec{Name: "slow", Exclusive: true})
	w.rest()
	here, proceed := make(chan struct{}), make(chan struct{})
	next := &hooked{declared: func(q broker.QueueSpec) {
		if q.Name == "fast" {
			close(here)
		}
	}, declaring: func(q broker.QueueSpec) {
		if q.Name == "slow" {
			<-proceed
		}
	}}
	w.serveHooked(next)
	<-here
	p := fast.Publisher(newOutcomes())
	defer p.Close()
	publish := func() (int, error) {
		return p.ToExchange("", "slow", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{Mandatory: true}, 1)
	}
	for range 1000 {
		if n, err := publish(); kernel.CodeOf(err) != kernel.CodePressure {
			t.Fatal(n, err)
		}
		runtime.Gosched()
	}
	close(proceed)
	for ctx := soon(t); ; {
		n, err := publish()
		if kernel.CodeOf(err) == kernel.CodePressure && ctx.Err() == nil {
			continue
		}
		if n != 1 || err != nil {
			t.Error(n, err)
		}
		return
	}
}

// TestMusterIsBounded: a connection that does not come back holds up no others for ever,
// and a link that is over waits for nobody.
func TestMusterIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := muster{back: make(chan struct{})}
		arrive := m.leave()
		never, left := make(chan struct{}), make(chan struct{})
		m.wait(t.Context(), never, never)
		close(left)
		m.wait(t.Context(), never, left)
		arrive()
		arrive()
		m.wait(t.Context(), never, never)
		if m.away != 0 {
			t.Error(m.away)
		}
	})
}

// TestNamesAreKeptForTheirOwners: a queue in memory only whose owner is slow to come to the
// next host is nobody else's meanwhile, and is not missing.
func TestNamesAreKeptForTheirOwners(t *testing.T) {
	w := newWorld(t)
	w.serve()
	others := New(Config{Counters: w.node.Counters, Logger: zerolog.Nop()})
	defer others.Close()
	others.Set(Local(w.now))
	owner := w.conn()
	w.declare(owner, broker.QueueSpec{Name: "mine", Exclusive: true})
	w.declare(owner, broker.QueueSpec{Name: "ours"})
	thief, err := others.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Remote: &net.TCPAddr{}}, nil)
	must(t, err)
	defer thief.Close()
	w.rest()
	next, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = next
	next.Gather(patience, func(ctx context.Context) {
		for !w.Here() && ctx.Err() == nil {
			runtime.Gosched()
		}
	})
	others.Set(Local(next))
	taken, found, joined := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := thief.DeclareQueue(soon(t), broker.QueueSpec{Name: "mine", Exclusive: true})
		taken <- err
	}()
	go func() {
		_, err := thief.Queue("ours")
		found <- err
	}()
	go func() {
		_, err := thief.Join(soon(t), kernel.QueueAddress("/", "ours"), kernel.MemberOptions{}, nil, newReader())
		joined <- err
	}()
	for range 1000 {
		runtime.Gosched()
	}
	w.Set(Local(next))
	if err := <-taken; kernel.CodeOf(err) != kernel.CodeLocked {
		t.Errorf("somebody else's queue: %v", err)
	}
	must(t, <-found)
	must(t, <-joined)
}
