package forward

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// The filters of a device, and the topics that they match: of QoS 1 and 2.
var wfilters = []kernel.Subscription{{Filter: "one/#", QoS: 1}, {Filter: "two/#", QoS: 2}}

// deviceWindow is how many deliveries of a filter a device has under way.
const deviceWindow = 8

// wdevice is a client with a session that lasts, together with the front-ends that it
// is connected to, one after the other.
type wdevice struct {
	*wclient
	now    *wsession   // the connection it has
	past   []*wsession // those that were taken over
	parted bool        // it needs another one
	sent   uint64      // attempts to publish
	open   *wup        // the QoS 2 publish that is not at its end; nil = none

	mu    sync.Mutex
	count uint64              // of pins
	rec   map[uint16]string   // QoS 2: numbers that are not released, and what came under them
	times map[string]int      // QoS 2: how often it has had a message
	one   map[string]bool     // QoS 1: what it has had
	names map[wdplace]string  // what is where
	wills map[string]willFate // by text
}

// wdplace is a place of a filter.
type wdplace struct {
	filter string
	kernel.Place
}

// wup is a QoS 2 publish on its way up.
type wup struct {
	number uint16
	m      *wmessage
}

// willFate is what is to become of a will.
type willFate int

const (
	willMay  willFate = iota // its connection was taken over, or it is not known whether it was set
	willMust                 // its client has died
	willNot                  // its client has said farewell, or is there
)

// wsession is a connection of a device with its session: the front-end.
type wsession struct {
	d     *wdevice
	id    string // of the connection
	conn  *edge.Conn
	s     edge.Session
	wake  chan struct{}
	feeds map[string]*wfeed

	mu      sync.Mutex // before the device's
	taken   bool       // another connection has the session, or wants it
	past    bool       // the device has another one
	closing sync.WaitGroup
	next    uint16
	slots   map[uint16]*wslot // QoS 2, by number
}

// wslot is a delivery with QoS 2 that is under way.
type wslot struct {
	id    kernel.PinID
	f     *wfeed
	at    kernel.Place
	stage wstage
}

type wstage int

const (
	sPinning wstage = iota
	sSent
	sTaking
	sTaken
)

// wfeed is the front-end's end of a subscription.
type wfeed struct {
	s      *wsession
	filter string
	qos    byte
	m      edge.SessionMember
	held   []kernel.Place // QoS 1: not acknowledged; guarded by s.mu
}

// devices is the life of a device.
func (w *world) devices(name string, ready func()) {
	w.client(name, func(c *wclient) {
		d := &wdevice{
			wclient: c, rec: make(map[uint16]string), times: make(map[string]int), one: make(map[string]bool),
			names: make(map[wdplace]string), wills: make(map[string]willFate),
		}
		w.mu.Lock()
		w.things = append(w.things, d)
		w.mu.Unlock()
		first := true
		for first || c.going() {
			if !d.attach(first) {
				return
			}
			if first {
				ready()
			}
			first = false
			for c.going() && c.rnd.IntN(60) > 0 && !d.now.isTaken() {
				d.turn()
				c.pause(20 * time.Millisecond)
			}
			if c.going() {
				d.part()
			}
		}
		d.last()
	})
}

// attach connects at an edge, takes the session, and goes on with what is under way.
func (d *wdevice) attach(first bool) bool {
	before := d.now
	if before != nil {
		before.mu.Lock()
		before.past = true
		before.mu.Unlock()
	}
	d.connect(-1)
	s := &wsession{d: d, id: d.id, conn: d.conn, wake: make(chan struct{}, 1), feeds: make(map[string]*wfeed), slots: make(map[uint16]*wslot)}
	d.does("attaches its session")
	in, present, err := d.conn.AttachSession(context.Background(), broker.Attaching{ClientID: d.name, Expiry: time.Hour}, s.take)
	if !d.must(err) {
		return false
	}
	s.s, d.now, d.parted = in, s, false
	if present == first {
		d.w.truth.Failf("%s: the session is there: %v, the first time: %v", d.id, present, first)
		return false
	}
	if before != nil && slices.Contains(d.past, before) {
		before.denied()
	}
	d.does("sets its will")
	d.setFate(s.id, willMay)
	will := &kernel.Will{Topic: "wills/" + d.name, Record: kernel.Record{Value: []byte(s.id)}}
	if !d.must(in.SetWill(context.Background(), will)) {
		return false
	}
	d.setFate(s.id, willNot)
	if first {
		return s.subscribe()
	}
	return s.resume() && d.repeat()
}

func (d *wdevice) setFate(text string, f willFate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wills[text] = f
}

