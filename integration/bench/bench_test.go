// Package bench runs `trivium bench` against the real binary: the yardstick
// itself must measure right.
package bench

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestEveryScenario: each scenario publishes what it is told, confirms all,
// loses and duplicates nothing, and says so in JSON.
func TestEveryScenario(t *testing.T) {
	const messages = 20_000
	b := harness.Start(t)
	for scenario, target := range map[string]string{
		"amqp-confirm": b.AMQP, "mqtt-qos1": b.MQTT, "kafka-produce": b.Kafka, "kafka-consume": b.Kafka, "mixed": b.AMQP,
	} {
		t.Run(scenario, func(t *testing.T) {
			out := harness.Client(t, time.Minute, harness.Binary(t), "bench", scenario, "--json", "--messages", strconv.Itoa(messages),
				"--publishers", "2", "--target", target, "--mqtt-target", b.MQTT, "--pid", strconv.Itoa(b.PID()), "--name", "bench-"+scenario)
			var r struct {
				Published, Confirmed, Received, Lost, Duplicates uint64
				Rate                                             float64 `json:"messages_per_second"`
				CPU                                              float64 `json:"broker_cpu_us_per_message"`
				P50                                              float64 `json:"latency_p50_ms"`
				P99                                              float64 `json:"latency_p99_ms"`
			}
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatalf("%v in %q", err, out)
			}
			if r.Published != messages || r.Confirmed != messages || r.Lost != 0 || r.Duplicates != 0 {
				t.Errorf("got %+v", r)
			}
			if scenario != "kafka-produce" && r.Received != messages {
				t.Errorf("received %d", r.Received)
			}
			if r.Rate <= 0 || r.P50 <= 0 || r.P99 < r.P50 {
				t.Errorf("figures make no sense: %+v", r)
			}
		})
	}
}
