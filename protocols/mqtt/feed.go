package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// feed is one subscription's way into a connection: the kernel's end of a
// membership (Consumer) or of a session-less subscription (LiveSubscriber).
// Fields below mu are guarded by sender.mu.
type feed struct {
	conn       *conn
	filter     string
	topic      string // what records without an address of their own are shown as
	qos        byte   // granted
	noLocal    bool
	asRetained bool
	identifier uint32

	member member // nil for a live feed
	credit int    // granted, not delivered
	hungry bool   // in a line of the window
	holds  bool   // listed in window.holders
	gone   bool   // unsubscribed, replaced or ended
	// reserved are bytes booked for the next Deliver; shut: there was no room for
	// more, and there is no credit until there is.
	reserved int
	shut     bool
	// overtaken are the retained messages published since the subscription; nil
	// once those of before are all sent.
	overtaken map[string]struct{}
}

func newFeed(c *conn, sub kernel.Subscription) *feed {
	f := &feed{
		conn: c, filter: sub.Filter, topic: sub.Filter, qos: sub.QoS, identifier: sub.Identifier,
		noLocal:    sub.Options&wire.OptionNoLocal != 0,
		asRetained: sub.Options&wire.OptionRetainAsPublished != 0,
	}
	if kernel.IsShare(sub.Filter) {
		if addr, _, err := kernel.ParseShare("", sub.Filter); err == nil {
			f.topic = addr.Topic
		}
	}
	return f
}

// counted reports whether deliveries to the feed's member need credit from the
// window.
func (f *feed) counted() bool { return f.member != nil && f.qos > 0 }

// Deliver implements kernel.Consumer.
func (f *feed) Deliver(batch []kernel.Delivery) {
	now := kernel.Millis()
	s := &f.conn.out
	s.mu.Lock()
	s.want.reserved -= f.reserved // the bytes come now
	f.reserved = 0
	for i := range batch {
		s.deliver(f, &batch[i], now)
	}
	if f.member != nil && !s.closed {
		for _, r := range s.win.recall(f, s.total.Over() && s.backlog() >= s.bound(lowMark)) {
			r.to.Credit(r.n)
		}
	}
	s.unlock()
}

// Ended implements kernel.Consumer. MQTT cannot end one subscription from the
// server's side, so the client is told by ending the connection.
func (f *feed) Ended(reason error) {
	code := wire.AdministrativeAction
	if kernel.CodeOf(reason) == kernel.CodeAccessRefused {
		code = wire.NotAuthorized
	}
	f.conn.end(code, "subscription "+f.filter+" ended: "+explain(reason), reason)
}

// Live implements kernel.LiveSubscriber.
func (f *feed) Live(m *kernel.LiveMessage, _ uint64) bool {
	if f.noLocal && m.Origin == f.conn.client.ID() {
		return true
	}
	s := &f.conn.out
	s.mu.Lock()
	defer s.unlock()
	if s.closed {
		return true
	}
	if f.overtaken != nil && isRetained(m.Record) {
		f.overtake(bytesOf(m.Name))
	}
	return s.live(f, m)
}

// Room implements kernel.LiveSubscriber.
func (f *feed) Room() <-chan struct{} {
	s := &f.conn.out
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room == nil {
		return roomNow
	}
	return s.room
}

var roomNow = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// activate gives the feed its member and lets it be granted credit.
func (f *feed) activate(m member) {
	if m == nil {
		return
	}
	s := &f.conn.out
	s.mu.Lock()
	f.member = m
	s.win.join(f)
	s.mu.Unlock()
}

// retire ends the feed's account; deliveries that are out stay acknowledgeable.
func (f *feed) retire() {
	s := &f.conn.out
	s.mu.Lock()
	if !f.gone {
		s.win.leave(f)
		f.gone = true
	}
	s.mu.Unlock()
}
