package listener

import (
	"sync"
	"sync/atomic"
	"time"
)

// Memory is a budget of bytes that the connections of a front-end share, for
// what waits in their buffers. Safe for concurrent use; a nil Memory has no
// limit.
type Memory struct {
	limit   int64
	used    atomic.Int64
	waiting atomic.Int32

	mu    sync.Mutex
	freed chan struct{} // closed when something was given back; nil until somebody waits
}

// NewMemory returns a budget of limit bytes.
func NewMemory(limit int) *Memory { return &Memory{limit: int64(limit)} }

// Used returns how many bytes are booked.
func (m *Memory) Used() int64 {
	if m == nil {
		return 0
	}
	return m.used.Load()
}

// Over reports whether the budget is used up.
func (m *Memory) Over() bool { return m != nil && m.used.Load() > m.limit }

// Open reports whether no more than the budget and over bytes beyond it are
// booked: Book would succeed.
func (m *Memory) Open(over int) bool { return m == nil || m.used.Load() <= m.limit+int64(over) }

// Book books n bytes if no more than the budget and over bytes beyond it are
// booked so far. So what is booked exceeds that by less than n.
func (m *Memory) Book(n, over int) bool {
	if m == nil {
		return true
	}
	for {
		used := m.used.Load()
		if used > m.limit+int64(over) {
			return false
		}
		if m.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}

// Limit returns the budget in bytes, 0 if there is none.
func (m *Memory) Limit() int {
	if m == nil {
		return 0
	}
	return int(m.limit)
}

// Add books n bytes, even over the budget; a negative n gives them back.
func (m *Memory) Add(n int) {
	if m == nil || n == 0 {
		return
	}
	m.used.Add(int64(n))
	if n > 0 || m.waiting.Load() == 0 {
		return
	}
	m.mu.Lock()
	if m.freed != nil {
		close(m.freed)
		m.freed = nil
	}
	m.mu.Unlock()
}

// Take books n bytes if the budget has them, waiting for that at most for so
// long or until stop is closed. The first bytes of all are always there, so
// that nothing is too large for good.
func (m *Memory) Take(n int, wait time.Duration, stop <-chan struct{}) bool {
	if m == nil || m.try(n) {
		return true
	}
	m.waiting.Add(1)
	defer m.waiting.Add(-1)
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		m.mu.Lock()
		if m.freed == nil {
			m.freed = make(chan struct{})
		}
		freed := m.freed
		m.mu.Unlock()
		if m.try(n) { // given back before there was a channel to close
			return true
		}
		select {
		case <-freed:
		case <-limit.C:
			return false
		case <-stop:
			return false
		}
	}
}

func (m *Memory) try(n int) bool {
	for {
		used := m.used.Load()
		if used > 0 && used+int64(n) > m.limit {
			return false
		}
		if m.used.CompareAndSwap(used, used+int64(n)) {
			return true
		}
	}
}
