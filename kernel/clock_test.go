package kernel

import (
	"strings"
	"testing"
	"time"
)

// TestClock: the process's clock goes by the monotonic clock, so that steps of the wall
// clock do not move it; it follows the one of the node that serves, both ways, unless
// they differ by no more than a message takes; and what is in the log moves it forward only.
func TestClock(t *testing.T) {
	if !strings.Contains(clockStart.String(), " m=") {
		t.Fatal("it starts without a monotonic reading: time.Since would follow the wall clock")
	}
	t.Cleanup(func() { clockAhead.Store(0) })
	const hour = int64(time.Hour / time.Millisecond)
	off := func(want int64) {
		t.Helper()
		got, now := Millis()-time.Now().UnixMilli(), Now().UnixMilli()-time.Now().UnixMilli()
		if got < want-followSlack || got > want+followSlack || now < got-followSlack || now > got+followSlack {
			t.Fatalf("%d ms ahead of the machine's (as a time %d), want %d", got, now, want)
		}
	}
	off(0)
	Follow(Millis() + hour)
	off(hour)
	Follow(Millis() - 2*hour)
	off(-hour)
	ahead := clockAhead.Load()
	Follow(Millis() + followSlack/2)
	Follow(Millis() - followSlack/2)
	if clockAhead.Load() != ahead {
		t.Error("it follows what a message takes")
	}
	NotBefore(Millis() - hour)
	if clockAhead.Load() != ahead {
		t.Error("an old entry of the log moves it")
	}
	NotBefore(time.Now().UnixMilli() + hour)
	off(hour)
}