// take is what a front-end does whose session another connection wants.
func (s *wsession) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken {
		s.d.w.truth.Failf("%s is told twice that it is taken over", s.id)
	}
	s.taken = true
	if !s.past {
		s.d.w.truth.Failf("%s is taken over by nobody", s.id)
	}
	s.closing.Go(func() {
		if s.s != nil {
			s.s.Detach(time.Hour)
		}
		s.conn.Close()
	})
}

func (s *wsession) isTaken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// denied looks whether a connection knows that its session is another's.
func (s *wsession) denied() {
	s.d.does("looks what its last connection may still do")
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := s.s.Pins(ctx); err == nil {
		s.d.w.truth.Failf("%s has its session still, and so has %s", s.id, s.d.id)
	}
}

// spec is what the session is asked for.
func (f *wfeed) spec() broker.SubscribeSpec {
	return broker.SubscribeSpec{Subscription: kernel.Subscription{Filter: f.filter, QoS: f.qos}, To: f, Live: f}
}

func (s *wsession) feed(sub kernel.Subscription) *wfeed {
	f := &wfeed{s: s, filter: sub.Filter, qos: sub.QoS}
	s.feeds[sub.Filter] = f
	return f
}

// subscribe is for a session that is new.
func (s *wsession) subscribe() bool {
	s.d.does("subscribes")
	var specs []broker.SubscribeSpec
	for _, sub := range wfilters {
		specs = append(specs, s.feed(sub).spec())
	}
	for i, out := range s.s.Subscribe(context.Background(), specs) {
		if !s.d.must(out.Err) {
			return false
		}
		s.open(s.feeds[wfilters[i].Filter], out.Member)
	}
	return true
}

func (s *wsession) open(f *wfeed, m edge.SessionMember) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.m = m
	under := 0
	for _, e := range s.slots {
		if e.f == f {
			under++
		}
	}
	m.Credit(deviceWindow - under)
}

// resume goes on with what the last connection has left.
func (s *wsession) resume() bool {
	s.d.does("resumes its session")
	pins, err := s.s.Pins(context.Background())
	if !s.d.must(err) {
		return false
	}
	members := make(map[string]edge.SessionMember)
	for _, sub := range wfilters {
		f := s.feed(sub)
		m, err := s.s.Attach(context.Background(), f.spec())
		if !s.d.must(err) {
			return false
		}
		members[sub.Filter] = m
	}
	s.mu.Lock()
	for _, p := range pins {
		e := &wslot{id: p.PinID, f: s.feeds[p.Filter], at: kernel.Place{Partition: p.Partition, Offset: p.Offset}, stage: sSent}
		if p.Taken {
			e.stage = sTaken
		}
		if e.f == nil {
			s.d.w.truth.Failf("%s: pin %d is of no subscription", s.id, p.Number)
			s.mu.Unlock()
			return false
		}
		e.f.m = members[p.Filter]
		s.slots[p.Number] = e
		if e.stage == sSent {
			s.d.gets(e)
		}
	}
	s.mu.Unlock()
	for filter, m := range members {
		s.open(s.feeds[filter], m)
	}
	return true
}

func (s *wsession) note() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// part ends a connection, in one of the ways in which they end.
func (d *wdevice) part() {
	s := d.now
	d.parted = true
	switch d.rnd.IntN(4) {
	case 0: // farewell
		d.does("says farewell")
		if err := s.s.DropWill(); !d.must(err) {
			return
		}
		d.w.truth.answers(s.id)
		s.s.Detach(time.Hour)
		d.close()
	case 1: // death
		d.does("dies")
		d.setFate(s.id, willMust)
		d.close()
		d.w.truth.count("died")
	default: // another connection takes over
		d.setFate(s.id, willMay)
		d.w.truth.uncertain(s.id)
		d.w.truth.count("takeovers")
		d.past = append(d.past, s)
	}
}

// last ends the device in good order, when all is done.
func (d *wdevice) last() {
	if d.parted && !d.attach(false) {
		return
	}
	s := d.now
	d.does("comes to its end")
	d.w.talkers.Wait()
	d.w.settle(func() bool { return d.w.truth.failed() || d.done() }, func() { d.turn() })
	if d.must(s.s.DropWill()) {
		d.w.truth.answers(s.id)
		s.s.Detach(time.Hour)
	}
	d.close()
	for _, s := range d.past {
		d.w.settle(func() bool { return d.w.truth.failed() || s.isTaken() }, func() {})
		if !s.isTaken() {
			d.w.truth.Failf("%s was never told that it is taken over", s.id)
			s.conn.Close()
		}
		s.closing.Wait()
	}
}

var (
	_ kernel.Pinner         = (*wfeed)(nil)
	_ kernel.Holder         = (*wfeed)(nil)
	_ kernel.LiveSubscriber = (*wfeed)(nil)
)
