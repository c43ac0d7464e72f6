package broker

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// TestDamagesAreNamed: the log names a range once, with all that a reader needs to go
// on after it, and the metrics as long as the process runs; their number is bounded.
func TestDamagesAreNamed(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	var d damages
	d.met(&log, "orders", 2, 15, 19)
	d.met(&log, "orders", 2, 10, 19)
	if s := out.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, `"topic":"orders","partition":2,"first":15,"last":19`) {
		t.Fatal(s)
	}
	ch := make(chan prometheus.Metric, 1)
	d.collect(ch)
	if m := (<-ch).Desc(); m != descDamaged || d.first[damagedRange{"orders", 2, 19}] != 10 {
		t.Fatal(m, d.first)
	}
	for i := range int64(2 * damagedRanges) {
		d.met(&log, "t", 0, i, i)
	}
	if len(d.first) != damagedRanges {
		t.Fatalf("%d ranges", len(d.first))
	}
}
