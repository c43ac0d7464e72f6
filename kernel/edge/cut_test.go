package edge

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// frail is a host whose links break: what was published through them has no outcome
// until then.
type frail struct {
	Host
	mu    sync.Mutex
	links []*frailLink
}

type frailLink struct {
	Link
	end        func(error)
	publishers []*frailPublisher
}

type frailPublisher struct {
	Publisher
	done   kernel.Completion
	tokens []uint64
}

func (f *frail) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := f.Host.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, &frailLink{Link: l, end: end})
	return f.links[len(f.links)-1], nil
}

func (l *frailLink) Publisher(done kernel.Completion) Publisher {
	p := &frailPublisher{Publisher: l.Link.Publisher(nil), done: done}
	l.publishers = append(l.publishers, p)
	return p
}

func (p *frailPublisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	matched, err := p.Publisher.ToExchange(exchange, key, r, opt, token)
	if err == nil {
		p.tokens = append(p.tokens, token)
	}
	return matched, err
}

func (p *frailPublisher) Settle(context.Context) error { return errors.New("a broken link settles") }

// cut breaks all links.
func (f *frail) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := kernel.Errorf(kernel.CodeUnknown, "", "", "cut")
	for _, l := range f.links {
		for _, p := range l.publishers {
			for _, token := range p.tokens {
				p.done.Completed(token, kernel.Result{Err: lost})
			}
			p.done.Flush()
		}
		l.end(lost)
	}
	f.links = nil
}

// newFrail makes a world whose host is frail.
func newFrail(t *testing.T) (*world, *frail) {
	w := newWorld(t)
	b, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = b
	f := &frail{Host: Local(b)}
	w.Set(f)
	return w, f
}

// TestBrokenLinkLeavesUnknown: what was under way has an unknown outcome, once, and the
// connection goes on at the same host with what it had.
func TestBrokenLinkLeavesUnknown(t *testing.T) {
	w, f := newFrail(t)
	c := w.conn()
	w.declare(c, newQueue)
	r := newReader()
	m := w.join(c, "q", nil, r)
	defer m.Leave()
	out := newOutcomes()
	p := c.Publisher(out)
	defer p.Close()
	publish := func(token uint64) {
		for ctx := soon(t); ; {
			_, err := p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, token)
			if kernel.CodeOf(err) == kernel.CodePressure && ctx.Err() == nil {
				continue
			}
			must(t, err)
			return
		}
	}
	publish(1)
	publish(2)
	f.cut()
	publish(3)
	m.Credit(10)
	for range 3 {
		r.next(t)
	}
	f.cut()
	out.mu.Lock()
	defer out.mu.Unlock()
	for token := range uint64(3) {
		if err, told := out.seen[token+1]; !told || kernel.CodeOf(err) != kernel.CodeUnknown {
			t.Errorf("%d: %v, %v", token+1, told, err)
		}
	}
	if out.dup > 0 {
		t.Errorf("%d outcomes came twice", out.dup)
	}
}

// TestUnheardLossEndsTheConnection: nobody could tell a publisher without confirms that
// messages may be missing, so its connection is ended; others go on.
func TestUnheardLossEndsTheConnection(t *testing.T) {
	w, f := newFrail(t)
	bystander := w.conn()
	w.declare(bystander, newQueue)
	ended := make(chan error, 1)
	c, err := w.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, func(reason error) { ended <- reason })
	must(t, err)
	defer c.Close()
	p := c.Publisher(nil)
	defer p.Close()
	_, err = p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, 0)
	must(t, err)
	f.cut()
	select {
	case reason := <-ended:
		if kernel.CodeOf(reason) != kernel.CodeUnknown {
			t.Error(reason)
		}
	case <-time.After(patience):
		t.Fatal("the connection stays")
	}
	if _, err := bystander.Queue("q"); err != nil {
		t.Error(err)
	}
}

// TestRefusedAtTheNextHost: a user who may not enter there loses the connection.
func TestRefusedAtTheNextHost(t *testing.T) {
	w, f := newFrail(t)
	ended := make(chan error, 1)
	c, err := w.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, func(reason error) { ended <- reason })
	must(t, err)
	defer c.Close()
	refusal := kernel.Errorf(kernel.CodeAccessRefused, "user", "guest", "no")
	w.Set(refusing{f, refusal})
	if reason := <-ended; !errors.Is(reason, error(refusal)) {
		t.Error(reason)
	}
}

type refusing struct {
	Host
	err error
}

func (r refusing) Connect(kernel.Identity, kernel.ConnectionInfo, func(error)) (Link, error) {
	return nil, r.err
}

// TestCloseWhileLinking: a connection that is closed while there is no host, or while it
// is linked anew, is gone.
func TestCloseWhileLinking(t *testing.T) {
	w := newWorld(t)
	w.serve()
	for range 50 {
		c := w.conn()
		w.declare(c, newQueue)
		m := w.join(c, "q", nil, newReader())
		m.Credit(1)
		var moving sync.WaitGroup
		moving.Go(w.move)
		c.Close()
		moving.Wait()
	}
	c := w.conn()
	w.rest()
	c.Close()
	if _, err := c.Queue("q"); kernel.CodeOf(err) != kernel.CodeUnavailable {
		t.Error(err)
	}
}
