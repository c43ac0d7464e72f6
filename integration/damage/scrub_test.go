package damage

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestScrub: what is damaged in a segment is found although nobody reads it, and named
// by log and metrics; a consumer that comes then is served around it without an error.
func TestScrub(t *testing.T) {
	b := harness.Start(t, "--storage-scrub-interval", "1s", "--storage-scrub-rate", "1GiB")
	sealed(t, b, "log")
	const pass = `trivium_log_scrub_passes_total{placement="durable"} `
	harness.Wait(t, harness.Patience, "a pass", func() bool {
		text := metrics(t, b)
		return strings.Contains(text, pass) && !strings.Contains(text, pass+"0") && !strings.Contains(text, `trivium_log_scrub_bytes_total{placement="durable"} 0`)
	})
	shows(t, b, `trivium_log_scrub_damaged_segments{placement="durable"} 0`)
	if code := b.Stop(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, b.Output())
	}
	segment := files(t, b, "placement-1/segments/*.seg")[0]
	for _, i := range lost {
		flipAt(t, segment, string(numbered(i, false)))
	}

	b.Run()
	harness.Wait(t, harness.Patience, "the damage to be found", func() bool {
		return strings.Contains(metrics(t, b), `trivium_log_scrub_damaged_segments{placement="durable"} 1`) &&
			strings.Contains(metrics(t, b), `trivium_log_damaged_records{first="40"`)
	})
	shows(t, b, `trivium_log_damaged_records{first="10",last="12",partition="0",topic="log"} 3`,
		`trivium_log_damaged_records{first="40",last="40",partition="0",topic="log"} 1`)
	for _, want := range []string{"the scrub has found a damaged segment", "records are lost to damage on disk"} {
		if out := b.Output(); !strings.Contains(out, want) {
			t.Errorf("the log lacks %q:\n%s", want, out)
		}
	}
	c := b.DialKafka(t, kgo.MaxVersions(kversion.V2_8_0())) // topics by name
	if code, first := fetch(t, c, 10); code != 0 || first != 13 {
		t.Errorf("fetch at 10: %v, from %d", kerr.ErrorForCode(code), first)
	}
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, b.Output())
	}
}
