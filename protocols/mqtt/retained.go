package mqtt

import (
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

const (
	// retainedPage is how many retained messages are read at a time, and
	// retainedBytes from how many bytes on no more are.
	retainedPage  = 128
	retainedBytes = 64 << 10
	// maxOvertaken bounds the names of a stream whose messages were replaced while
	// it ran.
	maxOvertaken = 10_000
)

// stream is what is retained under a new subscription, on its way to the client.
type stream struct {
	parent *feed // of the subscription
	// feed stands for the messages in the window: nothing is settled for them.
	feed   *feed
	cursor cursor
	page   []kernel.Retained // read, from at on not sent
	at     int
	more   bool
	pins   []kernel.PinID // of QoS 2 deliveries, to be noted when sender.mu is free
	// reserved are the bytes booked for the large ones in page.
	reserved int
}

// streams are those of a connection, one after the other. Whoever has made room,
// the reader or the writer, sends some more; nobody waits.
type streams struct {
	some    atomic.Bool // there are any: most connections have none
	working sync.Mutex  // held by who sends
	again   atomic.Bool // somebody wanted to send meanwhile

	mu   sync.Mutex
	list []*stream
}

// wantsRetained reports whether a SUBSCRIBE asks for retained messages (3.3.1.3):
// those of shared subscriptions never do.
func wantsRetained(sub *kernel.Subscription, existed bool) bool {
	if kernel.IsShare(sub.Filter) {
		return false
	}
	switch sub.Options & wire.OptionRetainHandling >> 4 {
	case 0:
		return true
	case 1:
		return !existed
	default:
		return false
	}
}

// expectRetained notes, before a subscription is fed, which retained messages are
// replaced while those of before are on their way.
func (f *feed) expectRetained(sub *kernel.Subscription) {
	if wantsRetained(sub, false) {
		f.overtaken = make(map[string]struct{})
	}
}

// overtake notes that a retained message has been published, which came to the
// client, or will, as any other: what was retained before is outdated. mu is held.
func (f *feed) overtake(topic []byte) {
	if len(f.overtaken) < maxOvertaken {
		f.overtaken[string(topic)] = struct{}{}
	}
}

// retained begins to send what is retained under a subscription.
func (c *conn) retained(f *feed, sub *kernel.Subscription, existed bool) error {
	if !wantsRetained(sub, existed) {
		f.settleOvertaken()
		return nil
	}
	cur, err := c.session.Retained(c.ctx, sub.Filter)
	if err != nil {
		return err
	}
	own := &feed{
		conn: c, filter: f.filter, topic: f.topic, qos: f.qos, noLocal: f.noLocal, identifier: f.identifier,
	}
	q := &c.streams
	q.mu.Lock()
	q.list = append(q.list, &stream{parent: f, feed: own, cursor: cur, more: true})
	q.some.Store(true)
	q.mu.Unlock()
	return nil
}

// isRetained reports whether a record was published to be retained.
func isRetained(r *kernel.Record) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == kernel.HeaderRetain {
			return true
		}
	}
	return false
}

// end lets go of a stream that has ended.
func (st *stream) end() {
	s := &st.parent.conn.out
	s.mu.Lock()
	s.paged(st)
	st.parent.overtaken = nil
	s.unlock()
}

func (f *feed) settleOvertaken() {
	s := &f.conn.out
	s.mu.Lock()
	f.overtaken = nil
	s.mu.Unlock()
}

// streamOn sends retained messages, as far as the buffer and the window allow.
func (c *conn) streamOn() {
	q := &c.streams
	for q.some.Load() {
		q.again.Store(true)
		if !q.working.TryLock() {
			return // who works sees again
		}
		q.again.Store(false)
		c.streamAll()
		q.working.Unlock()
		if !q.again.Load() {
			return
		}
	}
}

func (c *conn) streamAll() {
	q := &c.streams
	for {
		q.mu.Lock()
		if len(q.list) == 0 {
			q.list = nil
			q.some.Store(false)
			q.mu.Unlock()
			return
		}
		st := q.list[0]
		q.mu.Unlock()
		if !c.streamSome(st) {
			return
		}
		st.end()
		q.mu.Lock()
		q.list[0] = nil
		q.list = q.list[1:]
		q.mu.Unlock()
	}
}

// streamSome sends messages of one stream and reports whether it has ended.
func (c *conn) streamSome(st *stream) (ended bool) {
	s := &c.out
	for {
		if st.at == len(st.page) {
			if !st.more {
				return true
			}
			if ended, room := s.streamRoom(st); ended || !room {
				return ended
			}
			var err error
			refused := false
			st.page, st.more, err = st.cursor.Next(retainedPage, retainedBytes, func(bytes int) bool {
				refused = !s.admitPage(st, bytes)
				return !refused
			})
			st.at = 0
			if kernel.CodeOf(err) == kernel.CodeUnavailable { // nobody serves
				s.mu.Lock()
				s.look()
				s.unlock()
				return false
			}
			if err == nil && refused && len(st.page) == 0 {
				return false
			}
			if err != nil {
				c.end(wire.UnspecifiedError, "retained messages cannot be read: "+explain(err), err)
				return true
			}
			continue
		}
		now := kernel.Millis()
		s.mu.Lock()
		room := true
		for st.at < len(st.page) && room && !s.closed && !st.parent.gone {
			if room = s.backlog() < s.bound(lowMark) && s.retained(st, &st.page[st.at], now); room {
				st.page[st.at] = kernel.Retained{}
				st.at++
			}
		}
		ended := s.closed || st.parent.gone
		if st.at == len(st.page) {
			s.paged(st)
		}
		s.unlock()
		if err := c.pinNumbers(st); err != nil {
			c.end(reasonOf(err), "a delivery could not be noted", err)
			return true
		}
		if ended || !room {
			return ended
		}
	}
}

// streamRoom reports whether a stream has ended, and whether there is room to go on.
func (s *sender) streamRoom(st *stream) (ended, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || st.parent.gone, s.backlog() < s.bound(lowMark) && (st.feed.qos == 0 || s.win.open())
}

// retained writes one retained message, with RETAIN set (3.3.1-8). It returns false
// if it has to wait for the window. mu is held.
func (s *sender) retained(st *stream, r *kernel.Retained, now int64) bool {
	if _, outdated := st.parent.overtaken[r.Name]; outdated {
		return true
	}
	m, f := &s.msg, st.feed
	m.fromRecord(&r.Record, r.Name, s.version == wire.V5)
	if m.expired(now) || f.noLocal && len(m.origin) > 0 && string(m.origin) == s.clientID {
		return true
	}
	fr := s.frameOf(f, m)
	fr.Retain = true
	switch {
	case s.tooLarge(fr.Size()):
		s.dropped.Add(1)
		return true
	case fr.QoS == 0:
	case s.win.open():
		fr.ID = s.win.take(f, fr.QoS, 0, 0)
		if s.pins {
			s.win.keep(fr.ID, r)
		}
		if s.pins && fr.QoS == 2 {
			s.holdBack(fr.ID, encode(&fr, m), m.expires)
			st.pins = append(st.pins, s.win.at(fr.ID).pinID())
			return true
		}
	default:
		return false
	}
	s.append(&fr, m, now)
	return true
}
