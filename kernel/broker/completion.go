package broker

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// sink stands between the placement groups and a publisher's Completion, so
// that Close can end the calls.
type sink struct {
	mu sync.Mutex
	to kernel.Completion // nil once closed
}

// Completed implements kernel.Completion.
func (s *sink) Completed(token uint64, res kernel.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		s.to.Completed(token, res)
	}
}

// Flush implements kernel.Completion.
func (s *sink) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to != nil {
		s.to.Flush()
	}
}

func (s *sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = nil
}

// join makes one completion of those of several placement groups: it completes
// after the last, with the error of the first that failed.
type join struct {
	sink  *sink
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
