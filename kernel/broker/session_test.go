package broker

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

func attach(t testing.TB, c *Conn, id string, clean bool, expiry time.Duration) (*Session, bool) {
	t.Helper()
	s, present, err := c.AttachSession(soon(t), Attaching{ClientID: id, Clean: clean, Expiry: expiry}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, present
}

func subscribe(t testing.TB, s *Session, filter string, qos byte) (*Attachment, *inbox) {
	t.Helper()
	in := newInbox()
	a, err := s.Subscribe(soon(t), kernel.Subscription{Filter: filter, QoS: qos}, 0, in, in)
	if err != nil {
		t.Fatalf("subscribe %s: %v", filter, err)
	}
	if a.Member != nil {
		a.Member.Credit(100)
	}
	return a, in
}

func TestLiveSubscriptions(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, 0)
	_, exact := subscribe(t, s, "a/b", 1)
	_, wild := subscribe(t, s, "a/#", 0)
	_, all := subscribe(t, s, "#", 0)
	p := publisher(t, c)
	if n := p.topic("a/b", "1"); n != 3 {
		t.Errorf("matched %d", n)
	}
	if n := p.exchange("amq.topic", "a.b", "2"); n != 3 {
		t.Errorf("matched %d", n)
	}
	p.topic("$SYS/x", "hidden")
	if _, ok := c.Topic("a/b"); ok {
		t.Error("a live subscription stores something")
	}
	// A subscription without wildcard sees the topic of its name, whoever writes.
	declare(t, c, QueueSpec{Name: "a/b", Durable: true})
	p.exchange("", "a/b", "3")
	for _, in := range []*inbox{wild, all} {
		if got := in.wait(t, 2); !slices.Equal(got, []string{"a/b=1", "a/b=2"}) {
			t.Errorf("got %q", got)
		}
	}
	if got := exact.wait(t, 3); !slices.Equal(got, []string{"a/b=1", "a/b=2", "a/b=3"}) {
		t.Errorf("got %q", got)
	}
	// Replacing keeps one feed.
	_, again := subscribe(t, s, "#", 0)
	p.topic("x", "4")
	again.wait(t, 1)
	all.wait(t, 2)
	if existed, err := s.Unsubscribe(soon(t), "#"); !existed || err != nil {
		t.Error(existed, err)
	}
	if existed, err := s.Unsubscribe(soon(t), "#"); existed || err != nil {
		t.Error(existed, err)
	}
	s.Detach(0)
	if n := p.topic("a/c", "5"); n != 0 {
		t.Errorf("a live feed outlived its session: %d", n)
	}
	_, err := s.Subscribe(soon(t), kernel.Subscription{Filter: "x"}, 0, exact, exact)
	wantCode(t, err, kernel.CodeFenced)
}

func TestDurableSession(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	s, present := attach(t, c, "c", false, time.Hour)
	if present {
		t.Error("present although new")
	}
	_, in := subscribe(t, s, "a/+", 1)
	a, exact := subscribe(t, s, "plain/name", 1)
	p := publisher(t, c)
	if n := p.topic("a/1", "1"); n != 1 {
		t.Errorf("matched %d", n)
	}
	in.wait(t, 1) // not settled: it comes back
	p.topic("plain/name", "x")
	exact.wait(t, 1)
	a.Member.Settle(kernel.Accept, 0, 0, 0)
	if n := p.exchange("amq.topic", "plain.name", "y"); n != 1 {
		t.Errorf("a subscribed name is not reached by key: %d", n)
	}
	s.Detach(time.Hour)
	p.topic("a/2", "2")
	p.topic("a/3", "3")

	c2 := connect(t, b)
	s, present = attach(t, c2, "c", false, time.Hour)
	if !present || len(s.State().Subscriptions) != 2 {
		t.Fatalf("present %v, %+v", present, s.State())
	}
	in = newInbox()
	a, err := s.Attach(soon(t), kernel.Subscription{Filter: "a/+", QoS: 1}, 0, in, in)
	if err != nil {
		t.Fatal(err)
	}
	a.Member.Credit(10)
	if got := in.wait(t, 3); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("got %q", got)
	}
	a.Member.Settle(kernel.Accept, 0, 0, 2)
	// Replacing it loses nothing: what is held stays with the old member.
	p.topic("a/4", "4")
	in.wait(t, 4)
	b2, in2 := subscribe(t, s, "a/+", 1)
	p.topic("a/5", "5")
	in2.wait(t, 1)
	a.Member.Settle(kernel.Accept, 0, in.offset["4"], in.offset["4"])
	b2.Member.Settle(kernel.Accept, 0, in2.offset["5"], in2.offset["5"])
	if existed, err := s.Unsubscribe(soon(t), "a/+"); !existed || err != nil {
		t.Error(existed, err)
	}
	if n := p.topic("a/6", "6"); n != 0 {
		t.Errorf("the filter topic outlived its last reader: %d", n)
	}
	_, err = s.Attach(soon(t), kernel.Subscription{Filter: "a/+"}, 0, in, in)
	wantCode(t, err, kernel.CodeNotFound)

	// A clean start discards the rest.
	s.Detach(time.Hour)
	s, present = attach(t, c2, "c", true, 0)
	if present || len(s.State().Subscriptions) != 0 {
		t.Errorf("present %v, %+v", present, s.State())
	}
	if _, ok := c.Topic("plain/name"); ok {
		t.Error("a topic made by a subscription outlived it")
	}
}

