package bench

import (
	"context"
	"sync"
	"time"
)

// window is the set of a publisher's unconfirmed messages: sequence numbers
// first..next-1 in a ring with their send times. One goroutine takes places,
// another confirms.
type window struct {
	mu        sync.Mutex
	wake      *sync.Cond
	sent      []int64 // ring of send times, ns; 0 = confirmed
	first     uint64  // lowest unconfirmed
	next      uint64
	confirmed uint64
	closed    error
	latency   *histogram
}

func newWindow(outstanding int, h *histogram) *window {
	w := &window{sent: make([]int64, max(outstanding, 1)), latency: h}
	w.wake = sync.NewCond(&w.mu)
	return w
}

// take waits until at least one place is free and takes up to limit of them. It
// returns the first sequence number and how many; 0 when the window is closed.
func (w *window) take(limit int) (seq uint64, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.closed == nil && w.next-w.first >= uint64(len(w.sent)) {
		w.wake.Wait()
	}
	if w.closed != nil {
		return 0, 0
	}
	n = min(limit, len(w.sent)-int(w.next-w.first))
	t := now()
	for i := range n {
		w.sent[(w.next+uint64(i))%uint64(len(w.sent))] = t
	}
	seq = w.next
	w.next += uint64(n)
	return seq, n
}

// confirm marks seq (or, with multiple, everything up to it) confirmed and
// returns the lowest sequence number that is not.
func (w *window) confirm(seq uint64, multiple bool) (oldest uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := seq
	if multiple {
		from = w.first
	}
	t := now()
	for s := from; s <= seq && s < w.next; s++ {
		at := &w.sent[s%uint64(len(w.sent))]
		if s >= w.first && *at != 0 {
			w.latency.add(time.Duration(t - *at))
			*at = 0
			w.confirmed++
		}
	}
	for w.first < w.next && w.sent[w.first%uint64(len(w.sent))] == 0 {
		w.first++
	}
	w.wake.Broadcast()
	return w.first
}

// close wakes everybody; take and drain return.
func (w *window) close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed == nil {
		w.closed = err
	}
	w.wake.Broadcast()
}

// drain waits until everything taken is confirmed or the window is closed.
func (w *window) drain() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.closed == nil && w.first < w.next {
		w.wake.Wait()
	}
	if w.first < w.next {
		return w.closed
	}
	return nil
}

func (w *window) counts() (published, confirmed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next, w.confirmed
}

// pacer spreads messages over time.
type pacer struct {
	perSecond float64
	start     time.Time
	sent      int
	timer     *time.Timer
}

func newPacer(rate, publishers int) *pacer {
	return &pacer{perSecond: float64(rate) / float64(max(publishers, 1)), start: time.Now(), timer: time.NewTimer(0)}
}

// wait blocks until at least one message is due and returns how many may be
// sent, at most limit. 0 means ctx is done.
func (p *pacer) wait(ctx context.Context, limit int) int {
	if ctx.Err() != nil {
		return 0
	}
	if p.perSecond <= 0 {
		return limit
	}
	for {
		due := int(time.Since(p.start).Seconds()*p.perSecond) - p.sent
		if due > 0 {
			n := min(due, limit)
			p.sent += n
			return n
		}
		next := time.Duration(float64(p.sent+1) / p.perSecond * float64(time.Second))
		p.timer.Reset(max(next-time.Since(p.start), 50*time.Microsecond))
		select {
		case <-ctx.Done():
			return 0
		case <-p.timer.C:
		}
	}
}
