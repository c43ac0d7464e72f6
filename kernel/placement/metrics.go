package placement

import (
	"sync/atomic"
	"time"
)

// Metrics counts what a group did since it was opened. All fields are read
// with Load at any time.
type Metrics struct {
	Records      atomic.Uint64 // appended, counted once per target
	Bytes        atomic.Uint64 // of entries applied
	Entries      atomic.Uint64 // applied
	Delivered    atomic.Uint64 // records handed to members
	Settled      atomic.Uint64 // records accepted or refused by members
	Dead         atomic.Uint64 // records archived: refused, or over a limit
	Expired      atomic.Uint64 // records archived because their time was over
	Overflowed   atomic.Uint64 // records archived because their group was too long
	Abandoned    atomic.Uint64 // records refused because the session that they were pinned to has ended
	Lost         atomic.Uint64 // records skipped because they cannot be read
	Checkpoints  atomic.Uint64
	CommitTime   Histogram // from propose to applied
	SealFailures atomic.Uint64
	Merges       atomic.Uint64
	MergedBytes  atomic.Uint64 // written by merges
	Pulled       atomic.Uint64 // segments that have come from other replicas
	PulledBytes  atomic.Uint64
	Lapses       atomic.Uint64 // how often hand-outs have waited for the lease
	Rebased      atomic.Uint64 // checkpoints of other replicas taken, as what was missing is nowhere
	ScrubPasses  atomic.Uint64 // of all segments
	ScrubBytes   atomic.Uint64 // read by the scrub
	ScrubDamaged atomic.Int64  // segments that the last pass, or the one under way, has found damaged
	Repeats      atomic.Uint64 // records that a target had already, by their deduplication id
	Refused      atomic.Uint64 // publishes refused because the node was short of something
}

// Histogram counts durations in buckets that double from 62.5 us on.
type Histogram struct {
	buckets [HistogramBuckets]atomic.Uint64
	sum     atomic.Int64
}

// HistogramBuckets is the number of buckets; the last one has no upper bound.
const HistogramBuckets = 18

const firstBucket = 62500 // nanoseconds

// Observe counts a duration in nanoseconds.
func (h *Histogram) Observe(ns int64) {
	i := 0
	for bound := int64(firstBucket); i < HistogramBuckets-1 && ns > bound; bound *= 2 {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(ns)
}

// Bucket returns the upper bound of bucket i (0 for the last: none) and how
// many durations are in it alone.
func (h *Histogram) Bucket(i int) (bound time.Duration, count uint64) {
	if i < HistogramBuckets-1 {
		bound = firstBucket << i
	}
	return bound, h.buckets[i].Load()
}

// Sum returns the sum of all durations.
func (h *Histogram) Sum() time.Duration { return time.Duration(h.sum.Load()) }