func TestManySessionsOneFilter(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	const n = 20
	boxes := make([]*inbox, n)
	sessions := make([]*Session, n)
	for i := range n {
		sessions[i], _ = attach(t, connect(t, b), fmt.Sprintf("c%d", i), true, time.Hour)
		_, boxes[i] = subscribe(t, sessions[i], "s/#", 1)
	}
	p := publisher(t, c)
	if got := p.topic("s/1", "m"); got != 1 {
		t.Errorf("stored %d times", got)
	}
	for _, in := range boxes {
		in.wait(t, 1)
	}
	for _, s := range sessions {
		s.Detach(0)
	}
	if got := p.topic("s/1", "m"); got != 0 {
		t.Errorf("matched %d", got)
	}
}

func TestShareSubscriptions(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	s1, _ := attach(t, connect(t, b), "c1", true, 0)
	s2, _ := attach(t, connect(t, b), "c2", true, time.Hour)
	_, err := s1.Subscribe(soon(t), kernel.Subscription{Filter: "$queue/none", QoS: 1}, 0, newInbox(), newInbox())
	wantCode(t, err, kernel.CodeNotFound)
	_, in1 := subscribe(t, s1, "$share/g/t/+", 1)
	subscribe(t, s2, "$share/g/t/+", 0)
	s2.Detach(time.Hour)
	p := publisher(t, c)
	if n := p.topic("t/1", "1"); n != 1 {
		t.Errorf("matched %d", n)
	}
	in1.wait(t, 1)
	s1.Detach(0)
	// c2 is away, but its subscription keeps the group.
	p.topic("t/2", "2")
	info, err := c.Queue("$share/g/t/+")
	if err != nil || info.Ready != 2 {
		t.Errorf("%+v, %v", info, err)
	}
	s2, _ = attach(t, connect(t, b), "c2", false, time.Hour)
	if _, err := s2.Unsubscribe(soon(t), "$share/g/t/+"); err != nil {
		t.Error(err)
	}
	_, err = c.Queue("$share/g/t/+")
	wantCode(t, err, kernel.CodeNotFound)

	// The same object as an AMQP-style queue; declared, it stays.
	declare(t, c, QueueSpec{Name: "jobs", Durable: true})
	subscribe(t, s2, "$share/jobs/jobs", 1)
	subscribe(t, s2, "$queue/jobs", 1)
	if info, _ := c.Queue("jobs"); info.Members != 2 {
		t.Errorf("%+v", info)
	}
	s2.Detach(0)
	if info, err := c.Queue("jobs"); err != nil || info.Members != 0 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestHiddenTopics(t *testing.T) {
	b := open(t, t.TempDir())
	c, other := connect(t, b), connect(t, b)
	declare(t, c, QueueSpec{Name: "reply", Exclusive: true})
	s, _ := attach(t, other, "spy", true, time.Hour)
	for _, qos := range []byte{0, 1} {
		_, err := s.Subscribe(soon(t), kernel.Subscription{Filter: "reply", QoS: qos}, 0, newInbox(), newInbox())
		wantCode(t, err, kernel.CodeAccessRefused)
	}
	_, err := s.Subscribe(soon(t), kernel.Subscription{Filter: "$share/x/reply", QoS: 1}, 0, newInbox(), newInbox())
	wantCode(t, err, kernel.CodeAccessRefused)
	_, err = s.Subscribe(soon(t), kernel.Subscription{Filter: "$queue/reply", QoS: 1}, 0, newInbox(), newInbox())
	wantCode(t, err, kernel.CodeLocked)
	if n := publisher(t, other).topic("reply", "x"); n != 0 {
		t.Errorf("matched %d", n)
	}
	for _, bad := range []string{"", "a/#/b", "a+/b", "a/b#", "x\x00"} {
		_, err := s.Subscribe(soon(t), kernel.Subscription{Filter: bad, QoS: 1}, 0, newInbox(), newInbox())
		wantCode(t, err, kernel.CodeInvalidName)
	}
}

func TestTakeover(t *testing.T) {
	b := open(t, t.TempDir())
	first, second := connect(t, b), connect(t, b)
	var s1 *Session
	told := make(chan struct{})
	s1, _, err := first.AttachSession(soon(t), Attaching{ClientID: "c", Clean: true, Expiry: time.Hour}, func() { close(told) })
	if err != nil {
		t.Fatal(err)
	}
	subscribe(t, s1, "x/#", 1)
	go func() {
		<-told
		s1.Detach(time.Hour)
	}()
	s2, present := attach(t, second, "c", false, time.Hour)
	if !present {
		t.Error("the session was not kept")
	}
	s1.Detach(0) // late and again: without effect
	if len(s2.State().Subscriptions) != 1 {
		t.Errorf("%+v", s2.State())
	}
	// The connection's end detaches it.
	second.Close()
	third := connect(t, b)
	if _, present = attach(t, third, "c", false, 0); !present {
		t.Error("the session was not kept")
	}
	third.Close()
	if _, present = attach(t, connect(t, b), "c", false, 0); present {
		t.Error("the session outlived its expiry of 0")
	}
}

// TestExpiryTimer lets the timer of a session discard it.
func TestExpiryTimer(t *testing.T) {
	b := open(t, t.TempDir())
	s, _ := attach(t, connect(t, b), "c", true, time.Millisecond)
	subscribe(t, s, "x/#", 1)
	e := s.s
	s.Detach(time.Millisecond)
	gone := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.gone
	}
	for limit := soon(t); !gone(); runtime.Gosched() {
		if limit.Err() != nil {
			t.Fatal("the session did not expire")
		}
	}
	if n := publisher(t, connect(t, b)).topic("x/1", "m"); n != 0 {
		t.Errorf("its topic outlived it: %d", n)
	}
}

