package broker

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// memoryLook is how often the memory is looked at.
	memoryLook = 100 * time.Millisecond
	// Of the limit, in percent: what is in use after a garbage collection raises
	// the alarm and ends it. Beyond some 50 percent the collector runs more and more
	// often, to keep garbage and all below the limit.
	memoryHigh, memoryLow = 70, 60
	// memoryFull is what the process may have in all, garbage included. More means
	// that the collector does not keep up.
	memoryFull = 108
	// gcRest is how many times longer than a collection the pause until the next
	// one that the alarm asks for is.
	gcRest = 10
)

// memoryUse is what the runtime says of memory, in bytes.
type memoryUse struct {
	live   int64 // found in use by the last collection
	total  int64 // taken from the system and not given back
	cycles uint64
}

// memoryGauge watches the memory in use against the limit. It is for one
// goroutine.
type memoryGauge struct {
	limit   int64 // 0 = none
	read    func() memoryUse
	collect func()
	now     func() time.Time

	on    bool
	last  uint64    // cycles at the last look
	after time.Time // when it may ask for the next collection
}

func newMemoryGauge(limit int64) *memoryGauge {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	return &memoryGauge{limit: limit, collect: runtime.GC, now: time.Now, read: func() memoryUse {
		metrics.Read(samples)
		n := func(i int) uint64 { return samples[i].Value.Uint64() }
		return memoryUse{live: int64(n(0)), total: int64(n(1) - n(2)), cycles: n(3)}
	}}
}

// look raises or ends the alarm. While it is on and nothing makes garbage, nothing
// would find out that memory is free again: then it collects.
func (m *memoryGauge) look(a *alarms) {
	if m.limit <= 0 {
		return
	}
	use := m.read()
	if m.on && use.cycles == m.last && !m.now().Before(m.after) {
		begin := m.now()
		m.collect()
		end := m.now()
		m.after = end.Add(gcRest * end.Sub(begin))
		use = m.read()
	}
	m.last = use.cycles
	percent := m.limit / 100
	switch {
	case !m.on && (use.live >= memoryHigh*percent || use.total >= memoryFull*percent):
		m.on = true
		a.memory(true, use.over(memoryHigh*percent), m.limit)
	case m.on && use.live < memoryLow*percent && use.total < memoryFull*percent:
		m.on = false
		a.memory(false, use.live, m.limit)
	case m.on:
		a.used.Store(use.over(memoryLow * percent))
	}
}

// over is what makes it too much: what is in use, if that is over a mark, or all.
func (u memoryUse) over(mark int64) int64 {
	if u.live < mark {
		return u.total
	}
	return u.live
}
