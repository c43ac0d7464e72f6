package edge

import (
	"context"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// hooked is a host with something that happens within its calls.
type hooked struct {
	Host
	declaring, declared func(q broker.QueueSpec) // before and after a queue is declared
	joined              func()                   // after a member has joined
}

type hookedLink struct {
	Link
	h *hooked
}

func (h *hooked) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := h.Host.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return hookedLink{l, h}, nil
}

func (l hookedLink) DeclareQueue(ctx context.Context, q broker.QueueSpec) (broker.QueueInfo, error) {
	if l.h.declaring != nil {
		l.h.declaring(q)
	}
	info, err := l.Link.DeclareQueue(ctx, q)
	if l.h.declared != nil {
		l.h.declared(q)
	}
	return info, err
}

func (l hookedLink) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, under Pool, to kernel.Consumer) (Member, error) {
	m, err := l.Link.Join(ctx, addr, opt, under, to)
	if l.h.joined != nil {
		l.h.joined()
	}
	return m, err
}

// serveHooked lets a new facade serve, as a host with hooks.
func (w *world) serveHooked(h *hooked) {
	w.t.Helper()
	b, err := w.node.Serve(soon(w.t))
	must(w.t, err)
	w.now, h.Host = b, Local(b)
	w.Set(h)
}

// TestDeclaredAsItMoves: a queue whose declaration is answered while the connection is
// linked anew already is at the next host, under the name that the client is told.
func TestDeclaredAsItMoves(t *testing.T) {
	for _, name := range []string{"mine", ""} {
		w := newWorld(t)
		h := &hooked{}
		w.serveHooked(h)
		c := w.conn()
		moved := false
		h.declared = func(broker.QueueSpec) {
			if moved {
				return
			}
			moved = true
			w.Set(nil)
			w.rest()
			w.serve()
			if _, err := c.linked(soon(t)); err != nil {
				t.Error(err)
			}
		}
		name = w.declare(c, broker.QueueSpec{Name: name, Exclusive: true})
		if _, err := c.Queue(name); err != nil {
			t.Error(err)
		}
		must(t, c.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: name, Key: "k"}))
		w.move()
		if _, err := c.Queue(name); err != nil {
			t.Error(err)
		}
		if n, err := c.DeleteQueue(soon(t), name, false, false); n != 0 || err != nil {
			t.Error(n, err)
		}
	}
}

// TestPooledAsItMoves: a member that is put under a pool while it joins at the next host
// is under that.
func TestPooledAsItMoves(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	w.declare(c, newQueue)
	r := newReader()
	m := w.join(c, "q", nil, r)
	w.rest()
	h := &hooked{}
	var under Pool
	h.joined = func() {
		if under == nil {
			under = c.NewPool(2)
			m.Pool(under, func() int { return 0 })
		}
	}
	w.serveHooked(h)
	_, err := c.linked(soon(t))
	must(t, err)
	w.publish(c, "q", 5)
	m.Credit(10)
	r.next(t)
	r.next(t)
	w.ready(c, "q", 3, 2)
	under.Put(1)
	r.next(t)
	w.ready(c, "q", 2, 3)
}

// TestPoolBeforeMembers: a pool is of use at the host that serves when it is needed.
func TestPoolBeforeMembers(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	w.declare(c, newQueue)
	w.publish(c, "q", 5)
	under := c.NewPool(2)
	w.move()
	r := newReader()
	m := w.join(c, "q", under, r)
	m.Credit(5)
	r.next(t)
	r.next(t)
	w.ready(c, "q", 3, 2)
	m.Leave()
	if l := c.now.Load(); under.(*pool).at(&link{Link: l, number: l.number - 1}) != nil {
		t.Error("a link that was left has the pool")
	}
}
