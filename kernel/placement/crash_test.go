package placement

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/trivium-mq/trivium/storage/kv"
)

// setting reads a number from the environment.
func setting(name string, def int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return def
}

// TestHistories plays seeded histories with power losses on a simulated disk
// and log. TRIVIUM_HISTORIES says how many, TRIVIUM_SEED with which to begin.
func TestHistories(t *testing.T) {
	keys, err := kv.OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	n, first := setting("TRIVIUM_HISTORIES", 2000), setting("TRIVIUM_SEED", 1)
	for seed := first; seed < first+n; seed++ {
		h := newHistory(seed, keys)
		if err := h.run(); err != nil {
			t.Fatalf("TRIVIUM_SEED=%d TRIVIUM_HISTORIES=1: %v\n%s", seed, err, h.disk)
		}
		if seed%50 == 0 { // the same seed does the same, byte for byte
			again := newHistory(seed, keys)
			again.keyID |= 1 << 31
			if err := again.run(); err != nil || again.trace.Sum64() != h.trace.Sum64() {
				t.Fatalf("seed %d does not replay: %x, then %x (%v)", seed, h.trace.Sum64(), again.trace.Sum64(), err)
			}
		}
	}
}

var _ = fmt.Sprint
