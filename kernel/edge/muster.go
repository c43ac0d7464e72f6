package edge

import (
	"context"
	"sync"
	"time"
)

// musterTime is the longest that a connection which is back waits for the others.
const musterTime = time.Second

// muster has the connections of an edge begin to publish together when another host
// serves. Each makes anew what lives in memory only, and what one publishes would miss
// the queues of those that are not there yet. For those of other nodes the host waits
// (broker.Broker.Gather), if it is not of an earlier version. Safe for concurrent use.
type muster struct {
	mu   sync.Mutex
	away int           // connections that are being linked anew
	back chan struct{} // closed and replaced when none is any more
}

// leave counts a connection that has no link any more; the function that it returns, that
// it has one again, or will have none. It may be called twice.
func (m *muster) leave() (arrive func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.away--; m.away == 0 {
			close(m.back)
			m.back = make(chan struct{})
		}
	})
}

// wait waits until nobody is away, for a second at most, or until changed or left is
// closed, or ctx ends.
func (m *muster) wait(ctx context.Context, changed, left <-chan struct{}) {
	m.mu.Lock()
	away, back := m.away, m.back
	m.mu.Unlock()
	if away == 0 {
		return
	}
	timer := time.NewTimer(musterTime)
	defer timer.Stop()
	select {
	case <-back:
	case <-timer.C:
	case <-changed:
	case <-left:
	case <-ctx.Done():
	}
}
