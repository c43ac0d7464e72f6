package admin

import (
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// sampleEvery is the least time between two samples that a rate is made of
// (RabbitMQ's default interval).
const sampleEvery = 5 * time.Second

// counts are the counters of one queue, or of all.
type counts struct {
	published, delivered, settled uint64
	ready, held                   int64
}

// rates makes rates out of the counters seen at earlier requests, so that a
// node that nobody watches spends nothing on it. It keeps two samples.
type rates struct {
	mu       sync.Mutex
	old, new sample
}

type sample struct {
	at     time.Time
	queues map[kernel.GroupAddress]counts
	all    counts
}

// update takes a new sample when the last one is old enough, and returns the
// one to compare with.
func (r *rates) update(now time.Time, all counts, queues []broker.QueueStatus) sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.new.at) >= sampleEvery {
		r.old = r.new
		r.new = sample{at: now, all: all, queues: make(map[kernel.GroupAddress]counts, len(queues))}
		for i := range queues {
			r.new.queues[queues[i].Address] = countsOf(&queues[i])
		}
	}
	if r.old.at.IsZero() {
		return r.new
	}
	return r.old
}

// last returns the sample to compare with, without taking one.
func (r *rates) last() sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.old.at.IsZero() {
		return r.new
	}
	return r.old
}

func countsOf(q *broker.QueueStatus) counts {
	return counts{published: q.Published, delivered: q.Delivered, settled: q.Settled, ready: q.Info.Ready, held: q.Info.Held}
}

// rate is the "_details" of a counter.
type rate struct {
	Rate float64 `json:"rate"`
}

// since makes a function that turns a counter's change since s into a rate per
// second. Less than a second is too short to say anything.
func (s *sample) since(now time.Time) func(from, to int64) rate {
	seconds := now.Sub(s.at).Seconds()
	return func(from, to int64) rate {
		if s.at.IsZero() || seconds < 1 {
			return rate{}
		}
		return rate{Rate: float64(to-from) / seconds}
	}
}

// messageStats are the traffic counters of a queue or of the node since start.
type messageStats struct {
	Publish           uint64 `json:"publish"`
	PublishDetails    rate   `json:"publish_details"`
	Deliver           uint64 `json:"deliver"`
	DeliverDetails    rate   `json:"deliver_details"`
	DeliverGet        uint64 `json:"deliver_get"`
	DeliverGetDetails rate   `json:"deliver_get_details"`
	Ack               uint64 `json:"ack"`
	AckDetails        rate   `json:"ack_details"`
}

func statsOf(from, to counts, per func(from, to int64) rate) messageStats {
	m := messageStats{Publish: to.published, Deliver: to.delivered, DeliverGet: to.delivered, Ack: to.settled}
	m.PublishDetails = per(int64(from.published), int64(to.published))
	m.DeliverDetails = per(int64(from.delivered), int64(to.delivered))
	m.DeliverGetDetails = m.DeliverDetails
	m.AckDetails = per(int64(from.settled), int64(to.settled))
	return m
}

// depth is how many messages a queue, or all of them, hold.
type depth struct {
	Messages                      int64 `json:"messages"`
	MessagesDetails               rate  `json:"messages_details"`
	MessagesReady                 int64 `json:"messages_ready"`
	MessagesReadyDetails          rate  `json:"messages_ready_details"`
	MessagesUnacknowledged        int64 `json:"messages_unacknowledged"`
	MessagesUnacknowledgedDetails rate  `json:"messages_unacknowledged_details"`
}

func depthOf(from, to counts, per func(from, to int64) rate) depth {
	d := depth{Messages: to.ready + to.held, MessagesReady: to.ready, MessagesUnacknowledged: to.held}
	d.MessagesDetails = per(from.ready+from.held, to.ready+to.held)
	d.MessagesReadyDetails = per(from.ready, to.ready)
	d.MessagesUnacknowledgedDetails = per(from.held, to.held)
	return d
}
