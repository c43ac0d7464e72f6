package edge

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// deaf is a host whose connections do not hear that it stops: it can be lost.
type deaf struct {
	Host
	mu   sync.Mutex
	ends []func(error)
}

// Connect implements Host.
func (d *deaf) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	d.mu.Lock()
	d.ends = append(d.ends, end)
	d.mu.Unlock()
	return d.Host.Connect(id, info, func(reason error) {
		if !again(reason) {
			end(reason)
		}
	})
}

// serveDeaf lets a new facade serve, as a host that can be lost.
func (w *world) serveDeaf() *deaf {
	w.t.Helper()
	b, err := w.node.Serve(soon(w.t))
	must(w.t, err)
	w.now = b
	d := &deaf{Host: Local(b)}
	w.Set(d)
	return d
}

// lose ends a facade without asking anybody, as a crash does.
func (w *world) lose(d *deaf) {
	w.t.Helper()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	must(w.t, w.now.Close(now))
	w.now = nil
	w.Set(nil)
	for _, end := range d.ends {
		end(kernel.Errorf(kernel.CodeUnknown, "", "", "the host is lost"))
	}
}

// phone is the front-end's end of a subscription: what it was handed out is in its hands
// until it is settled.
type phone struct {
	mu     sync.Mutex
	m      SessionMember
	hands  map[kernel.Place]string // by place: what it holds
	pins   map[kernel.Place]bool   // not to be held: they are pinned, or asked to be
	heard  []string
	pinned map[uint16]int
	taken  map[uint16]int
	lost   []kernel.Place
	wake   chan struct{}
}

func newPhone() *phone {
	return &phone{hands: map[kernel.Place]string{}, pins: map[kernel.Place]bool{}, pinned: map[uint16]int{}, taken: map[uint16]int{}, wake: make(chan struct{}, 1)}
}

func (p *phone) note() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Deliver implements kernel.Consumer.
func (p *phone) Deliver(batch []kernel.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range batch {
		p.hands[kernel.Place{Partition: d.Partition, Offset: d.Offset}] = string(d.Record.Value)
		p.heard = append(p.heard, string(d.Record.Value))
	}
	p.note()
}

// Ended implements kernel.Consumer.
func (p *phone) Ended(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, "ended: "+reason.Error())
	p.note()
}

// Live implements kernel.LiveSubscriber.
func (p *phone) Live(m *kernel.LiveMessage, _ uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, string(m.Record.Value))
	p.note()
	return true
}

// Room implements kernel.LiveSubscriber.
func (p *phone) Room() <-chan struct{} { c := make(chan struct{}); close(c); return c }

// Holding implements kernel.Holder.
func (p *phone) Holding() (places []kernel.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.hands {
		if !p.pins[at] {
			places = append(places, at)
		}
	}
	return places
}

// Lost implements kernel.Holder.
func (p *phone) Lost(places []kernel.Place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = append(p.lost, places...)
	p.note()
}

// Pinned implements kernel.Pinner.
func (p *phone) Pinned(numbers []uint16, err error) { p.count(p.pinned, numbers, err) }

// Taken implements kernel.Pinner.
func (p *phone) Taken(numbers []uint16, err error) { p.count(p.taken, numbers, err) }

func (p *phone) count(what map[uint16]int, numbers []uint16, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range numbers {
		if what[n]++; err != nil {
			p.heard = append(p.heard, "refused: "+err.Error())
		}
	}
	p.note()
}

// wait waits until something holds.
func (p *phone) wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		p.mu.Lock()
		ok, heard := holds(), slices.Clone(p.heard)
		p.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-p.wake:
		case <-limit:
			t.Fatalf("waited in vain until %s: heard %q", what, heard)
		}
	}
}

// hears wants all that it has heard to be this.
func (p *phone) hears(t testing.TB, want ...string) {
	t.Helper()
	p.wait(t, "it has heard enough", func() bool { return len(p.heard) >= len(want) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.heard, want) {
		t.Errorf("heard %q, want %q", p.heard, want)
	}
}

// place is where a message is.
func (p *phone) place(t testing.TB, value string) kernel.Place {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, v := range p.hands {
		if v == value {
			return at
		}
	}
	t.Fatalf("%s is not there", value)
	return kernel.Place{}
}

// settle accepts a message.
func (p *phone) settle(t testing.TB, value string) {
	at := p.place(t, value)
	p.mu.Lock()
	delete(p.hands, at)
	p.mu.Unlock()
	p.m.Settle(kernel.Accept, at.Partition, at.Offset, at.Offset)
}

// pin pins a message.
func (p *phone) pin(t testing.TB, value string, id kernel.PinID) {
	at := p.place(t, value)
	p.mu.Lock()
	p.pins[at] = true
	p.mu.Unlock()
	p.m.Pin(id, at.Partition, at.Offset)
}

func (w *world) session(c *Conn, a broker.Attaching, taken func()) (Session, bool) {
	w.t.Helper()
	s, present, err := c.AttachSession(soon(w.t), a, taken)
	must(w.t, err)
	return s, present
}

func (w *world) subscribe(s Session, filter string, qos byte) *phone {
	w.t.Helper()
	p := newPhone()
	spec := broker.SubscribeSpec{Subscription: kernel.Subscription{Filter: filter, QoS: qos}, To: p, Live: p}
	out := s.Subscribe(soon(w.t), []broker.SubscribeSpec{spec})
	must(w.t, out[0].Err)
	if p.m = out[0].Member; p.m != nil {
		p.m.Credit(100)
	}
	return p
}

// say publishes to a topic and waits for the outcomes.
func (w *world) say(c *Conn, topic string, values ...string) {
	w.t.Helper()
	out := newOutcomes()
	p := c.Publisher(out)
	defer p.Close()
	for i, v := range values {
		r := &kernel.Record{Key: []byte(topic), Value: []byte(v), Headers: []kernel.Header{{Key: kernel.HeaderQoS, Value: []byte("2")}}}
		for {
			_, err := p.ToTopic(topic, r, uint64(i))
			if kernel.CodeOf(err) == kernel.CodePressure {
				<-time.After(time.Millisecond)
				continue
			}
			must(w.t, err)
			break
		}
	}
	must(w.t, p.Settle(soon(w.t)))
}

// turns are the ways in which a host goes.
var turns = map[string]func(w *world, d *deaf) *deaf{
	"move": func(w *world, _ *deaf) *deaf {
		w.move()
		return nil
	},
	"crash": func(w *world, d *deaf) *deaf {
		w.lose(d)
		return w.serveDeaf()
	},
}

// eachTurn runs a test with a host that moves, and one that is lost.
func eachTurn(t *testing.T, test func(t *testing.T, w *world, turn func())) {
	for name, turn := range turns {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var d *deaf
			if name == "crash" {
				d = w.serveDeaf()
			} else {
				w.serve()
			}
			test(t, w, func() { d = turn(w, d) })
		})
	}
}

