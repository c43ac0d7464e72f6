package forward

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// brief is a session that ends with its connection: its subscriptions are live.
func (c *client) brief(id string) *attached {
	c.t.Helper()
	s, _ := c.attach(broker.Attaching{ClientID: id}, nil)
	return s
}

// TestLive: live messages come with all of the record, in order, with who has published
// them; those of subscriptions that are replaced or end do not.
func TestLive(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c, other := n.connect(t, tokened("1")), direct(t, b)
	s := c.brief("c")
	to := newSubscriber()
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("a", 0, 1, to), spec("+", 1, 2, to)})
	p := publishing(t, c)
	p.topic("a", "own")
	p.settle()
	q := other.Publisher(nil)
	if _, err := q.ToTopic("b", &kernel.Record{Value: []byte("other")}, 1); err != nil {
		t.Fatal(err)
	}
	to.until(t, func() bool { return len(to.live) == 3 })
	if got := strings.Join(to.live, " "); got != "a=own@1 a=own@2 b=other@2" && got != "a=own@2 a=own@1 b=other@2" {
		t.Error(got)
	}
	if to.from[0] != c.link().ID() || to.from[2] != other.ID() || to.from[0] == to.from[2] {
		t.Errorf("from %d, ids %d, %d", to.from, c.link().ID(), other.ID())
	}
	again := newSubscriber()
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("+", 0, 3, again)})
	p.topic("b", "new")
	p.settle()
	again.waitLive(t, "b=new@3")
	s.Detach(0)
	p.topic("a", "late")
	p.settle()
	if len(to.live) != 3 || len(again.live) != 1 {
		t.Error(to.live, again.live)
	}
}

// whole is a live subscriber that keeps the record.
type whole struct {
	*subscriber
	got kernel.Record
}

func (w *whole) Live(m *kernel.LiveMessage, _ uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.note()
	w.got = *copyRecord(m.Record)
	return true
}

func copyRecord(r *kernel.Record) *kernel.Record {
	var c kernel.Record
	read(appendRecord(nil, r)).record(&c)
	return &c
}

// TestLiveRecord: nothing of a record is lost, null or empty.
func TestLiveRecord(t *testing.T) {
	c := serve(t, open(t)).connect(t, tokened("1"))
	s := c.brief("c")
	w := &whole{subscriber: newSubscriber()}
	s.Subscribe(soon(t), []broker.SubscribeSpec{{Subscription: kernel.Subscription{Filter: "a"}, To: w, Live: w}})
	want := kernel.Record{Key: []byte("a"), Value: []byte{}, Timestamp: 77, Headers: []kernel.Header{{Key: "h", Value: []byte("v")}, {Key: "null"}, {Key: "", Value: []byte{}}}}
	if _, err := c.Publisher(nil).(edge.SessionPublisher).ToTopic("a", &want, 1); err != nil {
		t.Fatal(err)
	}
	w.until(t, func() bool { return w.got.Timestamp != 0 })
	if got, want := fmt.Sprintf("%#v", w.got), fmt.Sprintf("%#v", want); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLiveBackPressure: what a front-end does not take waits at its node within the
// window, and then its publisher does, if it is QoS 1; QoS 0 is dropped, and counted.
// Nothing else of the link waits, and all that was kept comes in order.
func TestLiveBackPressure(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	to := newSubscriber()
	to.close()
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("a", 1, 1, to)})
	const size = 100 << 10
	value := func(i int) []byte { return fmt.Appendf(nil, "%-*d", size, i) }
	source := direct(t, b).Publisher(nil)
	send := func(i int, qos string) {
		t.Helper()
		r := kernel.Record{Value: value(i), Headers: []kernel.Header{{Key: kernel.HeaderQoS, Value: []byte(qos)}}}
		if _, err := source.ToTopic("a", &r, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	const room = liveWindow / size
	for i := range room {
		send(i, "1")
	}
	for i := range 3 {
		send(100+i, "0")
	}
	if got := b.Counters("mqtt").Dropped.Load(); got != 3 {
		t.Errorf("%d were dropped", got)
	}
	// The link does all else.
	c.declare("q")
	p := publishing(t, c)
	p.to("", "q", "v")
	p.settle()
	in := newInbox()
	c.join("q", kernel.MemberOptions{}, nil, in).Credit(1)
	in.wait(t, 1)
	far := n.only()
	far.out.mu.Lock()
	if got := far.flow.unacked; got > liveWindow || got < liveWindow-2*size {
		t.Errorf("%d bytes wait", got)
	}
	far.out.mu.Unlock()
	l := c.link()
	l.out.mu.Lock()
	if got := len(l.live.waits); got != room {
		t.Errorf("%d messages wait", got)
	}
	l.out.mu.Unlock()
	// A publisher waits for room.
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		send(room, "1")
	}()
	eventually(t, "the publisher waits", func() bool { far.out.mu.Lock(); defer far.out.mu.Unlock(); return far.flow.room != nil })
	to.open()
	<-waited
	var want []string
	for i := range room + 1 {
		want = append(want, fmt.Sprintf("a=%d@1", i))
	}
	to.waitLive(t, want...)
	for i := range 50 { // all of the window is there again, and what is larger fits, too
		send(1000+i, "1")
	}
	r := kernel.Record{Value: make([]byte, 3*liveWindow)}
	if _, err := source.ToTopic("a", &r, 1); err != nil {
		t.Fatal(err)
	}
	to.until(t, func() bool { return len(to.live) == room+1+51 })
}

