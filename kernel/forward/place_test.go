package forward

import (
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// outcome is a completion of one thing.
type outcome chan error

func (o outcome) Completed(_ uint64, res kernel.Result) { o <- res.Err }
func (o outcome) Flush()                                {}

// TestPins: what is pinned, taken, refused and ended across the network is so at the
// broker, in order with settlements and credit, and told once each.
func TestPins(t *testing.T) {
	c := serve(t, open(t)).connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	m := s.one(t, "a", 2, to)
	p := publishing(t, c)
	for _, v := range []string{"0", "1", "2", "3"} {
		p.topic("a", v)
	}
	p.settle()
	m.Credit(4)
	got := to.wait(t, 4)
	at := func(i int) (int32, int64) { return got[i].Partition, got[i].Offset }
	id := func(n uint16) kernel.PinID { return kernel.PinID{Number: n, Count: uint64(n)} }
	for i := range 3 {
		part, off := at(i)
		m.Pin(id(uint16(i+1)), part, off)
	}
	part, off := at(3)
	m.Settle(kernel.Accept, part, off, off)
	m.Pin(id(9), part, off) // it is settled
	to.until(t, func() bool { return len(to.pinned) == 4 })
	wantCode(t, to.wrong, kernel.CodeFenced)
	part, off = at(0)
	m.Take(id(1), part, off)
	part, off = at(1)
	m.Refuse(id(2), part, off)
	to.until(t, func() bool { return len(to.taken) == 1 })
	done := make(outcome, 1)
	if err := s.PinNumber(id(7), done); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	pins, err := s.Pins(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range pins {
		if p := &pins[i]; p.Filter != "" {
			p.Group, p.Filter = kernel.GroupAddress{}, p.Group.Topic+" "+p.Filter
		}
	}
	part, off = at(2)
	part1, off1 := at(0)
	want := []broker.SessionPin{
		{Pin: kernel.Pin{PinID: id(1), Taken: true, Partition: part1, Offset: off1}, Filter: "a a"},
		{Pin: kernel.Pin{PinID: id(3), Partition: part, Offset: off}, Filter: "a a"},
		{Pin: kernel.Pin{PinID: id(7), Taken: true}},
	}
	if !slices.Equal(pins, want) {
		t.Errorf("got %+v, want %+v", pins, want)
	}
	if ok, err := m.Read(kernel.Place{Partition: part, Offset: off}, func(v *kernel.View) {
		if string(v.Value) != "2" {
			t.Errorf("read %q", v.Value)
		}
	}); !ok || err != nil {
		t.Error(ok, err)
	}
	if ok, err := m.Read(kernel.Place{Offset: 1000}, func(*kernel.View) { t.Error("it is there") }); ok || err != nil {
		t.Error(ok, err)
	}
	m.Unpin(id(1))
	s.Unpin(id(7))
	// The subscription goes, and what is under way can still be ended.
	if _, err := s.Unsubscribe(soon(t), "a"); err != nil {
		t.Fatal(err)
	}
	m.Take(id(3), part, off)
	to.until(t, func() bool { return len(to.taken) == 2 })
	m.Unpin(id(3))
	eventually(t, "all are free", func() bool { pins, err := s.Pins(soon(t)); return err == nil && len(pins) == 0 })
	l := c.link()
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if len(l.members) > 0 {
		t.Errorf("%d members", len(l.members))
	}
}

// TestHoldAfterBreak: the stream breaks, and the client goes on through another one: what
// it holds is held for it and not handed out anew, and what it has pinned is pinned.
func TestHoldAfterBreak(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	m := s.one(t, "a", 2, to)
	p := publishing(t, c)
	for _, v := range []string{"0", "1", "2"} {
		p.topic("a", v)
	}
	p.settle()
	m.Credit(2)
	got := to.wait(t, 2)
	m.Pin(kernel.PinID{Number: 1, Count: 1}, got[0].Partition, got[0].Offset)
	to.until(t, func() bool { return len(to.pinned) == 1 })
	n.near.Close()
	wantCode(t, <-c.ended, kernel.CodeUnknown)
	m.Credit(1)
	m.Settle(kernel.Accept, 0, 0, 0)
	m.Take(kernel.PinID{Number: 1, Count: 1}, 0, 0)
	if held := m.Hold([]kernel.Place{{}}); held[0] {
		t.Error("held by nobody")
	}
	s.Suspend()

	next := n.connect(t, tokened("1"))
	s2, present := next.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour, Epoch: s.Epoch()}, nil)
	if !present || s2.Epoch() < s.Epoch() {
		t.Errorf("present %v, epoch %d after %d", present, s2.Epoch(), s.Epoch())
	}
	again := newSubscriber()
	m, err := s2.Attach(soon(t), spec("a", 2, 1, again))
	if err != nil {
		t.Fatal(err)
	}
	held := m.Hold([]kernel.Place{{Partition: got[1].Partition, Offset: got[1].Offset}, {Offset: 99}})
	if !slices.Equal(held, []bool{true, false}) {
		t.Error(held)
	}
	m.Credit(10)
	if d := again.wait(t, 1)[0]; string(d.Record.Value) != "2" {
		t.Errorf("%q is handed out", d.Record.Value)
	}
	m.Settle(kernel.Accept, got[1].Partition, got[1].Offset, got[1].Offset)
	pins, err := s2.Pins(soon(t))
	if err != nil || len(pins) != 1 || pins[0].Number != 1 || pins[0].Taken {
		t.Errorf("%+v %v", pins, err)
	}
	m.Take(pins[0].PinID, pins[0].Partition, pins[0].Offset)
	again.until(t, func() bool { return len(again.taken) == 1 })
	m.Unpin(pins[0].PinID)
}

// TestKept: what is left with a session is for who takes it next, once.
func TestKept(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	if b, err := s.Kept(); b != nil || err != nil {
		t.Error(b, err)
	}
	s.Keep([]byte("text"))
	s.Detach(time.Hour)
	s = n.connect(t, tokened("2")).kept("c")
	if b, err := s.Kept(); string(b) != "text" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	if b, err := s.Kept(); b != nil || err != nil {
		t.Errorf("%q %v", b, err)
	}
}
