package forward

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// reader is the client of a session: a consumer that pins, and a live subscriber.
type subscriber struct {
	*inbox
	pinned, taken []uint16
	wrong         error

	shut chan struct{} // nil: there is room
	live []string      // name=value@handle
	from []kernel.ConnectionID
}

func newSubscriber() *subscriber { return &subscriber{inbox: newInbox()} }

func (s *subscriber) Pinned(numbers []uint16, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pinned = append(s.pinned, numbers...); err != nil {
		s.wrong = err
	}
	s.note()
}

func (s *subscriber) Taken(numbers []uint16, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken = append(s.taken, numbers...); err != nil {
		s.wrong = err
	}
	s.note()
}

func (s *subscriber) Live(m *kernel.LiveMessage, handle uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.note()
	if s.shut != nil {
		return false
	}
	text := strings.Clone(m.Name) + "=" + strings.TrimRight(string(m.Record.Value), " ")
	s.live = append(s.live, text+"@"+string(rune('0'+handle)))
	s.from = append(s.from, m.Origin)
	return true
}

func (s *subscriber) Room() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut == nil {
		return roomy
	}
	return s.shut
}

// close and open say whether there is room for live messages.
func (s *subscriber) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shut = make(chan struct{})
}

func (s *subscriber) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.shut)
	s.shut = nil
}

func (s *subscriber) waitLive(t testing.TB, want ...string) {
	t.Helper()
	s.until(t, func() bool { return len(s.live) >= len(want) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.live, want) {
		t.Errorf("got %q, want %q", s.live, want)
	}
}

func tokened(token string) func(*kernel.ConnectionInfo) {
	return func(i *kernel.ConnectionInfo) { i.Protocol, i.Token = "mqtt", token }
}

func (c *client) link() *link { return c.Link.(*link) }

// attach attaches a session.
func (c *client) attach(a broker.Attaching, taken func()) (*attached, bool) {
	c.t.Helper()
	s, present, err := c.link().AttachSession(soon(c.t), a, taken)
	if err != nil {
		c.t.Fatal(err)
	}
	return s.(*attached), present
}

// kept is a session that is kept.
func (c *client) kept(id string) *attached {
	c.t.Helper()
	s, _ := c.attach(broker.Attaching{ClientID: id, Expiry: time.Hour}, nil)
	return s
}

func spec(filter string, qos byte, handle uint64, to *subscriber) broker.SubscribeSpec {
	return broker.SubscribeSpec{Subscription: kernel.Subscription{Filter: filter, QoS: qos}, Handle: handle, To: to, Live: to}
}

// subscribe makes one subscription.
func (a *attached) one(t testing.TB, filter string, qos byte, to *subscriber) edge.SessionMember {
	t.Helper()
	out := a.Subscribe(soon(t), []broker.SubscribeSpec{spec(filter, qos, 1, to)})
	if out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
	return out[0].Member
}

// topic publishes under a name.
func (p *pub) topic(name, value string) {
	p.t.Helper()
	p.n++
	r := &kernel.Record{Key: []byte(name), Value: []byte(value), Headers: []kernel.Header{{Key: kernel.HeaderQoS, Value: []byte("1")}}}
	if _, err := p.p.(edge.SessionPublisher).ToTopic(name, r, p.n); err != nil {
		p.t.Fatal(err)
	}
}

// TestSession: a session across the network is the broker's: its state, subscriptions of
// all kinds, what is handed out and settled, and that it is there when it comes back.
func TestSession(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t, tokened("1"))
	s, present := c.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour}, nil)
	if present || s.Epoch() == 0 || s.State().ClientID != "c" || s.State().Expiry != time.Hour || c.link().ID() == 0 {
		t.Errorf("present %v, epoch %d, %+v, id %d", present, s.Epoch(), s.State(), c.link().ID())
	}
	if id := b.Connections()[0].ID; id != c.link().ID() {
		t.Errorf("connection %d is said to be %d", id, c.link().ID())
	}
	_, _, err := c.link().AttachSession(soon(t), broker.Attaching{ClientID: "d"}, nil)
	wantCode(t, err, kernel.CodeNotAllowed)
	to := newSubscriber()
	out := s.Subscribe(soon(t), []broker.SubscribeSpec{
		spec("a/+", 1, 1, to), spec("b", 0, 2, to), spec("bad/#/x", 1, 3, to), spec("$share/g/a/+", 1, 4, to), spec("a/+", 1, 5, to),
	})
	for i, want := range []struct{ member, existed, wrong bool }{{true, false, false}, {false, false, false}, {false, false, true}, {true, false, false}, {true, true, false}} {
		if got := out[i]; (got.Member != nil) != want.member || got.Existed != want.existed || (got.Err != nil) != want.wrong {
			t.Errorf("%d: %+v", i, got)
		}
	}
	wantCode(t, out[2].Err, kernel.CodeInvalidName)
	p := publishing(t, c)
	p.topic("a/1", "one")
	p.topic("b", "live")
	p.settle()
	to.waitLive(t, "b=live@2")
	out[0].Member.Credit(5) // has been replaced
	out[4].Member.Credit(5)
	d := to.wait(t, 1)[0]
	out[4].Member.Settle(kernel.Accept, d.Partition, d.Offset, d.Offset)
	if existed, err := s.Unsubscribe(soon(t), "b"); err != nil || !existed {
		t.Error(existed, err)
	}
	if existed, err := s.Unsubscribe(soon(t), "none"); err != nil || existed {
		t.Error(existed, err)
	}
	p.topic("a/2", "two")
	p.topic("b", "nobody")
	p.settle()
	to.wait(t, 2)
	to.waitLive(t, "b=live@2")
	s.Detach(time.Hour)
	s.Detach(0)
	s.Suspend()
	wantCode(t, s.DropWill(), kernel.CodeFenced)
	s, present = c.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour}, nil)
	if list := s.State().Subscriptions; !present || len(list) != 2 {
		t.Errorf("%v: %+v", present, list)
	}
	_, err = s.Attach(soon(t), spec("none", 1, 1, to))
	wantCode(t, err, kernel.CodeNotFound)
	m, err := s.Attach(soon(t), spec("a/+", 1, 1, to))
	if err != nil {
		t.Fatal(err)
	}
	m.Credit(5)
	if again := to.wait(t, 3)[2]; string(again.Record.Value) != "two" || !again.Redelivered {
		t.Errorf("%+v", again)
	}
	c.Close()
	wantCode(t, s.DropWill(), kernel.CodeUnavailable)
	s.Detach(0)
}

