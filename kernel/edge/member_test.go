package edge

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestMemberOutlastsHost: a member is given no more at the next host than its credit
// allows, what the client still holds counts, and it settles that there.
func TestMemberOutlastsHost(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	w.declare(c, broker.QueueSpec{Name: "q", Durable: true})
	w.publish(c, "q", 10)
	r := newReader()
	m := w.join(c, "q", nil, r)
	m.Credit(6)
	for i := range int64(6) {
		if at := r.next(t); at != i {
			t.Fatalf("offset %d, want %d", at, i)
		}
	}
	m.Settle(kernel.Accept, 0, 0, 1)
	m.Credit(1) // of the two places one is free, the other one will be
	if at := r.next(t); at != 6 {
		t.Fatalf("offset %d", at)
	}
	w.ready(c, "q", 3, 5)
	w.move()
	w.ready(c, "q", 8, 0) // what it had held is there again, and it has no credit
	m.Settle(kernel.Accept, 0, 2, 3)
	m.Credit(2)
	if first, second := r.next(t), r.next(t); first != 2 || second != 3 {
		t.Errorf("offsets %d, %d", first, second)
	}
	w.ready(c, "q", 6, 2)
	m.Settle(kernel.Accept, 0, 2, 3)
	w.ready(c, "q", 6, 0)
	m.Leave()
}

// TestPoolOutlastsHost: what the client holds of one host takes units at the next.
func TestPoolOutlastsHost(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	for _, q := range []string{"a", "b"} {
		w.declare(c, broker.QueueSpec{Name: q, Durable: true})
		w.publish(c, q, 10)
	}
	under := c.NewPool(4)
	a, b := newReader(), newReader()
	ma, mb := w.join(c, "a", under, a), w.join(c, "b", under, b)
	ma.Credit(3)
	for range 3 {
		a.next(t)
	}
	w.move()
	mb.Credit(5)
	b.next(t)
	w.ready(c, "b", 9, 1)
	under.Put(2) // two of the first host's are settled
	b.next(t)
	b.next(t)
	w.ready(c, "b", 7, 3)
	under.SetLimit(6)
	b.next(t)
	b.next(t)
	w.ready(c, "b", 5, 5)
	ma.Leave()
	mb.Leave()
}

// TestGoneWithTheHost: a member of a queue that the next host does not have learns that.
func TestGoneWithTheHost(t *testing.T) {
	w := newWorld(t)
	w.serve()
	owner, c := w.conn(), w.conn()
	w.declare(owner, broker.QueueSpec{Name: "q"})
	r := newReader()
	m := w.join(c, "q", nil, r)
	owner.Close() // it is not exclusive, and stays while there is a host
	w.move()
	select {
	case reason := <-r.ended:
		if kernel.CodeOf(reason) != kernel.CodeNotFound {
			t.Error(reason)
		}
	case <-time.After(patience):
		t.Fatal("nobody tells")
	}
	m.Leave()
}

// TestExclusiveMemberEndsWithHost: a member that excluded others cannot know whether they
// have come and gone since, and learns before anything else is answered that it is over;
// on a queue that is the connection's own nobody can.
func TestExclusiveMemberEndsWithHost(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	w.declare(c, newQueue)
	own := w.declare(c, broker.QueueSpec{Exclusive: true})
	readers := map[string]*reader{}
	for _, name := range []string{"q", own} {
		readers[name] = newReader()
		addr, err := c.Address(name)
		must(t, err)
		m, err := c.Join(soon(t), addr, kernel.MemberOptions{Exclusive: true}, nil, readers[name])
		must(t, err)
		m.Credit(1)
		defer m.Leave()
	}
	w.move()
	_, err := c.Queue("q")
	must(t, err)
	if len(readers["q"].ended) != 1 {
		t.Error("it was not told")
	} else if reason := <-readers["q"].ended; kernel.CodeOf(reason) != kernel.CodeFenced {
		t.Error(reason)
	}
	w.publish(c, own, 1)
	readers[own].next(t)
	addr, err := c.Address("q")
	must(t, err)
	other, err := w.conn().Join(soon(t), addr, kernel.MemberOptions{Exclusive: true}, nil, newReader())
	must(t, err)
	other.Leave()
}

// TestOldSettlementsOfMemoryOnly: what the client still holds of a queue that lived in
// memory only is gone with its host: settling it settles nothing of the next one's, whose
// offsets begin anew.
func TestOldSettlementsOfMemoryOnly(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	own := w.declare(c, broker.QueueSpec{Exclusive: true})
	r := newReader()
	m := w.join(c, own, nil, r)
	m.Credit(4)
	w.publish(c, own, 2)
	for i := range int64(2) {
		if at := r.next(t); at != i {
			t.Fatalf("offset %d, want %d", at, i)
		}
	}
	w.move()
	w.ready(c, own, 0, 0)
	w.publish(c, own, 2)
	for i := range int64(2) {
		if at := r.next(t); at != i+2 {
			t.Fatalf("offset %d, want %d", at, i+2)
		}
	}
	m.Settle(kernel.Accept, 0, 0, 1)
	w.ready(c, own, 0, 2)
	m.Settle(kernel.Accept, 0, 1, 2) // of both hosts'
	w.ready(c, own, 0, 1)
	m.Settle(kernel.Accept, 0, 3, 3)
	w.ready(c, own, 0, 0)
	m.Leave()
}
