package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// sink stands between the placement groups and a publisher's Completion, so
// that Close can end the calls, and counts the outcomes for Settle.
type sink struct {
	heard   bool          // there is, or was, a Completion
	done    atomic.Uint64 // outcomes so far
	waiting atomic.Bool   // Settle wants to hear of more
	wake    chan struct{} // capacity 1

	mu sync.Mutex
	to kernel.Completion // nil once closed
}

func newSink(to kernel.Completion) *sink {
	return &sink{heard: to != nil, to: to, wake: make(chan struct{}, 1)}
}

// Completed implements kernel.Completion.
func (s *sink) Completed(token uint64, res kernel.Result) {
	if s.heard {
		s.mu.Lock()
		if s.to != nil {
			s.to.Completed(token, res)
		}
		s.mu.Unlock()
	}
	s.done.Add(1)
}

// Flush implements kernel.Completion.
func (s *sink) Flush() {
	if s.heard {
		s.mu.Lock()
		if s.to != nil {
			s.to.Flush()
		}
		s.mu.Unlock()
	}
	if s.waiting.Load() {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// await waits until there are n outcomes: also when the connection is closed, as they
// come all the same.
func (s *sink) await(ctx context.Context, n uint64) error {
	if s.done.Load() >= n {
		return nil
	}
	// Whoever adds an outcome that the loop does not see finds waiting set.
	s.waiting.Store(true)
	defer s.waiting.Store(false)
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	for s.done.Load() < n {
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return kernel.Errorf(kernel.CodeUnavailable, "", "", "messages published before are not stored yet")
		}
	}
	return nil
}

func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = nil
}

// join makes one completion of those of several placement groups: it completes
// after the last, with the error of the first that failed.
type join struct {
	sink  kernel.Completion
	token uint64

	mu   sync.Mutex
	left int
	err  error
}

// Completed implements kernel.Completion.
func (j *join) Completed(_ uint64, res kernel.Result) {
	j.mu.Lock()
	j.left--
	if j.err == nil {
		j.err = res.Err
	}
	left, err := j.left, j.err
	j.mu.Unlock()
	if left == 0 {
		j.sink.Completed(j.token, kernel.Result{Offset: -1, Err: err})
	}
}

// Flush implements kernel.Completion.
func (j *join) Flush() { j.sink.Flush() }
