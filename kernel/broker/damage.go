package broker

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

const (
	// damagedRanges is how many damaged ranges are remembered, for readers and for
	// the metrics. The oldest is forgotten for one more; recover --check finds all.
	damagedRanges = 256

	// A range that cannot be read is given up after so many tries, which are this
	// far apart: an error of the disk may pass. One whose content is wrong is given
	// up when it is met again.
	damageTries = 3
	damagePause = time.Second
)

// damagedRange is offsets of a topic's partition that could not be read because of
// damage on disk.
type damagedRange struct {
	topic       kernel.TopicID
	name        string // of the topic
	partition   int32
	first, last int64
	wrong       bool // see placement.Damage
	tries       int
	at          time.Time // of the last try
	lost        bool      // given up: readers go on behind it
}

// damages remembers the damaged ranges that have been met. Safe for concurrent use.
type damages struct {
	now    func() time.Time // nil = time.Now
	passed atomic.Uint64    // reads that went on behind a range

	mu   sync.Mutex
	list []*damagedRange // oldest first
	told time.Time       // of the last line in the log about a range that has grown
}

// met notes damage of a partition, says so in the log, and returns whether readers
// are to go on behind it. sure: it has been tried often enough.
func (d *damages) met(log *zerolog.Logger, t *kernel.Topic, partition int32, bad placement.Damage, sure bool) (lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.now != nil {
		now = d.now()
	}
	r, fresh := d.find(t, partition, bad, now)
	grown := r.lost && (bad.First < r.first || bad.Last > r.last)
	r.first, r.last = min(r.first, bad.First), max(r.last, bad.Last)
	if now.Sub(r.at) >= damagePause {
		r.tries, r.at = r.tries+1, now
	}
	lose := sure || !fresh && r.wrong && bad.Wrong || r.tries >= damageTries
	var text string
	switch {
	case lose && bad.Alone && !r.lost:
		r.lost, text = true, "records are lost to damage on disk: who reads them is served what is behind them"
	case fresh:
		text = "records cannot be read because of damage on disk"
	case grown && now.Sub(d.told) >= damagePause:
		d.told, text = now, "more records are lost to damage on disk"
	}
	if text != "" {
		log.Error().Str("topic", r.name).Int32("partition", r.partition).Int64("first", r.first).Int64("last", r.last).Msg(text)
	}
	return r.lost
}

// scrubbed notes what the scrub has found.
func (b *Broker) scrubbed(topic kernel.TopicID, partition int32, bad placement.Damage) {
	if t, ok := b.catalog.State().TopicByID(topic); ok {
		b.damages.met(&b.log, t, partition, bad, true)
	}
}

// find returns the range that damage belongs to: one that has it, or ends before it
// and has been given up, or a new one.
func (d *damages) find(t *kernel.Topic, partition int32, bad placement.Damage, now time.Time) (r *damagedRange, fresh bool) {
	i := slices.IndexFunc(d.list, func(r *damagedRange) bool {
		if r.topic != t.ID || r.partition != partition {
			return false
		}
		return r.last == bad.Last || r.lost && r.first <= bad.First && bad.Last <= r.last ||
			r.lost && r.wrong && bad.Wrong && r.last+1 == bad.First
	})
	if i >= 0 {
		return d.list[i], false
	}
	if len(d.list) == damagedRanges {
		d.list = slices.Delete(d.list, 0, 1)
	}
	r = &damagedRange{topic: t.ID, name: t.Name, partition: partition, first: bad.First, last: bad.Last, wrong: bad.Wrong, tries: 1, at: now}
	d.list = append(d.list, r)
	return r, true
}

func (d *damages) collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.list {
		ch <- prometheus.MustNewConstMetric(descDamaged, prometheus.GaugeValue, float64(r.last-r.first+1),
			r.name, strconv.Itoa(int(r.partition)), strconv.FormatInt(r.first, 10), strconv.FormatInt(r.last, 10))
	}
	ch <- prometheus.MustNewConstMetric(descPassed, prometheus.CounterValue, float64(d.passed.Load()))
}
