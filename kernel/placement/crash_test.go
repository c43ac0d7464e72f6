package placement

import (
	"bytes"
	"os"
	"os/exec"
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
	usual := int64(2000)
	if testing.Short() {
		usual = 200
	}
	n, first := setting("TRIVIUM_HISTORIES", usual), setting("TRIVIUM_SEED", 1)
	var all seen
	for seed := first; seed < first+n; seed++ {
		h := newHistory(seed, keys)
		err := h.run()
		all.add(h.seen)
		if err != nil {
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
	t.Logf("%+v", all)
	if n >= 500 && (all.inOpen == 0 || all.inLog == 0 || all.inSeal == 0 || all.full == 0 || all.restored < int(n)/10 ||
		all.checkpoints < uint64(n) || all.delivered < 10*uint64(n) || all.settled < 5*uint64(n) || all.buried < int(n) ||
		all.once < int(n) || all.pinned < int(n)/10 || all.orphans < int(n)/50 ||
		all.repeats < int(n) || all.beside < int(n)) {
		t.Errorf("the histories do not go where they should: %+v", all)
	}
}

// TestHistoriesCatch shows that the histories notice a log that does not sync, a
// proposer that answers before the commit, and a seal in the middle of an entry.
func TestHistoriesCatch(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the test thrice more")
	}
	for _, tag := range []string{"trivium_nosync", "trivium_earlyreply", "trivium_midseal"} {
		cmd := exec.Command("go", "test", "-tags", tag, "-run", "^TestHistories$", "-count=1", ".")
		cmd.Env = append(os.Environ(), "TRIVIUM_HISTORIES=500", "TRIVIUM_SEED=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestHistories")) {
			t.Errorf("with %s the histories should fail: %v\n%s", tag, err, out)
		}
	}
}
