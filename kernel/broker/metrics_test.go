package broker

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsGoWithTheFacade: the metrics of a facade are gone when it is closed, also
// those that have come since it began, so that the next one can register its own.
func TestMetricsGoWithTheFacade(t *testing.T) {
	reg := prometheus.NewRegistry()
	for range 2 {
		b := open(t, t.TempDir(), func(c *Config) { c.Registerer = reg })
		c := connect(t, b) // the first of its protocol
		declare(t, c, QueueSpec{Name: "q", Durable: true})
		publisher(t, c).exchange("", "q", "1")
		shut(t, b)
		if families, err := reg.Gather(); err != nil || len(families) > 0 {
			t.Errorf("%d metrics, %v", len(families), err)
		}
	}
}
