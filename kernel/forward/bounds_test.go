package forward

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// only returns the session of a server that has one.
func (n *network) only() *session {
	n.server.mu.Lock()
	defer n.server.mu.Unlock()
	for _, s := range n.server.open.List() {
		return s
	}
	return nil
}

// TestSlowConsumer: of large messages for a node that takes nothing few leave their queue,
// and all come when it does again, each once.
func TestSlowConsumer(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t)
	c.declare("q")
	p := publishing(t, c)
	for i := range 60 {
		p.to("", "q", fmt.Sprintf("%-*d", 500<<10, i))
	}
	p.settle()
	in := newInbox()
	m := c.join("q", kernel.MemberOptions{}, nil, in)
	open := make(chan struct{})
	n.near.gate.Store(&open)
	m.Credit(60)
	s := n.only()
	eventually(t, "credit is withheld", func() bool { s.out.mu.Lock(); defer s.out.mu.Unlock(); return len(s.hungry) > 0 })
	d := direct(t, b)
	if info, _ := d.Queue("q"); info.Held == 0 || info.Held > 12 {
		t.Errorf("%+v", info)
	}
	s.out.mu.Lock()
	if s.out.waiting > 2*highMark {
		t.Errorf("%d bytes wait", s.out.waiting)
	}
	s.out.mu.Unlock()
	close(open)
	for i, d := range in.wait(t, 60) {
		if d.Offset != int64(i) {
			t.Errorf("%d: %+v", i, d)
		}
		m.Settle(kernel.Accept, 0, d.Offset, d.Offset)
	}
	m.Credit(-5)
	p.to("", "q", "last")
	m.Credit(6)
	in.wait(t, 61)
}

// TestPressure: publishes that the broker does not take wait at its node, in order, and
// nothing else does. The alarm comes and goes at the client's node, too.
func TestPressure(t *testing.T) {
	debug.FreeOSMemory()
	c := serve(t, open(t, func(c *broker.Config) { c.Limits.MemoryBytes = 1 << 30 })).connect(t)
	changes := make(chan bool, 10)
	c.WatchAlarms(func() { changes <- c.Alarms().Any() })
	c.declare("q")
	p := publishing(t, c)
	p.to("", "q", "0")
	p.settle()
	ballast := make([]byte, 1<<30)
	for !<-changes {
	}
	if now := c.Alarms(); !now.Memory.On || now.Memory.Reason == "" || now.Memory.Since.IsZero() || now.Disk.On {
		t.Errorf("%+v", now)
	}
	for i := range 20 { // as if the alarm was not known here yet
		p.to("", "q", fmt.Sprint(i+1))
	}
	if _, err := p.p.ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{Mandatory: true}, 100); kernel.CodeOf(err) != kernel.CodePressure {
		t.Error(err)
	}
	in := newInbox()
	m := c.join("q", kernel.MemberOptions{}, nil, in)
	m.Credit(100)
	in.wait(t, 1)
	m.Settle(kernel.Accept, 0, 0, 0)
	eventually(t, "the first is settled", func() bool { info, err := c.Queue("q"); return err == nil && info.Held == 0 })
	p.done.wait(t, 1)
	ballast[0]++ // until here
	ballast = nil
	debug.FreeOSMemory()
	for <-changes {
	}
	p.settle()
	for i, d := range in.wait(t, 21) {
		if string(d.Record.Value) != fmt.Sprint(i) {
			t.Errorf("%d: %s", i, d.Record.Value)
		}
	}
}

// TestLeavingUnderPressure: what waits when the client leaves is certainly not done.
func TestLeavingUnderPressure(t *testing.T) {
	c := serve(t, open(t, func(c *broker.Config) { c.Limits.MemoryBytes = 1 })).connect(t)
	c.declare("q")
	for !c.Alarms().Any() {
		eventually(t, "the alarm", func() bool { return c.Alarms().Any() })
	}
	p := publishing(t, c)
	for range 10 {
		p.to("", "q", "v")
	}
	c.Close()
	for token, err := range p.done.wait(t, 10) {
		if kernel.CodeOf(err) != kernel.CodeUnavailable {
			t.Errorf("%d: %v", token, err)
		}
	}
}

// TestWindow: publishes wait while too much is under way, and go on when the link ends.
func TestWindow(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t)
	c.declare("q")
	shut := make(chan struct{})
	n.near.gate.Store(&shut)
	p := publishing(t, c)
	done := make(chan error, 1)
	go func() {
		for i := uint64(1); ; i++ {
			if _, err := p.p.ToExchange("", "q", &kernel.Record{Value: make([]byte, 1<<20)}, kernel.PublishOptions{}, i); err != nil {
				p.n = i - 1
				done <- err
				return
			}
		}
	}()
	l := c.Link.(*link)
	eventually(t, "the window is full", func() bool { l.out.mu.Lock(); defer l.out.mu.Unlock(); return l.underway > window-2<<20 })
	l.out.mu.Lock()
	if l.underway > window {
		t.Errorf("%d bytes under way", l.underway)
	}
	l.out.mu.Unlock()
	n.near.Close()
	wantCode(t, <-done, kernel.CodeUnavailable)
	p.done.wait(t, int(p.n))
}