// TestLiveEndsWhileFull: a session that goes while its front-end takes nothing, or its
// subscription, holds up nobody.
func TestLiveEndsWhileFull(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	to, good := newSubscriber(), newSubscriber()
	to.close()
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("a", 1, 1, to), spec("b", 1, 2, good)})
	p := publishing(t, c)
	p.topic("a", "1")
	p.topic("a", "2")
	p.topic("b", "3")
	p.settle()
	if _, err := s.Unsubscribe(soon(t), "a"); err != nil {
		t.Fatal(err)
	}
	good.waitLive(t, "b=3@2")
	good.close()
	p.topic("b", "4")
	p.settle()
	s.Detach(0)
	c.Close()
	if len(to.live) > 0 || len(good.live) > 1 {
		t.Error(to.live, good.live)
	}
}

// TestLiveTotal: when much is under way to all other nodes each link may have little, and
// that is always enough to go on.
func TestLiveTotal(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t, tokened("1"))
	s := c.brief("c")
	to := newSubscriber()
	to.close()
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("a", 0, 1, to)})
	n.server.live.Add(liveTotal + 1)
	source := direct(t, b).Publisher(nil)
	r := kernel.Record{Value: make([]byte, 10<<10)}
	const fit = liveStep/(10<<10) + 1
	for range fit + 3 {
		if _, err := source.ToTopic("a", &r, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.Counters("mqtt").Dropped.Load(); got != 3 {
		t.Errorf("%d were dropped", got)
	}
	to.open()
	to.until(t, func() bool { return len(to.live) == fit })
	far := n.only()
	eventually(t, "there is room", func() bool { far.out.mu.Lock(); defer far.out.mu.Unlock(); return far.flow.room == nil })
	n.server.live.Add(-liveTotal - 1)
	if _, err := source.ToTopic("a", &r, 1); err != nil {
		t.Fatal(err)
	}
	to.until(t, func() bool { return len(to.live) == fit+1 })
	c.Close()
	eventually(t, "nothing is under way", func() bool { return n.server.live.Load() == 0 })
}

// TestLiveOfOneself: a client that hears what it publishes itself, or two of each other,
// lose nothing while they take it: that they do is heard while a publisher waits for room.
func TestLiveOfOneself(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	const count, size = 60, 50 << 10
	var list []*subscriber
	var pubs []*naming
	for i := range 2 {
		c := n.connect(t, tokened(fmt.Sprint(i)))
		s := c.brief(fmt.Sprint(i))
		to := newSubscriber()
		s.Subscribe(soon(t), []broker.SubscribeSpec{spec("a", 1, 1, to)})
		list, pubs = append(list, to), append(pubs, topics(t, c))
	}
	var work sync.WaitGroup
	for _, p := range pubs {
		work.Go(func() {
			for i := range count {
				p.n++
				if _, err := p.p.ToTopic("a", message("a", fmt.Sprintf("%-*d", size, i)), p.n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	for _, p := range pubs {
		p.wait()
	}
	if got := b.Counters("mqtt").Dropped.Load(); got != 0 {
		t.Errorf("%d were dropped", got)
	}
	for _, to := range list {
		to.until(t, func() bool { return len(to.live) == 2*count })
	}
}
