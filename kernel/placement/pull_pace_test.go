package placement

import (
	"errors"
	"testing"
	"time"
)

// TestPullsArePaced: what is pulled takes no more of disk and network in a second than is
// said, less while the node serves; not if somebody waits for it.
func TestPullsArePaced(t *testing.T) {
	var waited time.Duration
	serves, goesOn := true, true
	p := &puller{serving: func() bool { return serves }, pause: func(d time.Duration) bool {
		waited += d
		return goesOn
	}}
	second := func(bytes int) time.Duration {
		t.Helper()
		waited = 0
		for range bytes / pullChunk {
			must(t, p.pace(pullChunk))
		}
		return waited
	}
	if d := second(pullServing); d < 999*time.Millisecond || d > time.Second {
		t.Errorf("while it serves %d bytes take %v", pullServing, d)
	}
	serves = false
	if d := second(pullIdle); d < 999*time.Millisecond || d > time.Second {
		t.Errorf("while it does not %d bytes take %v", pullIdle, d)
	}
	p.urgent.Store(true)
	if d := second(pullIdle); d != 0 {
		t.Errorf("while somebody waits they take %v", d)
	}
	p.urgent.Store(false)
	if goesOn = false; !errors.Is(p.pace(pullChunk), errStopped) {
		t.Error("it does not stop")
	}
}
