package broker

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// serveNode opens a node that may serve again and again.
func serveNode(t *testing.T) (*Node, *Broker) {
	t.Helper()
	n, err := OpenNode(soon(t), Config{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b := n.facade.Load(); b != nil {
			shut(t, b)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, serveAgain(t, n)
}

// serveAgain ends the facade as if the process had, and makes the next one.
func serveAgain(t *testing.T, n *Node) *Broker {
	t.Helper()
	if b := n.facade.Load(); b != nil {
		for _, c := range b.connections() {
			c.Suspend()
		}
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.Close(now)
	}
	b, err := n.Serve(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goOn(t *testing.T, c *Conn, id string, epoch uint64, expiry time.Duration) (*Session, bool, error) {
	t.Helper()
	return c.AttachSession(soon(t), Attaching{ClientID: id, Epoch: epoch, Expiry: expiry}, nil)
}

// TestUptimeIsOfTheProcess: who begins to serve again has been up all the while.
func TestUptimeIsOfTheProcess(t *testing.T) {
	n, b := serveNode(t)
	first := b.Overview().Started
	if again := serveAgain(t, n).Overview().Started; !again.Equal(first) {
		t.Fatalf("up since %v, then since %v", first, again)
	}
}

// TestEpochs: an attachment that goes on keeps its epoch, and is refused once a later
// one has been there, at the same or at the next facade.
func TestEpochs(t *testing.T) {
	n, b := serveNode(t)
	first, _ := attach(t, connect(t, b), "c", true, time.Hour)
	first.Suspend()
	first.Suspend()
	second, present, err := goOn(t, connect(t, b), "c", first.Epoch(), time.Hour)
	if err != nil || !present || second.Epoch() != first.Epoch() {
		t.Fatal(present, err)
	}
	other := connect(t, b)
	told := make(chan struct{})
	third, _, err := other.AttachSession(soon(t), Attaching{ClientID: "d", Clean: true, Expiry: time.Hour}, func() { close(told) })
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-told; third.Detach(time.Hour) }()
	later, _ := attach(t, connect(t, b), "d", false, time.Hour)
	if later.Epoch() <= third.Epoch() {
		t.Errorf("%d after %d", later.Epoch(), third.Epoch())
	}
	_, _, err = goOn(t, connect(t, b), "d", third.Epoch(), time.Hour)
	wantCode(t, err, kernel.CodeFenced)

	early, _ := attach(t, connect(t, b), "v", true, 0)
	early.Suspend()
	late, _ := attach(t, connect(t, b), "v", true, 0)

	b = serveAgain(t, n)
	// The older one may be the first to come.
	_, _, err = goOn(t, connect(t, b), "d", third.Epoch(), time.Hour)
	wantCode(t, err, kernel.CodeFenced)
	// Of a session that is not kept nobody knows it: the later one takes it all the same.
	older, _, err := goOn(t, connect(t, b), "v", early.Epoch(), 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-time.After(0); older.Detach(0) }()
	if _, _, err = goOn(t, connect(t, b), "v", late.Epoch(), 0); err != nil {
		t.Fatal(err)
	}
	_, _, err = goOn(t, connect(t, b), "v", early.Epoch(), 0)
	wantCode(t, err, kernel.CodeFenced)
	if _, present, err = goOn(t, connect(t, b), "d", later.Epoch(), time.Hour); err != nil || !present {
		t.Fatal(present, err)
	}
	_, _, err = goOn(t, connect(t, b), "d", third.Epoch(), time.Hour)
	wantCode(t, err, kernel.CodeFenced)
	// A client that has just come is later than all of before.
	fresh, _ := attach(t, connect(t, b), "c", false, time.Hour)
	if fresh.Epoch() <= first.Epoch() {
		t.Errorf("%d after %d", fresh.Epoch(), first.Epoch())
	}
	_, _, err = goOn(t, connect(t, b), "c", first.Epoch(), time.Hour)
	wantCode(t, err, kernel.CodeFenced)
}

// TestSuspend: a session that waits for its client publishes no will and keeps what it
// has, also if it would have ended with its connection; another client finds nothing of
// that then, and the will is published.
func TestSuspend(t *testing.T) {
	w := newWills(t, open(t, t.TempDir()), nil)
	for _, expiry := range []time.Duration{0, time.Hour} {
		s, _ := w.client("c", true, expiry, 0, "1")
		subscribe(t, s, "$share/g/a", 1)
		s.Suspend()
		p := publisher(t, connect(t, w.b))
		p.topic("a", "kept")
		w.want("a=kept")
		s, present, err := goOn(t, connect(t, w.b), "c", s.Epoch(), expiry)
		if err != nil || !present {
			t.Fatalf("expiry %v: %v, %v", expiry, present, err)
		}
		in := newInbox()
		a, err := s.Attach(soon(t), kernel.Subscription{Filter: "$share/g/a", QoS: 1}, 0, in, in)
		if err != nil {
			t.Fatal(err)
		}
		a.Member.Credit(10)
		in.wait(t, 1)
		s.Suspend()
		s, present = attach(t, connect(t, w.b), "c", false, expiry)
		if present != (expiry > 0) {
			t.Errorf("expiry %v: present is %v", expiry, present)
		}
		w.want("will/c=1")
		s.Detach(0)
	}
}

// TestSuspendEnds: a client that does not come back has gone.
func TestSuspendEnds(t *testing.T) {
	b := open(t, t.TempDir())
	b.patience = time.Millisecond
	w := newWills(t, b, nil)
	s, _ := w.client("short", true, 0, 0, "1")
	s.Suspend()
	w.want("will/short=1")
	s, _ = w.client("long", true, time.Hour, 0, "2")
	s.Suspend()
	w.want("will/long=2")
	if s, present := attach(t, connect(t, b), "long", false, time.Hour); !present {
		t.Error("the session has gone")
	} else {
		s.Detach(0)
	}
}

// TestNoWillWhileTheClientMayLive: what a facade finds of one before is not the end of
// a client: its will waits, and is still the session's when it goes on. One who comes
// without being that client has it published.
func TestNoWillWhileTheClientMayLive(t *testing.T) {
	n, b := serveNode(t)
	w := newWills(t, b, nil)
	lives, _ := w.client("lives", true, time.Hour, 0, "1")
	w.client("gone", true, time.Hour, 0, "2")
	b = serveAgain(t, n)
	w = newWills(t, b, nil)
	s, present, err := goOn(t, connect(t, b), "lives", lives.Epoch(), time.Hour)
	if err != nil || !present {
		t.Fatal(present, err)
	}
	s2, present := attach(t, connect(t, b), "gone", false, time.Hour)
	if !present {
		t.Error("not present")
	}
	w.want("will/gone=2") // and no other before it
	if !w.stored("lives") {
		t.Error("the will has gone")
	}
	s.Detach(time.Hour)
	w.want("will/lives=1")
	s2.Detach(0)
}

// TestLinkMadeAnew: a client that links again before anybody has seen its former link
// break keeps its session, without a will.
func TestLinkMadeAnew(t *testing.T) {
	b := open(t, t.TempDir())
	w := newWills(t, b, nil)
	id, err := b.Authenticate(context.Background(), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	link := func() *Conn {
		c, err := b.Connect(id, kernel.ConnectionInfo{Protocol: "test", Token: "t"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	s, _ := attach(t, link(), "c", true, 0)
	if err := s.SetWill(soon(t), &kernel.Will{Topic: "will/c", Record: kernel.Record{Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	s, present, err := goOn(t, link(), "c", s.Epoch(), 0)
	if err != nil || !present {
		t.Fatal(present, err)
	}
	s.Detach(0)
	w.want("will/c=1")
}

// TestNumbersGoOn: a message that was stored nowhere, as only subscribers in memory had
// it, is recognised at the next facade all the same if its client's link is made anew.
func TestNumbersGoOn(t *testing.T) {
	for _, expiry := range []time.Duration{0, time.Hour} {
		n, b := serveNode(t)
		s, _ := attach(t, connect(t, b), "c", true, expiry)
		s.Suspend()
		b = serveAgain(t, n)
		c := connect(t, b)
		declare(t, c, QueueSpec{Name: "q", Durable: true})
		s, _, err := c.AttachSession(soon(t), Attaching{
			ClientID: "c", Epoch: s.Epoch(), Expiry: expiry, Numbers: func() []uint16 { return []uint16{7} },
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		p := publisher(t, c)
		p.once(s, 7, "q", "repeat")
		if unknown := p.release(s, 7); len(unknown) > 0 {
			t.Errorf("released in vain: %d", unknown)
		}
		p.once(s, 7, "q", "next")
		p.once(s, 8, "q", "other")
		_, in := consume(t, c, "q", kernel.MemberOptions{AutoSettle: true}, 10)
		if got := in.wait(t, 2); !slices.Equal(got, []string{"next", "other"}) {
			t.Errorf("expiry %v: %q", expiry, got)
		}
	}
}

// TestAttachedAsItsStreamBreaks: a session that is attached as the stream of its client
// breaks is suspended with the others: the client lives, and its will waits.
func TestAttachedAsItsStreamBreaks(t *testing.T) {
	w := newWills(t, open(t, t.TempDir()), nil)
	s, c := w.client("c", true, time.Hour, 0, "1")
	c.Suspend()
	c.Close()
	c = connect(t, w.b)
	c.Suspend()
	if _, present, err := goOn(t, c, "c", s.Epoch(), time.Hour); !present || err != nil { // which was under way
		t.Fatal(present, err)
	}
	c.Close()
	if !w.stored("c") {
		t.Error("a will of the living was published")
	}
	again, _, err := goOn(t, connect(t, w.b), "c", s.Epoch(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	again.Detach(time.Hour)
	w.want("will/c=1")
}

// TestExpiryOutlastsTheFacade: when a session expires counts from the end of its connection
// also if another facade serves since, once an eighth of the time has gone by.
func TestExpiryOutlastsTheFacade(t *testing.T) {
	n, b := serveNode(t)
	s, _ := attach(t, connect(t, b), "c", true, 2*time.Second)
	s.Detach(2 * time.Second)
	at := func(e *sessionEntry) (time.Time, bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.expiresAt, e.stamped
	}
	want, stamped := at(s.s)
	for limit := soon(t); !stamped; runtime.Gosched() {
		if limit.Err() != nil {
			t.Fatal("it is not written down")
		}
		_, stamped = at(s.s)
	}
	if left := want.Sub(b.now()); left < time.Second {
		t.Errorf("it was written down %v before", left)
	}
	next := serveAgain(t, n)
	tenant, _ := next.tenant(kernel.DefaultTenant)
	tenant.mu.Lock()
	e := tenant.sessions["c"]
	tenant.mu.Unlock()
	if got, _ := at(e); got.UnixMilli() != want.UnixMilli() {
		t.Errorf("it expires %v later", got.Sub(want))
	}
	for limit := soon(t); ; runtime.Gosched() {
		e.mu.Lock()
		gone := e.gone
		e.mu.Unlock()
		if gone {
			break
		}
		if limit.Err() != nil {
			t.Fatal("the session did not expire")
		}
	}
	if early := want.Sub(next.now()); early > 0 {
		t.Errorf("it went %v too early", early)
	}
}
