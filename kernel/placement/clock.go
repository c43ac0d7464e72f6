package placement

import "time"

// clock tells the time in the two ways that are needed.
type clock struct {
	now   func() time.Time
	start time.Time
}

func newClock(now func() time.Time) clock {
	if now == nil {
		now = time.Now
	}
	return clock{now: now, start: now()}
}

// wall is milliseconds since 1970.
func (c clock) wall() int64 { return c.now().UnixMilli() }

// mono is nanoseconds since the clock was made; setting the wall clock does
// not move it.
func (c clock) mono() int64 { return int64(c.now().Sub(c.start)) }
