package edge

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// silent is a host that takes pins and does nothing about them.
type silent struct{ Host }

type silentLink struct{ Link }

type silentSession struct{ Session }

type silentMember struct{ SessionMember }

func (h silent) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := h.Host.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return silentLink{l}, nil
}

func (l silentLink) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (Session, bool, error) {
	s, present, err := l.Link.AttachSession(ctx, a, taken)
	if err != nil {
		return nil, false, err
	}
	return silentSession{s}, present, nil
}

func (s silentSession) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []Subscribed {
	out := s.Session.Subscribe(ctx, specs)
	for i := range out {
		if out[i].Member != nil {
			out[i].Member = silentMember{out[i].Member}
		}
	}
	return out
}

func (silentMember) Pin(kernel.PinID, int32, int64)  {}
func (silentMember) Take(kernel.PinID, int32, int64) {}

// TestPinsAreDoneAgain: pins and takes that a host has lost are done at the next one; the
// client hears of each once.
func TestPinsAreDoneAgain(t *testing.T) {
	w := newWorld(t)
	b, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = b
	w.Set(silent{Local(b)})
	s, _ := w.session(w.conn(), kept, nil)
	p := w.subscribe(s, "a", 2)
	w.say(w.conn(), "a", "1", "2")
	p.hears(t, "1", "2")
	one, two := kernel.PinID{Number: 1, Count: 1}, kernel.PinID{Number: 2, Count: 2}
	p.pin(t, "1", one)
	w.move()
	p.wait(t, "the first is pinned", func() bool { return p.pinned[1] == 1 })
	p.pin(t, "2", two)
	p.wait(t, "the second is pinned", func() bool { return p.pinned[2] == 1 })
	at := p.place(t, "1")
	w.rest()
	p.m.Take(one, at.Partition, at.Offset)
	w.serve()
	p.wait(t, "the first is taken", func() bool { return p.taken[1] == 1 })
	w.move()
	p.m.Unpin(one)
	at = p.place(t, "2")
	p.m.Refuse(two, at.Partition, at.Offset)
	w.pins(s, 0)
	p.mu.Lock()
	defer p.mu.Unlock()
	if fmt.Sprint(p.pinned, p.taken, p.heard) != "map[1:1 2:1] map[1:1] [1 2]" {
		t.Error(p.pinned, p.taken, p.heard)
	}
}

// TestCleanSessionGoesOn: a session that is not kept has its subscriptions, and its will,
// made anew, and what waits in a shared group of such is still there.
func TestCleanSessionGoesOn(t *testing.T) {
	eachTurn(t, func(t *testing.T, w *world, turn func()) {
		c, pub := w.conn(), w.conn()
		s, _ := w.session(c, broker.Attaching{ClientID: "c", Clean: true}, nil)
		live, shared, two := w.subscribe(s, "a/#", 1), w.subscribe(s, "$share/g/b", 1), w.subscribe(s, "$share/g/c", 2)
		must(t, s.SetWill(soon(t), &kernel.Will{Topic: "a/will", Record: kernel.Record{Value: []byte("gone")}}))
		w.say(pub, "b", "1")
		w.say(pub, "c", "2")
		shared.hears(t, "1")
		two.hears(t, "2")
		shared.m.Credit(-100)
		w.say(pub, "b", "waits")
		turn()
		shared.m.Credit(100)
		shared.hears(t, "1", "waits")
		two.settle(t, "2")
		w.say(pub, "a/b", "3")
		live.hears(t, "3")
		w.say(pub, "c", "4")
		two.hears(t, "2", "4")
		watcher, _ := w.session(w.conn(), broker.Attaching{ClientID: "w", Clean: true}, nil)
		wills := w.subscribe(watcher, "a/will", 0)
		c.Close()
		wills.hears(t, "gone")
	})
}

// TestNoWillOfTheLiving: a host that goes is no reason for a will; a client that goes
// while nobody serves leaves one, or takes its leave, at the next host.
func TestNoWillOfTheLiving(t *testing.T) {
	eachTurn(t, func(t *testing.T, w *world, turn func()) {
		watcher, _ := w.session(w.conn(), broker.Attaching{ClientID: "w", Expiry: time.Hour}, nil)
		wills := w.subscribe(watcher, "will/#", 1)
		leave := map[string]func(){}
		for id, expiry := range map[string]time.Duration{"short": 0, "long": time.Hour, "polite": time.Hour} {
			c := w.conn()
			s, _ := w.session(c, broker.Attaching{ClientID: id, Clean: true, Expiry: expiry}, nil)
			must(t, s.SetWill(soon(t), &kernel.Will{Topic: "will/" + id, Record: kernel.Record{Value: []byte(id)}}))
			leave[id] = func() {
				if id == "polite" {
					must(t, s.DropWill())
				}
				s.Detach(expiry)
				c.Close()
			}
		}
		turn()
		leave["polite"]()
		w.say(w.conn(), "will/none", "none")
		wills.hears(t, "none")
		w.Set(nil)
		w.rest()
		var leaving sync.WaitGroup
		leaving.Go(leave["long"])
		w.serve()
		leaving.Wait()
		wills.hears(t, "none", "long")
		leave["short"]()
		wills.hears(t, "none", "long", "short")
	})
}

