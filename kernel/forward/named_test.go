package forward

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// matching are outcomes that hear of publishes without target.
type matching struct {
	*outcomes
	mu   sync.Mutex
	none []uint64
}

func (m *matching) Unmatched(token uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outcomes.mu.Lock()
	defer m.outcomes.mu.Unlock()
	if _, told := m.got[token]; told {
		panic("told after the outcome")
	}
	m.none = append(m.none, token)
}

// naming publishes to topics, with tokens from 1.
type naming struct {
	t    testing.TB
	p    edge.SessionPublisher
	done *matching
	n    uint64
}

func topics(t testing.TB, c *client) *naming {
	done := &matching{outcomes: newOutcomes()}
	return &naming{t: t, p: c.Publisher(done).(edge.SessionPublisher), done: done}
}

func message(name, value string) *kernel.Record {
	return &kernel.Record{Key: []byte(name), Value: []byte(value), Headers: []kernel.Header{{Key: kernel.HeaderQoS, Value: []byte("1")}}}
}

func (p *naming) once(s edge.Session, number uint16, name, value string) {
	p.t.Helper()
	p.n++
	if n, err := p.p.ToTopicOnce(s, number, name, message(name, value), p.n); n != 1 || err != nil {
		p.t.Fatal(n, err)
	}
}

// wait waits for all outcomes, and returns the errors.
func (p *naming) wait() (errs []error) {
	p.t.Helper()
	got := p.done.wait(p.t, int(p.n))
	for i := uint64(1); i <= p.n; i++ {
		errs = append(errs, got[i])
	}
	return errs
}

