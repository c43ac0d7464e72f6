package broker

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/storage/record"
)

// feed hands a message to live subscribers, on the publisher's goroutine. The
// publisher waits for those with a full buffer that asked for more than at most
// once, in all roomWait; whoever is still full then is slow: its messages are
// dropped at once until it has drained.
func (c *Conn) feed(list []*route.Live, m *kernel.LiveMessage) {
	var limit *time.Timer
	for _, l := range list {
		if l.Feed.Slow.Load() && !l.Feed.Drained() {
			l.Feed.Drop()
			continue
		}
		if l.Feed.Offer(m, l.Handle) {
			continue
		}
		if l.QoS == 0 || atMostOnce(m.Record) {
			l.Feed.Drop()
			continue
		}
		if limit == nil {
			limit = time.NewTimer(roomWait)
			defer limit.Stop()
		}
		if !c.feedFull(l, m, limit) {
			l.Feed.Drop()
		}
	}
}

// feedFull waits for room at a subscriber and hands it the message. It reports
// false if limit runs out before, or if there is never enough room for it.
func (c *Conn) feedFull(l *route.Live, m *kernel.LiveMessage, limit *time.Timer) bool {
	for range roomTries {
		select {
		case <-l.Feed.To.Room():
			if l.Feed.Offer(m, l.Handle) {
				return true
			}
		case <-limit.C:
			limit.Reset(0) // for the next subscriber: the time is used up
			l.Feed.Slow.Store(true)
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

// countBatch counts the records of a batch; the payload is counted as stored,
// compressed or not.
func (c *Conn) countBatch(batch []byte) {
	if len(batch) < record.HeaderSize {
		return
	}
	c.counters.In.Add(uint64(record.Count(batch)))
	c.counters.InBytes.Add(uint64(len(batch) - record.HeaderSize))
}
