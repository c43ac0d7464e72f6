package placement

import (
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// clock tells the time in the two ways that are needed. Setting the wall clock
// moves neither while the process runs: times to live are counted by them.
type clock struct {
	now   func() time.Time
	start time.Time
	ahead *atomic.Int64 // ms that wall is ahead of it; nil: it is the process's clock
}

func newClock(now func() time.Time) clock {
	if now == nil {
		return clock{now: time.Now, start: time.Now()}
	}
	return clock{now: now, start: now(), ahead: new(atomic.Int64)}
}

// wall is milliseconds since 1970.
func (c clock) wall() int64 {
	if c.ahead == nil {
		return kernel.Millis()
	}
	return c.start.Add(c.now().Sub(c.start)).UnixMilli() + c.ahead.Load()
}

// notBefore moves wall forward to ms, if it is behind: the log knows that it was
// as late as that.
func (c clock) notBefore(ms int64) {
	if c.ahead == nil {
		kernel.NotBefore(ms)
	} else if late := ms - c.wall(); late > 0 {
		c.ahead.Add(late)
	}
}

// mono is nanoseconds since the clock was made.
func (c clock) mono() int64 { return int64(c.now().Sub(c.start)) }