var kept = broker.Attaching{ClientID: "c", Expiry: time.Hour}

// TestSessionGoesOn: what the client holds when its host goes is not handed out again,
// and is settled at the next one, also if it was acknowledged while nobody served; what
// comes later follows, each once.
func TestSessionGoesOn(t *testing.T) {
	eachTurn(t, func(t *testing.T, w *world, turn func()) {
		c, pub := w.conn(), w.conn()
		s, present := w.session(c, kept, nil)
		if present {
			t.Error("present")
		}
		p := w.subscribe(s, "a/#", 1)
		w.say(pub, "a/b", "1", "2", "3", "4")
		p.hears(t, "1", "2", "3", "4")
		p.settle(t, "2")
		turn()
		p.settle(t, "1")
		w.say(pub, "a/b", "5")
		p.hears(t, "1", "2", "3", "4", "5")
		turn()
		p.settle(t, "4")
		p.settle(t, "5")
		w.say(pub, "a/b", "6")
		p.hears(t, "1", "2", "3", "4", "5", "6")
		p.settle(t, "6")
		s.Detach(time.Hour)
		c.Close()
		again, present := w.session(w.conn(), kept, nil)
		if !present {
			t.Error("not present")
		}
		q := newPhone()
		m, err := again.Attach(soon(t), broker.SubscribeSpec{Subscription: kernel.Subscription{Filter: "a/#", QoS: 1}, To: q, Live: q})
		must(t, err)
		m.Credit(100)
		w.say(pub, "a/b", "7")
		q.hears(t, "3", "7")
	})
}

// TestSessionWhileNobodyServes: what the client does then is done at the next host.
func TestSessionWhileNobodyServes(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c, pub := w.conn(), w.conn()
	s, _ := w.session(c, kept, nil)
	p := w.subscribe(s, "a", 2)
	w.say(pub, "a", "1", "2", "3")
	p.hears(t, "1", "2", "3")
	done := newOutcomes()
	q := c.Publisher(done)
	defer q.Close()
	_, err := q.ToTopicOnce(s, 7, "b", &kernel.Record{Value: []byte("once")}, 1)
	must(t, err)
	must(t, q.Settle(soon(t)))
	w.rest()
	if _, err := q.ToTopic("a", &kernel.Record{Value: []byte("x")}, 2); kernel.CodeOf(err) != kernel.CodePressure {
		t.Errorf("published while nobody serves: %v", err)
	}
	p.settle(t, "1")
	p.pin(t, "2", kernel.PinID{Number: 2, Count: 1})
	numbered := newOutcomes()
	must(t, s.PinNumber(kernel.PinID{Number: 9, Count: 2}, numbered))
	released := make(chan error, 1)
	s.Release([]uint16{7}, func(unknown []uint16, err error) {
		if len(unknown) > 0 {
			t.Errorf("unknown: %v", unknown)
		}
		released <- err
	})
	if _, err := p.m.Read(kernel.Place{}, nil); kernel.CodeOf(err) != kernel.CodeUnavailable {
		t.Errorf("read: %v", err)
	}
	w.serve()
	must(t, <-released)
	p.wait(t, "it is pinned", func() bool { return p.pinned[2] == 1 })
	at := p.place(t, "2")
	p.m.Take(kernel.PinID{Number: 2, Count: 1}, at.Partition, at.Offset)
	p.wait(t, "it is taken", func() bool { return p.taken[2] == 1 })
	w.pins(s, 2)
	w.rest()
	p.m.Unpin(kernel.PinID{Number: 2, Count: 1})
	s.Unpin(kernel.PinID{Number: 9, Count: 2})
	w.serve()
	w.pins(s, 0)
	p.hears(t, "1", "2", "3")
}

// pins waits until a session has so many pins.
func (w *world) pins(s Session, n int) {
	w.t.Helper()
	for ctx := soon(w.t); ; {
		list, err := s.Pins(ctx)
		must(w.t, err)
		if len(list) == n {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("pins %+v", list)
		}
	}
}