// TestSubscribeAll: many subscriptions are made with few commits; the answers keep
// their order, one that fails leaves the others, and a filter that comes twice
// has the later settings.
func TestSubscribeAll(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, func(c *Config) { c.Limits.Subscriptions = 102 })
	c := connect(t, b)
	s, _ := attach(t, c, "many", false, time.Hour)
	in := newInbox()
	spec := func(filter string, qos byte, id uint32) SubscribeSpec {
		return SubscribeSpec{Subscription: kernel.Subscription{Filter: filter, QoS: qos, Identifier: id}, To: in, Live: in}
	}
	var specs []SubscribeSpec
	for i := range 100 {
		specs = append(specs, spec(fmt.Sprintf("many/%d/+", i), 1, 0))
	}
	before := b.node.wal.Stats().Syncs
	for i, r := range s.SubscribeAll(soon(t), specs) {
		if r.Err != nil || r.Attachment.Member == nil || r.Attachment.Subscription.Filter != specs[i].Subscription.Filter {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	// One after the other they took 4 syncs each.
	if n := b.node.wal.Stats().Syncs - before; n > 200 {
		t.Errorf("%d syncs for %d subscriptions", n, len(specs))
	}
	mixed := s.SubscribeAll(soon(t), []SubscribeSpec{
		spec("twice", 1, 1), spec("$queue/missing", 1, 0), spec("a/#/b", 1, 0), spec("twice", 1, 2), spec("$share/g/x", 1, 0), spec("one/too/many", 1, 0),
	})
	want := []kernel.Code{0, kernel.CodeNotFound, kernel.CodeInvalidName, 0, 0, kernel.CodeLimit}
	for i, r := range mixed {
		if want[i] == 0 != (r.Err == nil) || want[i] == 0 != (r.Attachment != nil) || want[i] != 0 && kernel.CodeOf(r.Err) != want[i] {
			t.Errorf("%d: %+v, want code %d", i, r, want[i])
		}
	}
	if mixed[0].Attachment.Member == mixed[3].Attachment.Member {
		t.Error("a replaced subscription kept its member")
	}
	s.Detach(time.Hour)
	shut(t, b)
	s, present := attach(t, connect(t, open(t, dir)), "many", false, time.Hour)
	state := s.State().Subscriptions
	if !present || len(state) != 102 {
		t.Errorf("present %v, %d subscriptions", present, len(state))
	}
	for _, sub := range state {
		if sub.Filter == "twice" && sub.Identifier != 2 {
			t.Errorf("%+v", sub)
		}
	}
	wantCode(t, s.SubscribeAll(soon(t), []SubscribeSpec{spec("a/#/b", 0, 0)})[0].Err, kernel.CodeInvalidName)
	s.Detach(0)
	wantCode(t, s.SubscribeAll(soon(t), specs[:1])[0].Err, kernel.CodeFenced)
}
