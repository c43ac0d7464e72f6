//go:build trivium_replay

package forward

import (
	"fmt"
	"os"
	"runtime"
	_ "unsafe" // for go:linkname
)

// replays says that a seed decides what runs next, too: integration/replay has built this.
const replays = true

// replaySeed is there in the runtime that integration/replay has made.
//
//go:linkname replaySeed runtime.replaySeed
var replaySeed uint64

// seeded has the bubble that begins next draw from a seed, until the end.
func seeded(seed int64) (end func()) {
	before := runtime.GOMAXPROCS(1)
	replaySeed = uint64(seed) + 1<<62 // not 0
	return func() {
		replaySeed = 0
		runtime.GOMAXPROCS(before)
	}
}

// again says how a history is played again.
func again(seed int64) string {
	s := fmt.Sprintf("again, nearly always: make replay SEED=%d", seed)
	if plant := os.Getenv("TRIVIUM_PLANT"); plant != "" {
		s += " PLANT=" + plant
	}
	return s
}
