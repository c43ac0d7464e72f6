package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// frontMetrics exports what the listeners count.
type frontMetrics struct {
	fronts       []front
	certificates *listener.Certificates // nil = none
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("trivium_"+name, help, labels, nil)
}

var (
	descOpen        = describe("listener_connections", "Open connections.", "listener")
	descHandshaking = describe("listener_handshakes", "Connections in the midst of PROXY, TLS or WebSocket.", "listener")
	descAccepted    = describe("listener_accepted_total", "Connections accepted.", "listener")
	descRefused     = describe("listener_refused_total", "Connections closed because of a limit.", "listener")
	descFailed      = describe("listener_handshakes_failed_total", "Connections closed in the midst of PROXY, TLS or WebSocket.", "listener")
	descReloads     = describe("tls_reloads_total", "Times that certificates were read again, by whether they were any good.", "result")
	descExpiry      = describe("tls_certificate_expiry_timestamp_seconds", "When the certificate ceases to be valid.")
)

// Describe implements prometheus.Collector.
func (m *frontMetrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *frontMetrics) Collect(out chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	for _, f := range m.fronts {
		s := f.l.Stats()
		send(descOpen, prometheus.GaugeValue, float64(s.Open.Load()), f.Name)
		send(descHandshaking, prometheus.GaugeValue, float64(s.Handshaking.Load()), f.Name)
		send(descAccepted, prometheus.CounterValue, float64(s.Accepted.Load()), f.Name)
		send(descRefused, prometheus.CounterValue, float64(s.Refused.Load()), f.Name)
		send(descFailed, prometheus.CounterValue, float64(s.Failed.Load()), f.Name)
	}
	if m.certificates == nil {
		return
	}
	good, bad := m.certificates.Reloads()
	send(descReloads, prometheus.CounterValue, float64(good), "replaced")
	send(descReloads, prometheus.CounterValue, float64(bad), "kept")
	send(descExpiry, prometheus.GaugeValue, float64(m.certificates.Expiry().Unix()))
}
