package broker

import (
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/storage/record"
)

// feed hands a message to live subscribers, on the publisher's goroutine. The
// publisher waits for those with a full buffer that asked for more than at most
// once, as long as it has patience; who is still full then is slow, and nobody
// waits for it.
func (c *Conn) feed(list []*route.Live, m *kernel.LiveMessage) {
	for _, l := range list {
		if l.Feed.Slow.On() {
			if !l.Feed.OfferSlow(m, l.Handle) {
				l.Feed.Drop()
			}
			continue
		}
		if l.Feed.Offer(m, l.Handle) {
			continue
		}
		if l.QoS == 0 || atMostOnce(m.Record) || !c.feedFull(l, m) {
			l.Feed.Drop()
		}
	}
}

// feedFull waits for room at a subscriber and hands it the message. It reports
// false if the publisher has no patience left, or if there is never enough room.
func (c *Conn) feedFull(l *route.Live, m *kernel.LiveMessage) bool {
	begin := time.Now()
	left := c.pauses.left(begin)
	if left < freeWait {
		return false
	}
	limit := time.NewTimer(left)
	defer limit.Stop()
	for range roomTries {
		select {
		case <-l.Feed.To.Room():
			if !l.Feed.Offer(m, l.Handle) {
				continue
			}
			if now := time.Now(); now.Sub(begin) > freeWait {
				c.pauses.spend(now.Sub(begin), now)
			}
			return true
		case now := <-limit.C:
			c.pauses.spend(left, now)
			l.Feed.Slow.Set()
			return false
		case <-c.stop:
			return false
		}
	}
	return false
}

// roomTries is how often a subscriber may say that it has room and then not
// take a message.
const roomTries = 100

// pauses are how long a publisher may still be held up by subscribers: roomWait
// in all, which comes back over roomRest. The zero value is all of it. Safe for
// concurrent use.
type pauses struct {
	mu    sync.Mutex
	spent time.Duration
	at    time.Time // when spent was that
}

// left returns how long it may wait now.
func (p *pauses) left(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent = max(0, p.spent-now.Sub(p.at)/(roomRest/roomWait))
	p.at = now
	return roomWait - p.spent
}

// spend notes that it has waited until now; nothing came back meanwhile.
func (p *pauses) spend(d time.Duration, now time.Time) {
	p.mu.Lock()
	p.spent, p.at = p.spent+d, now
	p.mu.Unlock()
}

// atMostOnce reports whether a message was published with the lowest delivery
// guarantee.
func atMostOnce(r *kernel.Record) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == kernel.HeaderQoS {
			return string(r.Headers[i].Value) == "0"
		}
	}
	return false
}

// decompressor opens the batches of log producers for live subscribers.
var decompressor = &record.Decompressor{}

// feedBatch hands the records of a batch to the live subscriptions to its
// topic.
func (c *Conn) feedBatch(list []*route.Live, name string, batch []byte) {
	var it record.Iter
	if err := it.Reset(batch, decompressor); err != nil {
		c.b.log.Warn().Err(err).Str("topic", name).Msg("a batch could not be opened for live subscribers")
		return
	}
	for it.Next() {
		if it.View().IsControl() {
			continue
		}
		r := it.View().Record()
		m := kernel.LiveMessage{Name: name, Record: &r, Origin: c.id}
		c.feed(list, &m)
	}
}