// TestTakeover: the connection that holds a session is told, once, when another one wants
// it; one that relinks to it later is refused.
func TestTakeover(t *testing.T) {
	n := serve(t, open(t))
	first, second := n.connect(t, tokened("1")), n.connect(t, tokened("2"))
	told := make(chan struct{}, 2)
	var s *attached
	var ready sync.WaitGroup
	ready.Add(1)
	s, _ = first.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour}, func() {
		told <- struct{}{}
		ready.Wait()
		s.Detach(time.Hour)
	})
	ready.Done()
	epoch := s.Epoch()
	s2, present := second.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour}, nil)
	if !present || s2.Epoch() <= epoch || len(told) != 1 {
		t.Errorf("present %v, epochs %d, %d, told %d times", present, epoch, s2.Epoch(), len(told))
	}
	_, _, err := first.link().AttachSession(soon(t), broker.Attaching{ClientID: "c", Expiry: time.Hour, Epoch: epoch}, nil)
	wantCode(t, err, kernel.CodeFenced)
	s2.Detach(0)
}

// TestSubscribeOften: what replaces and ends subscriptions for ever leaves nothing behind
// at either end.
func TestSubscribeOften(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	for range 20 {
		s.one(t, "q", 1, to)
		s.one(t, "q", 2, to)
		s.one(t, "$share/g/x", 1, to)
		if _, err := s.Unsubscribe(soon(t), "q"); err != nil {
			t.Fatal(err)
		}
	}
	l, far := c.link(), n.only()
	l.out.mu.Lock()
	if len(l.members) != 1 || s.members.Len() != 1 || len(s.feeds) != 1 || len(l.live.feeds) != 0 {
		t.Errorf("%d, %d, %d, %d", len(l.members), s.members.Len(), len(s.feeds), len(l.live.feeds))
	}
	l.out.mu.Unlock()
	collect(t, "the other end forgets", func() bool {
		far.out.mu.Lock()
		defer far.out.mu.Unlock()
		return len(far.members) <= 1
	})
}

// TestWithdrawnRight: a subscription that ends because its client may not have it any more
// says so, whatever feeds it.
func TestWithdrawnRight(t *testing.T) {
	b := open(t)
	if err := b.PutUser(soon(t), broker.UserSpec{Name: "u", NoPassword: true}); err != nil {
		t.Fatal(err)
	}
	grant := func(all string) {
		t.Helper()
		if err := b.PutPermission(soon(t), kernel.Permission{Tenant: "/", User: "u", Configure: all, Write: all, Read: all}); err != nil {
			t.Fatal(err)
		}
	}
	grant(".*")
	in, err := NewHost(serve(t, b), "1").Connect(kernel.Identity{User: "u", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "mqtt"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{Link: in, t: t}
	t.Cleanup(c.Close)
	s := c.kept("c")
	stored, live := newSubscriber(), newSubscriber()
	s.one(t, "a", 1, stored)
	s.one(t, "b", 0, live)
	grant("^$")
	for _, to := range []*subscriber{stored, live} {
		to.until(t, func() bool { return to.ended != nil })
		wantCode(t, to.ended, kernel.CodeAccessRefused)
	}
	if list := s.State().Subscriptions; len(list) != 0 {
		t.Errorf("the state is as of the beginning, and says %+v", list)
	}
}
