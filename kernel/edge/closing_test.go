package edge

import (
	"context"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// leaving is a host whose connection is closed as something is attached or joins there.
type leaving struct {
	Host
	c *Conn
}

type leavingLink struct {
	Link
	h *leaving
}

type leavingSession struct {
	Session
	h *leaving
}

func (h *leaving) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := h.Host.Connect(id, info, end)
	return leavingLink{l, h}, err
}

func (h *leaving) gone(ctx context.Context) error {
	h.c.cancel() // as Close does, which waits for this
	<-ctx.Done()
	return ctx.Err()
}

func (l leavingLink) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (Session, bool, error) {
	s, present, err := l.Link.AttachSession(ctx, a, taken)
	return leavingSession{s, l.h}, present, err
}

func (s leavingSession) Attach(ctx context.Context, _ broker.SubscribeSpec) (SessionMember, error) {
	return nil, s.h.gone(ctx)
}

func (l leavingLink) Join(ctx context.Context, _ kernel.GroupAddress, _ kernel.MemberOptions, _ Pool, _ kernel.Consumer) (Member, error) {
	return nil, l.h.gone(ctx)
}

// TestNobodyHearsOfAnEndThatIsHis: a connection that is closed as it is linked anew tells
// no consumer that his subscription has been ended.
func TestNobodyHearsOfAnEndThatIsHis(t *testing.T) {
	for what, join := range map[string]func(w *world, c *Conn) *phone{
		"subscription": func(w *world, c *Conn) *phone {
			s, _ := w.session(c, kept, nil)
			return w.subscribe(s, "a", 1)
		},
		"member": func(w *world, c *Conn) *phone {
			p := newPhone()
			w.declare(c, newQueue)
			_, err := c.Join(soon(t), kernel.QueueAddress("/", "q"), kernel.MemberOptions{}, nil, p)
			must(t, err)
			return p
		},
	} {
		w := newWorld(t)
		w.serve()
		c := w.conn()
		p := join(w, c)
		w.rest()
		b, err := w.node.Serve(soon(t))
		must(t, err)
		w.now = b
		w.Set(&leaving{Local(b), c})
		<-c.stop.Done()
		c.Close()
		p.mu.Lock()
		if len(p.heard) > 0 {
			t.Errorf("%s: %q", what, p.heard)
		}
		p.mu.Unlock()
	}
}
