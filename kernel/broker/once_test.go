package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// once publishes under a number of a session and waits for the outcome.
func (p *pub) once(s *Session, number uint16, name, value string) int {
	p.t.Helper()
	p.next++
	n, err := p.p.ToTopicOnce(s, number, name, &kernel.Record{Key: []byte(name), Value: []byte(value)}, p.next)
	if err != nil {
		p.t.Fatalf("publish %s to %s: %v", value, name, err)
	}
	if res := p.done.wait(p.t, p.next); res.Err != nil {
		p.t.Fatalf("publish %s to %s: %v", value, name, res.Err)
	}
	return n
}

func (p *pub) release(s *Session, numbers ...uint16) (unknown []uint16) {
	p.t.Helper()
	p.next++
	s.Release(numbers, func(list []uint16, err error) {
		unknown = list
		p.done.Completed(p.next, kernel.Result{Err: err})
		p.done.Flush()
	})
	if res := p.done.wait(p.t, p.next); res.Err != nil {
		p.t.Fatal(res.Err)
	}
	return unknown
}

// TestOncePerUse: a message goes to everybody who is to have it once per use of its
// number: queue, bound queue, filter and live subscription; from connection to
// connection, and through a restart.
func TestOncePerUse(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	queues := []string{"a/b", "bound"}
	for _, q := range queues {
		declare(t, c, QueueSpec{Name: q, Durable: true})
	}
	bind(t, c, "amq.topic", "bound", "a.*")
	reader, _ := attach(t, c, "reader", true, time.Hour)
	subscribe(t, reader, "a/+", 1)
	reader.Detach(time.Hour)
	viewer, _ := attach(t, c, "viewer", true, 0)
	_, live := subscribe(t, viewer, "a/b", 1)

	c1 := connect(t, b)
	s, _ := attach(t, c1, "writer", false, time.Hour)
	p := publisher(t, c1)
	for range 2 {
		if n := p.once(s, 1, "a/b", "1"); n != 4 {
			t.Errorf("matched %d", n)
		}
	}
	c2 := connect(t, b) // takes over
	s, present := attach(t, c2, "writer", false, time.Hour)
	if !present {
		t.Error("the session is not there")
	}
	p = publisher(t, c2)
	p.once(s, 1, "a/b", "1")
	p.once(s, 2, "a/b", "2")
	if unknown := p.release(s, 1, 9); !slices.Equal(unknown, []uint16{9}) {
		t.Errorf("unknown: %d", unknown)
	}
	if unknown := p.release(s, 1); !slices.Equal(unknown, []uint16{1}) {
		t.Errorf("unknown: %d", unknown)
	}
	p.once(s, 1, "a/b", "3")
	if got := live.wait(t, 3); !slices.Equal(got, []string{"a/b=1", "a/b=2", "a/b=3"}) {
		t.Errorf("live: %q", got)
	}
	shut(t, b)

	b = open(t, dir)
	c = connect(t, b)
	s, _ = attach(t, c, "writer", false, time.Hour)
	p = publisher(t, c)
	p.once(s, 2, "a/b", "2") // not released
	p.once(s, 1, "a/b", "3")
	p.once(s, 3, "a/b", "4")
	p.release(s, 1, 2, 3)
	p.once(s, 1, "a/b", "5")
	want := []string{"1", "2", "3", "4", "5"}
	for _, q := range queues {
		_, in := consume(t, c, q, kernel.MemberOptions{AutoSettle: true}, 100)
		if got := in.wait(t, len(want)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", q, got)
		}
	}
	reader, _ = attach(t, c, "reader", false, time.Hour)
	in := newInbox()
	a, err := reader.Attach(soon(t), kernel.Subscription{Filter: "a/+", QoS: 1}, 0, in, in)
	if err != nil {
		t.Fatal(err)
	}
	a.Member.Credit(100)
	if got := in.wait(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("filter: %q", got)
	}

	// A session that is begun anew knows nothing of the old numbers.
	s.Detach(time.Hour)
	s, _ = attach(t, c, "writer", true, time.Hour)
	if unknown := p.release(s, 1); len(unknown) != 1 {
		t.Error("the numbers of the old session are there")
	}
	p.once(s, 1, "a/b", "6")
	s.Detach(0)
	if names := b.durable.Sessions(); len(names) > 0 {
		t.Errorf("numbers of %q are kept", names)
	}
}

// TestOnceInMemory: a session that ends with its connection keeps its numbers, as
// long as that lasts, and nothing of them in the log.
func TestOnceInMemory(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	s, _ := attach(t, c, "c", true, 0)
	p := publisher(t, c)
	p.once(s, 1, "q", "1")
	p.once(s, 1, "q", "1")
	p.release(s, 1)
	p.once(s, 1, "q", "2")
	if n := p.once(s, 2, "nobody", "x"); n != 0 {
		t.Errorf("matched %d", n)
	}
	if n := p.once(s, 2, "q", "x"); n != 0 { // a repeat, whatever it says
		t.Errorf("matched %d", n)
	}
	_, in := consume(t, c, "q", kernel.MemberOptions{AutoSettle: true}, 100)
	if got := in.wait(t, 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("%q", got)
	}
	if names := b.durable.Sessions(); len(names) > 0 {
		t.Errorf("numbers of %q are in the log", names)
	}
	s.Detach(0)
	if _, err := p.p.ToTopicOnce(s, 3, "q", &kernel.Record{}, 99); kernel.CodeOf(err) != kernel.CodeFenced {
		t.Errorf("published after the end of the session: %v", err)
	}
}