// TestTakenWhileNobodyServes: a client that comes first at the next host has the session;
// the one that had it is told.
func TestTakenWhileNobodyServes(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	told := make(chan struct{})
	s, _ := w.session(c, kept, func() { close(told) })
	w.subscribe(s, "a", 1)
	w.rest()
	b, err := w.node.Serve(soon(t)) // which the edge does not know yet
	must(t, err)
	w.now = b
	fresh, err := b.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	must(t, err)
	defer fresh.Close()
	if _, present, err := fresh.AttachSession(soon(t), kept, nil); err != nil || !present {
		t.Fatal(present, err)
	}
	w.Set(Local(b))
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("it is not told")
	}
	out := s.Subscribe(soon(t), []broker.SubscribeSpec{{Subscription: kernel.Subscription{Filter: "b"}, To: newPhone()}})
	if kernel.CodeOf(out[0].Err) != kernel.CodeFenced {
		t.Errorf("subscribed: %v", out[0].Err)
	}
	s.Detach(0) // which is none of its business
	c.Close()
	if list := b.Connections(); len(list) != 1 {
		t.Errorf("%d connections", len(list))
	}
}

// TestLostToAnother: what somebody else of the group has got meanwhile is told to who
// held it.
func TestLostToAnother(t *testing.T) {
	w := newWorld(t)
	w.serve()
	s, _ := w.session(w.conn(), kept, nil)
	p := w.subscribe(s, "$share/g/a", 1)
	w.say(w.conn(), "a", "1", "2")
	p.hears(t, "1", "2")
	w.rest()
	b, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = b
	fast, err := b.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	must(t, err)
	defer fast.Close()
	other, _, err := fast.AttachSession(soon(t), broker.Attaching{ClientID: "other", Expiry: time.Hour}, nil)
	must(t, err)
	q := newPhone()
	a, err := other.Subscribe(soon(t), kernel.Subscription{Filter: "$share/g/a", QoS: 1}, 0, q, q)
	must(t, err)
	a.Member.Credit(1)
	q.hears(t, "1")
	w.Set(Local(b))
	p.wait(t, "it is told", func() bool { return len(p.lost) > 0 })
	if want := q.place(t, "1"); !slices.Equal(p.lost, []kernel.Place{want}) {
		t.Errorf("lost %v, want %v", p.lost, want)
	}
	p.settle(t, "1") // which is the other one's to settle
	p.settle(t, "2")
	a.Member.Settle(kernel.Accept, q.place(t, "1").Partition, q.place(t, "1").Offset, q.place(t, "1").Offset)
	w.say(w.conn(), "a", "3")
	p.hears(t, "1", "2", "3")
}

// TestRetainedGoesOn: a reader of what is retained goes on at the next host after what it
// has got.
func TestRetainedGoesOn(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	s, _ := w.session(c, kept, nil)
	p := c.Publisher(newOutcomes())
	defer p.Close()
	var want []string
	for i := range 10 {
		name := fmt.Sprintf("r/%d/x", i)
		_, err := p.Retain(name, &kernel.Record{Value: []byte("v")}, uint64(i))
		must(t, err)
		want = append(want, name)
	}
	must(t, p.Settle(soon(t)))
	cur, err := s.Retained(soon(t), "r/#")
	must(t, err)
	var got []string
	for more, ctx := true, soon(t); more; {
		var list []kernel.Retained
		if list, more, err = cur.Next(3, 1<<20, nil); kernel.CodeOf(err) == kernel.CodeUnavailable && ctx.Err() == nil {
			more = true
			continue
		}
		must(t, err)
		for _, r := range list {
			got = append(got, r.Name)
		}
		if n := len(list); n > 0 && len(got) < 7 {
			w.move()
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestOnceOverHosts: a publish under a number that a client has not released is stored
// once, whichever host hears of it.
func TestOnceOverHosts(t *testing.T) {
	eachTurn(t, func(t *testing.T, w *world, turn func()) {
		c := w.conn()
		s, _ := w.session(c, kept, nil)
		in := w.subscribe(s, "a", 1)
		p := c.Publisher(newOutcomes())
		defer p.Close()
		once := func(number uint16, token uint64) {
			t.Helper()
			for ctx := soon(t); ; {
				_, err := p.Identified(kernel.DedupID{}, func() (int, error) {
					return p.ToTopicOnce(s, number, "a", &kernel.Record{Value: fmt.Append(nil, number)}, token)
				})
				if kernel.CodeOf(err) == kernel.CodePressure && ctx.Err() == nil {
					continue
				}
				must(t, err)
				break
			}
			must(t, p.Settle(soon(t)))
		}
		once(1, 1)
		turn()
		once(1, 2)
		once(2, 3)
		released := make(chan error, 1)
		s.Release([]uint16{1}, func(_ []uint16, err error) { released <- err })
		must(t, <-released)
		once(1, 4)
		in.hears(t, "1", "2", "1")
	})
}

// TestKeptText: what a connection leaves is there for the next one.
func TestKeptText(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	s, _ := w.session(c, kept, nil)
	s.Keep([]byte("left"))
	s.Detach(time.Hour)
	c.Close()
	next, _ := w.session(w.conn(), kept, nil)
	for _, want := range []string{"left", ""} {
		if b, err := next.Kept(); string(b) != want || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
}