// TestMatcher: that a publish had no target is told before its outcome, and only of those.
func TestMatcher(t *testing.T) {
	c := serve(t, open(t)).connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	s.one(t, "stored", 1, to)
	s.one(t, "live", 0, to)
	p := topics(t, c)
	for i, name := range []string{"stored", "nobody", "live", "nobody", "nobody", "stored"} {
		if n, err := p.p.ToTopic(name, message(name, "v"), uint64(i+1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	p.n = 6
	if n, err := p.p.Retain("kept", message("kept", "v"), 7); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	p.n++
	p.once(s, 1, "nobody", "v")
	p.wait()
	p.once(s, 1, "nobody", "v")
	p.once(s, 2, "stored", "v")
	for i, err := range p.wait() {
		if err != nil {
			t.Error(i+1, err)
		}
	}
	slices.Sort(p.done.none)
	if !slices.Equal(p.done.none, []uint64{2, 4, 5, 7, 8, 9}) {
		t.Error(p.done.none)
	}
}

// TestOnce: what is published again under a number, after the stream has broken as well,
// is stored once, until the number is released.
func TestOnce(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	s.one(t, "a", 1, to).Credit(100)
	p := topics(t, c)
	p.once(s, 1, "a", "1")
	p.wait()
	p.once(s, 1, "a", "1 again")
	p.once(s, 2, "a", "2")
	for _, err := range p.wait() {
		if err != nil {
			t.Error(err)
		}
	}
	to.wait(t, 2)
	n.near.Close()
	<-c.ended
	_, err := p.p.ToTopicOnce(s, 3, "a", message("a", "3"), 9)
	wantCode(t, err, kernel.CodeUnavailable)

	c = n.connect(t, tokened("1"))
	_, err = c.Publisher(nil).(edge.SessionPublisher).ToTopicOnce(s, 3, "a", message("a", "3"), 9)
	wantCode(t, err, kernel.CodeInternal)
	s, present := c.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour, Epoch: s.Epoch()}, nil)
	if !present {
		t.Fatal("the session has gone")
	}
	again := newSubscriber()
	m, err := s.Attach(soon(t), spec("a", 1, 1, again))
	if err != nil {
		t.Fatal(err)
	}
	p = topics(t, c)
	p.once(s, 2, "a", "2 again")
	p.wait()
	release := func(want []uint16, numbers ...uint16) {
		t.Helper()
		done := make(chan error, 1)
		var unknown []uint16
		s.Release(numbers, func(list []uint16, err error) { unknown = list; done <- err })
		if err := <-done; err != nil || !slices.Equal(unknown, want) {
			t.Errorf("unknown %d, %v", unknown, err)
		}
	}
	release([]uint16{7}, 1, 7, 2)
	release([]uint16{1}, 1)
	p.once(s, 2, "a", "new")
	p.n++
	if _, err := p.p.RetainOnce(s, 1, "a", message("a", "retained"), p.n); err != nil {
		t.Fatal(err)
	}
	p.wait()
	m.Credit(100)
	var got []string
	for _, d := range again.wait(t, 4) {
		got = append(got, string(d.Record.Value))
	}
	if fmt.Sprint(got) != "[1 2 new retained]" {
		t.Error(got)
	}
	s.Detach(time.Hour)
	_, err = p.p.ToTopicOnce(s, 3, "a", message("a", "3"), 9)
	wantCode(t, err, kernel.CodeFenced)
	s.Release([]uint16{1}, func(_ []uint16, err error) { wantCode(t, err, kernel.CodeFenced) })
}

// TestIdentified: a message with an id is stored once.
func TestIdentified(t *testing.T) {
	c := serve(t, open(t)).connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	s.one(t, "a", 1, to).Credit(100)
	p := topics(t, c)
	for range 3 {
		p.n++
		_, err := p.p.Identified(kernel.NewDedupID([]byte("id")), func() (int, error) {
			return p.p.ToTopic("a", message("a", "v"), p.n)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	p.once(s, 1, "a", "without")
	p.wait()
	to.wait(t, 2)
}

// TestRefusedPublish: a refusal comes as the outcome of that publish alone.
func TestRefusedPublish(t *testing.T) {
	c := serve(t, open(t)).connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	s.one(t, "a", 1, to).Credit(100)
	p := topics(t, c)
	for _, name := range []string{"a", "a/#", "a"} {
		p.n++
		if _, err := p.p.Retain(name, message(name, "v"), p.n); err != nil {
			t.Fatal(err)
		}
	}
	errs := p.wait()
	if errs[0] != nil || errs[2] != nil {
		t.Error(errs)
	}
	wantCode(t, errs[1], kernel.CodeInvalidName)
	to.wait(t, 2)
}

// TestTopicsUnderPressure: publishes to topics that the broker does not take wait at its
// node with all others, in order; those whose client knows of the alarm are refused, and
// hold up nobody.
func TestTopicsUnderPressure(t *testing.T) {
	debug.FreeOSMemory()
	n := serve(t, open(t, func(c *broker.Config) { c.Limits.MemoryBytes = 1 << 30 }))
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	to := newSubscriber()
	s.one(t, "a", 1, to).Credit(100)
	changes := make(chan bool, 10)
	c.WatchAlarms(func() { changes <- c.Alarms().Any() })
	p := topics(t, c)
	p.once(s, 1, "a", "0")
	p.wait()
	ballast := make([]byte, 1<<30)
	for !<-changes {
	}
	l := c.link()
	known := l.alarms.Load()
	l.alarms.Store(&broker.Alarms{}) // as if the alarm was not known here yet
	for i := range 10 {
		p.once(s, uint16(10+i), "a", fmt.Sprint(i+1))
	}
	eventually(t, "they are held", func() bool {
		h := &n.only().pressure
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.list) == 10
	})
	l.alarms.Store(known)
	q := topics(t, c)
	q.n++
	if _, err := q.p.ToTopic("a", message("a", "refused"), q.n); err != nil {
		t.Fatal(err)
	}
	wantCode(t, q.wait()[0], kernel.CodePressure)
	ballast[0]++ // until here
	ballast = nil
	debug.FreeOSMemory()
	for <-changes {
	}
	p.wait()
	for i, d := range to.wait(t, 11) {
		if string(d.Record.Value) != fmt.Sprint(i) {
			t.Errorf("%d: %s", i, d.Record.Value)
		}
	}
}

// TestFullWindowUnderPressure: who publishes to topics does not wait for the end of an
// alarm.
func TestFullWindowUnderPressure(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	s.one(t, "a", 1, newSubscriber())
	shut := make(chan struct{})
	n.near.gate.Store(&shut)
	p := topics(t, c)
	large := kernel.Record{Value: make([]byte, 900<<10)}
	l := c.link()
	for l.admitted(1 << 20) {
		p.n++
		if _, err := p.p.ToTopic("a", &large, p.n); err != nil {
			t.Fatal(err)
		}
	}
	refused := make(chan error)
	go func() {
		_, err := p.p.ToTopic("a", &large, 100)
		refused <- err
	}()
	l.out.mu.Lock()
	l.alarms.Store(&broker.Alarms{Disk: broker.Alarm{On: true}})
	l.changed.Broadcast()
	l.out.mu.Unlock()
	wantCode(t, <-refused, kernel.CodePressure)
	close(shut)
	p.wait()
}

// admitted says whether so many bytes more fit the window.
func (l *link) admitted(n int) bool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	return l.underway+n <= window
}
