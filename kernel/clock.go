package kernel

import (
	"sync/atomic"
	"time"
)

// The process's clock: wall time as it was when the process started, and from
// there on what the monotonic clock says. Times to live count by it, so that
// setting the wall clock neither ends nor prolongs them. What is older than its
// present time in the log moves it forward.
var (
	clockStart = time.Now()
	clockAhead atomic.Int64 // ms
)

// Millis is the time, in milliseconds since 1970, that expiry is counted by. It
// never runs backwards while the node serves. Safe for concurrent use.
func Millis() int64 {
	return clockStart.Add(time.Since(clockStart)).UnixMilli() + clockAhead.Load()
}

// Now is Millis as a time, and as exact as the system has it.
func Now() time.Time {
	return clockStart.Add(time.Since(clockStart) + time.Duration(clockAhead.Load())*time.Millisecond)
}

// followSlack is how far the clock may be from that of who serves: what a message
// takes to come is no difference.
const followSlack = 500

// Follow sets the clock to what that of the node that serves says, ms, if they differ
// by more than a message takes: when this node serves, times to live go on from where
// they were, whatever the wall clocks say. It is for a node that does not serve: the
// clock may run backwards.
func Follow(ms int64) {
	if off := ms - Millis(); off > followSlack || off < -followSlack {
		clockAhead.Add(off)
	}
}

// NotBefore moves the clock forward to ms if it is behind: a node whose wall
// clock was set back while it was down goes on from what its log says.
func NotBefore(ms int64) {
	for {
		ahead := clockAhead.Load()
		if late := ms - Millis(); late <= 0 || clockAhead.CompareAndSwap(ahead, ahead+late) {
			return
		}
	}
}
