package broker

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// TestTrafficShowsWhereNobodyIsServed: a node that does not serve has clients all the same.
func TestTrafficShowsWhereNobodyIsServed(t *testing.T) {
	n, reg := measured(t)
	n.Counters("p").Received(2, 30)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"trivium_messages_received_total": 2, "trivium_messages_received_bytes_total": 30, "trivium_messages_delivered_total": 0}
	for _, f := range families {
		if v, ok := want[f.GetName()]; ok && len(f.GetMetric()) == 1 && f.GetMetric()[0].GetCounter().GetValue() == v {
			delete(want, f.GetName())
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestTheDiskShowsAtEachNode: each node has a log and a disk, whether it serves or not, and
// one that serves tells of them once.
func TestTheDiskShowsAtEachNode(t *testing.T) {
	n, reg := measured(t)
	check := func(when string) {
		t.Helper()
		families, err := reg.Gather() // refuses what is there twice
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"trivium_alarm": 3, "trivium_alarms_total": 3, "trivium_disk_free_bytes": 1, "trivium_wal_syncs_total": 1,
			"trivium_wal_sync_seconds_total": 1, "trivium_wal_appended_bytes_total": 1, "trivium_wal_files": 1}
		for _, f := range families {
			if want[f.GetName()] == len(f.GetMetric()) {
				delete(want, f.GetName())
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: missing %v", when, want)
		}
	}
	check("before it serves")
	b, err := n.Serve(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	check("while it serves")
	shut(t, b)
	check("after that")
}

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

// measured is a node with where its metrics are.
func measured(t *testing.T) (*Node, *prometheus.Registry) {
	reg := prometheus.NewRegistry()
	n, err := OpenNode(soon(t), Config{DataDir: t.TempDir(), Logger: zerolog.Nop(), Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, reg
}
