//go:build !trivium_replay

package forward

import "fmt"

// replays says that a seed decides what runs next, too: integration/replay has built this.
const replays = false

func seeded(int64) (end func()) { return func() {} }

// again says how a history is played again.
func again(seed int64) string {
	return fmt.Sprintf("again, most likely: TRIVIUM_SEED=%d TRIVIUM_HISTORIES=1 go test -run '^TestEdgeHistories$' ./kernel/forward\n"+
		"(the order of what happens at the same moment is not the seed's here; with make replay SEED=%d FOR=1000 it is)", seed, seed)
}
