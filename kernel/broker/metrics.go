package broker

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivium-mq/trivium/kernel/placement"
)

// collector gives the broker's figures to Prometheus when it asks; nothing is
// counted for it on the way of a message.
type collector struct{ b *Broker }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("trivium_"+name, help, labels, nil)
}

// The metrics. Their names are part of the operator's interface.
var (
	descBacklog  = desc("session_backlog_dropped_total", "Messages dropped because the backlog of a session was over its limit.")
	descRetained = desc("retained_messages", "Retained messages.")

	descLoginsFailed  = desc("logins_failed_total", "Logins with wrong credentials.")
	descLoginsDelayed = desc("logins_delayed_total", "Logins that had to wait because of failures before.")
	descLoginsRefused = desc("logins_refused_total", "Logins that were not looked at because too many had failed.")
	descLoginsBans    = desc("logins_bans_total", "Addresses whose logins were refused for a while.")
	descLoginsWaiting = desc("logins_waiting", "Logins that wait because of failures.")

	descPressed = desc("publishes_refused_total", "Publishes refused because the node was short of disk or memory.", "placement")

	descConnections = desc("connections", "Connections open now.")
	descQueues      = desc("queues", "Queues and share groups.")
	descExchanges   = desc("exchanges", "Exchanges.")
	descConsumers   = desc("consumers", "Consumers.")
	descReady       = desc("queue_messages_ready", "Messages ready to be delivered, in all groups.")
	descHeld        = desc("queue_messages_unacked", "Messages delivered and not settled, in all groups.")

	descCommit      = desc("commit_seconds", "Time from proposing an entry of messages to applying it.", "placement")
	descRecords     = desc("log_records_total", "Records appended, once per topic they reached.", "placement")
	descEntries     = desc("log_entries_total", "Log entries applied.", "placement")
	descDead        = desc("log_records_dead_total", "Records archived because they were refused or over a limit.", "placement")
	descExpired     = desc("log_records_expired_total", "Records archived because their time was over.", "placement")
	descOverflowed  = desc("log_records_overflowed_total", "Records archived because their group was too long.", "placement")
	descRepeats     = desc("log_repeats_total", "Messages that a topic had already, by their deduplication id.", "placement")
	descAbandoned   = desc("log_records_abandoned_total", "Records refused because the session that they were pinned to has ended.", "placement")
	descBuried      = desc("dead_letters_total", "Dead letters that queues have taken.")
	descKept        = desc("dead_letters_kept_total", "Tries to store dead letters that have to be made again: nothing takes them yet, or not everything does.")
	descUnburied    = desc("dead_letters_dropped_total", "Dead letters that nothing took: no exchange, no route, a full queue, or a cycle.")
	descDamaged     = desc("log_damaged_records", "Records of a range that a reader of the partition, or the scrub, could not read.", "topic", "partition", "first", "last")
	descPassed      = desc("log_reads_around_damage_total", "Reads of partitions that were served what is behind lost records.")
	descLost        = desc("log_records_lost_total", "Records skipped because they could not be read.", "placement")
	descCheckpoints = desc("log_checkpoints_total", "Checkpoints written.", "placement")
	descSealFailed  = desc("log_seal_failures_total", "Seals that failed.", "placement")
	descScrubs      = desc("log_scrub_passes_total", "Times that all segments have been read to find damage.", "placement")
	descScrubbed    = desc("log_scrub_bytes_total", "Bytes of segments read to find damage.", "placement")
	descScrubBad    = desc("log_scrub_damaged_segments", "Segments that the last reading of all has found damaged.", "placement")
	descMerges      = desc("log_merges_total", "Merges of segments.", "placement")
	descMerged      = desc("log_merged_bytes_total", "Bytes written by merges of segments.", "placement")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	o := c.b.Overview()
	count(descBacklog, float64(c.b.backlogs.dropped.Load()))
	gauge(descRetained, float64(c.b.retained.count()))
	c.b.damages.collect(ch)
	gauge(descConnections, float64(o.Connections))
	gauge(descQueues, float64(o.Queues))
	gauge(descExchanges, float64(o.Exchanges))
	gauge(descConsumers, float64(o.Members))
	gauge(descReady, float64(o.Ready))
	gauge(descHeld, float64(o.Held))
	count(descBuried, float64(c.b.dead.buried.Load()))
	count(descUnburied, float64(c.b.dead.dropped.Load()))
	count(descKept, float64(c.b.dead.kept.Load()))
	logins := c.b.access.throttle.Stats()
	count(descLoginsFailed, float64(logins.Failed.Load()))
	count(descLoginsDelayed, float64(logins.Delayed.Load()))
	count(descLoginsRefused, float64(logins.Refused.Load()))
	count(descLoginsBans, float64(logins.Bans.Load()))
	gauge(descLoginsWaiting, float64(logins.Waiting.Load()))
	collectPlacement(ch, "durable", c.b.durable.Metrics())
	collectPlacement(ch, "volatile", c.b.volatile.Metrics())
}

func collectPlacement(ch chan<- prometheus.Metric, name string, m *placement.Metrics) {
	for _, v := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{
		{descRecords, m.Records.Load()}, {descEntries, m.Entries.Load()}, {descDead, m.Dead.Load()},
		{descExpired, m.Expired.Load()}, {descOverflowed, m.Overflowed.Load()}, {descAbandoned, m.Abandoned.Load()}, {descLost, m.Lost.Load()}, {descCheckpoints, m.Checkpoints.Load()},
		{descSealFailed, m.SealFailures.Load()}, {descMerges, m.Merges.Load()}, {descMerged, m.MergedBytes.Load()}, {descPressed, m.Refused.Load()},
		{descRepeats, m.Repeats.Load()}, {descScrubs, m.ScrubPasses.Load()}, {descScrubbed, m.ScrubBytes.Load()},
	} {
		ch <- prometheus.MustNewConstMetric(v.desc, prometheus.CounterValue, float64(v.value), name)
	}
	ch <- prometheus.MustNewConstMetric(descScrubBad, prometheus.GaugeValue, float64(m.ScrubDamaged.Load()), name)
	buckets := make(map[float64]uint64, placement.HistogramBuckets)
	var total uint64
	for i := range placement.HistogramBuckets {
		bound, n := m.CommitTime.Bucket(i)
		total += n
		if bound > 0 {
			buckets[bound.Seconds()] = total
		}
	}
	ch <- prometheus.MustNewConstHistogram(descCommit, total, m.CommitTime.Sum().Seconds(), buckets, name)
}

// register gives the metrics to r, until Close.
func (b *Broker) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	c := registered{collector: collector{b}}
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		c.collector.Describe(ch)
	}()
	for d := range ch {
		c.descs = append(c.descs, d)
	}
	if err := r.Register(c); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	b.onStop = func() { r.Unregister(c) }
	return nil
}

// registered describes at any time what there was when it was registered: by that it
// is found again, also when other metrics have come since.
type registered struct {
	collector
	descs []*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (r registered) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		ch <- d
	}
}
