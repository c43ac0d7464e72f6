package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	subBits = 5 // 32 steps per power of two: at most 3 % error
	buckets = 64 << subBits
)

// histogram counts durations in logarithmic buckets. Safe for concurrent use.
type histogram struct {
	counts [buckets]atomic.Uint64
	top    atomic.Int64 // largest, ns
}

func bucketOf(ns int64) int {
	if ns < 1<<subBits {
		return int(max(ns, 0))
	}
	exp := bits.Len64(uint64(ns)) - subBits - 1
	return (exp+1)<<subBits + int(ns>>exp) - 1<<subBits
}

func bucketValue(i int) int64 {
	if i < 1<<subBits {
		return int64(i)
	}
	exp := i>>subBits - 1
	return (int64(i&(1<<subBits-1)) + 1<<subBits) << exp
}

func (h *histogram) add(d time.Duration) { h.addN(d, 1) }

func (h *histogram) addN(d time.Duration, n uint64) {
	h.counts[bucketOf(int64(d))].Add(n)
	for {
		old := h.top.Load()
		if int64(d) <= old || h.top.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// quantile returns the q-quantile in milliseconds.
func (h *histogram) quantile(q float64) float64 {
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	rank, seen := uint64(q*float64(total)), uint64(0)
	for i := range h.counts {
		if seen += h.counts[i].Load(); seen > rank {
			return float64(bucketValue(i)) / 1e6
		}
	}
	return h.max()
}

func (h *histogram) max() float64 { return float64(h.top.Load()) / 1e6 }