// TestOnceWhileUnderWay: who repeats a message whose first publish is still under
// way, on another connection, gets the outcome of that.
func TestOnceWhileUnderWay(t *testing.T) {
	o := &onces{b: &Broker{limits: Limits{}.withDefaults()}, next: 1, used: make(map[uint16]*use)}
	h := &Session{s: &sessionEntry{id: "c"}, onces: o}
	o.hold(h)
	first, second := newOutcomes(), newOutcomes()
	u, _, err := o.begin(h, 5, newSink(first), 1)
	if u == nil || err != nil {
		t.Fatal(u, err)
	}
	if again, _, err := o.begin(h, 5, newSink(second), 2); again != nil || err != nil {
		t.Fatal(again, err)
	}
	o.Completed(u.key(), kernel.Result{})
	o.Flush()
	if res := second.wait(t, 2); res.Err != nil || len(first.got) > 0 {
		t.Fatal(res, first.got)
	}
	// What certainly failed is free again, what may have is looked up by the next
	// connection.
	for _, c := range []struct {
		code  kernel.Code
		doubt bool
	}{{kernel.CodeUnavailable, false}, {kernel.CodeUnknown, true}} {
		u, _, _ = o.begin(h, 6, newSink(first), uint64(c.code))
		if u == nil {
			t.Fatalf("after %d: a repeat", c.code)
		}
		o.Completed(u.key(), kernel.Result{Err: &kernel.Error{Code: c.code}})
		if o.doubt != c.doubt || (o.used[6] != nil) != c.doubt {
			t.Errorf("code %d: doubt %v, used %v", c.code, o.doubt, o.used[6])
		}
	}
	o.hold(nil)
	if _, _, err := o.begin(h, 7, newSink(first), 9); kernel.CodeOf(err) != kernel.CodeFenced {
		t.Error(err)
	}
}

// TestCleanStartThatFails: a session whose emptying fails half way is not present
// to the next connection.
func TestCleanStartThatFails(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	for i := 0; ; i++ {
		id := fmt.Sprint("c", i)
		s, _ := attach(t, c, id, false, time.Hour)
		subscribe(t, s, "a/"+id, 1)
		s.Detach(time.Hour)
		e, err := c.tenant.entry(id)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(soon(t))
		cancel()
		e.mu.Lock()
		err = e.begin(ctx, &Attaching{Expiry: time.Hour}, 1, false, "guest")
		e.mu.Unlock()
		if err == nil {
			continue // the commit was faster
		}
		if kernel.CodeOf(err) != kernel.CodeUnknown {
			t.Fatal(errors.Unwrap(err))
		}
		s, present := attach(t, c, id, false, time.Hour)
		if present || len(s.State().Subscriptions) > 0 {
			t.Errorf("present %v with %v", present, s.State().Subscriptions)
		}
		s.Detach(0)
		return
	}
}

// TestNumbersAreBounded: a session that releases nothing is refused, and so is one
// more when all sessions together have too many; what is released or discarded
// makes room.
func TestNumbersAreBounded(t *testing.T) {
	b := open(t, t.TempDir(), func(c *Config) { c.Limits.Numbers, c.Limits.AllNumbers = 3, 5 })
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	s, _ := attach(t, c, "a", false, time.Hour)
	p := publisher(t, c)
	full := func(s *Session, number uint16) {
		t.Helper()
		_, err := p.p.ToTopicOnce(s, number, "q", &kernel.Record{Key: []byte("q")}, 99)
		wantCode(t, err, kernel.CodeLimit)
	}
	for n := range uint16(3) {
		p.once(s, n+1, "q", "x")
	}
	full(s, 4)
	p.once(s, 3, "q", "x") // a repeat is none more
	p.release(s, 2)
	p.once(s, 4, "q", "x")
	s2, _ := attach(t, c, "b", false, 0)
	p.once(s2, 1, "q", "x")
	p.once(s2, 2, "q", "x")
	full(s2, 3)
	s.Detach(0)
	p.once(s2, 3, "q", "x")
	full(s2, 4)
	s2.Detach(0)
	if n := b.numbers.Load(); n != 0 {
		t.Fatalf("%d numbers of no session", n)
	}
}

// TestNumbersGoWithTheirTenant.
func TestNumbersGoWithTheirTenant(t *testing.T) {
	b := open(t, t.TempDir())
	if err := b.PutTenant(soon(t), kernel.Tenant{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := b.PutPermission(soon(t), kernel.Permission{Tenant: "a", User: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	c, err := b.Connect(kernel.Identity{User: "guest", Tenant: "a"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	s, _ := attach(t, c, "s", false, time.Hour)
	publisher(t, c).once(s, 1, "q", "x")
	s.Detach(time.Hour)
	c.Close()
	if got := b.durable.Sessions(); len(got) != 1 {
		t.Fatalf("%q", got)
	}
	if err := b.DropTenant(soon(t), "a"); err != nil {
		t.Fatal(err)
	}
	if got := b.durable.Sessions(); len(got) != 0 || b.numbers.Load() != 0 {
		t.Fatalf("%q, %d", got, b.numbers.Load())
	}
}
