package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
)

// TestRefusedIsCounted: what an adapter counts without a Conn shows with the rest.
func TestRefusedIsCounted(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	b.Counters(c.about.Protocol).Refused.Add(1)
	if n := b.Overview().Protocols[c.about.Protocol]; n != c.Counters() || n.Refused.Load() != 1 {
		t.Errorf("%+v", n)
	}
}

// slowFeed is what feed sees of a subscriber.
func slowFeed(in *inbox) *route.Live {
	n := &Counters{}
	return &route.Live{QoS: 1, Feed: &route.Feed{To: in, Slow: new(route.Slow), Out: &n.Out, OutBytes: &n.OutBytes, Dropped: &n.Dropped}}
}

// fullInbox is one with room for max messages.
func fullInbox(max int) *inbox {
	in := newInbox()
	in.max, in.room = max, make(chan struct{})
	return in
}

// drain empties an inbox and lets whoever waits for that go on.
func (in *inbox) drain() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.values = nil
	close(in.room)
	in.room = make(chan struct{})
}

// feeder publishes to subscribers and says how long that took.
func feeder(c *Conn, to ...*route.Live) func(headers ...kernel.Header) time.Duration {
	return func(headers ...kernel.Header) time.Duration {
		begin := time.Now()
		c.feed(to, &kernel.LiveMessage{Record: &kernel.Record{Headers: headers}})
		return time.Since(begin)
	}
}

func TestSlowLiveSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{stop: make(chan struct{})}
		in := fullInbox(1)
		l := slowFeed(in)
		offer := feeder(c, l)
		if d := offer(); d != 0 {
			t.Errorf("waited %v with room", d)
		}
		if d := offer(kernel.Header{Key: kernel.HeaderQoS, Value: []byte("0")}); d != 0 || l.Feed.Slow.On() {
			t.Errorf("waited %v for an at-most-once message", d)
		}
		go func() { // it drains while the publisher waits
			time.Sleep(time.Second)
			in.drain()
		}()
		if d := offer(); d != time.Second || l.Feed.Slow.On() {
			t.Errorf("waited %v", d)
		}
		if d := offer(); d != roomWait-time.Second || !l.Feed.Slow.On() {
			t.Errorf("waited %v, in all more or less than %v", d, roomWait)
		}
		time.Sleep(roomRest)
		if d := offer(); d != 0 {
			t.Errorf("waited %v for a slow one", d)
		}
		if n := l.Feed.Dropped.Load(); n != 3 {
			t.Errorf("dropped %d", n)
		}
	})
}

// TestSlowStaysSlow: who reads a little now and then gets that much, and holds
// up nobody; who keeps up for a while is waited for again.
func TestSlowStaysSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{stop: make(chan struct{})}
		in := fullInbox(2)
		l := slowFeed(in)
		offer := feeder(c, l)
		l.Feed.Slow.Set()
		for range 20 {
			for range 4 {
				if d := offer(); d != 0 {
					t.Fatalf("waited %v", d)
				}
			}
			time.Sleep(time.Second)
			in.drain()
		}
		if n := l.Feed.Dropped.Load(); n != 40 || !l.Feed.Slow.On() {
			t.Errorf("dropped %d, slow %v", n, l.Feed.Slow.On())
		}
		for range 12 {
			offer()
			in.drain()
			time.Sleep(time.Second)
		}
		if n := l.Feed.Dropped.Load(); n != 40 || l.Feed.Slow.On() {
			t.Errorf("dropped %d, slow %v after it kept up", n, l.Feed.Slow.On())
		}
	})
}

// TestPublisherPatience: many subscribers that stall, one after the other and
// again and again, hold up a publisher for two seconds in all; one that is only
// slower than the publisher does not use them up.
func TestPublisherPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{stop: make(chan struct{})}
		var stalled []*route.Live
		for range 20 {
			stalled = append(stalled, slowFeed(fullInbox(0)))
		}
		offer := feeder(c, stalled...)
		var waited time.Duration
		for range 100 {
			waited += offer()
		}
		if waited != roomWait {
			t.Errorf("20 stalled subscribers held up the publisher for %v", waited)
		}
		time.Sleep(roomRest / 2)
		if d := offer(); d != roomWait/2 {
			t.Errorf("after %v of rest it waited %v", roomRest/2, d)
		}

		other := &Conn{stop: make(chan struct{})}
		in := fullInbox(1)
		steady := slowFeed(in)
		offer = feeder(other, steady)
		stop := make(chan struct{})
		go func() {
			for tick := time.Tick(freeWait / 2); ; in.drain() {
				select {
				case <-tick:
				case <-stop:
					return
				}
			}
		}()
		for range 200 {
			offer()
		}
		close(stop)
		if n := steady.Feed.Dropped.Load(); n != 0 || steady.Feed.Slow.On() {
			t.Errorf("dropped %d of what a steady subscriber would have taken, slow %v", n, steady.Feed.Slow.On())
		}
	})
}
