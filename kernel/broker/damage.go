package broker

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// damagedRanges is how many damaged ranges are remembered for the metrics. Those
// beyond are not named; recover --check finds them all.
const damagedRanges = 256

// damagedRange is offsets of a topic's partition that a reader could not read because
// of damage on disk.
type damagedRange struct {
	topic     string
	partition int32
	last      int64
}

// damages remembers what readers of partitions have met, each range by its last
// offset: where it begins depends on who reads. Safe for concurrent use.
type damages struct {
	mu    sync.Mutex
	first map[damagedRange]int64
}

// met notes that first..last cannot be read, and says so in the log once.
func (d *damages) met(log *zerolog.Logger, topic string, partition int32, first, last int64) {
	r := damagedRange{topic, partition, last}
	d.mu.Lock()
	old, known := d.first[r]
	full := !known && len(d.first) >= damagedRanges
	if d.first == nil {
		d.first = make(map[damagedRange]int64)
	}
	if !full && (!known || first < old) {
		d.first[r] = first
	}
	d.mu.Unlock()
	if !known && !full {
		log.Error().Str("topic", topic).Int32("partition", partition).Int64("first", first).Int64("last", last).
			Msg("records cannot be read because of damage on disk: a reader goes on after the last")
	}
}

func (d *damages) collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r, first := range d.first {
		ch <- prometheus.MustNewConstMetric(descDamaged, prometheus.GaugeValue, float64(r.last-first+1),
			r.topic, strconv.Itoa(int(r.partition)), strconv.FormatInt(first, 10), strconv.FormatInt(r.last, 10))
	}
}
