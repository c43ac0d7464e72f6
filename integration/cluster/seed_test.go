// Package cluster runs three nodes, breaks them, their disks and the links between
// them in every way that is listed in nemesis_test.go, and checks what clients of
// all protocols were promised.
package cluster

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// seed is TRIVIUM_SEED, or one that is printed: the schedule of faults and the
// choices of the clients follow from it, up to timing.
func seed(t testing.TB) uint64 {
	s := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("TRIVIUM_SEED"), 10, 64); err == nil {
		s = n
	}
	t.Logf("seed %d (TRIVIUM_SEED)", s)
	return s
}
