// Package bench is the load generator behind `trivium bench`. It drives any
// broker that speaks the protocol of the scenario, so that peers can be measured
// by the same client in the same run. Its clients are lean on purpose: they
// pre-encode what can be, write many messages in one call and share no lock per
// message, so that the broker and not the client is what saturates first.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"sync"
	"time"
)

// Options are the parameters of one run.
type Options struct {
	Target      string        // host:port of the scenario's (first) protocol
	Target2     string        // host:port of the second protocol in a mixed scenario
	User        string        // AMQP and MQTT user, empty = anonymous where possible
	Password    string        //
	Size        int           // payload bytes, at least headerSize
	Duration    time.Duration // how long publishers run
	Messages    int           // or how many messages in all, if > 0
	Publishers  int           // connections that publish
	Outstanding int           // unconfirmed messages a publisher may have
	Prefetch    int           // unsettled messages a consumer may have
	Rate        int           // messages a second in all, 0 = as fast as possible
	QueueType   string        // AMQP x-queue-type, empty = none sent
	Name        string        // queue or topic used
	PID         int           // broker process whose CPU is measured, 0 = none
	Partitions  int           // of a Kafka topic
	Batch       int           // most messages a publisher puts into one write, 0 = what fits 64 KiB
}

// Result is what one run measured. Rates count what completed within the
// measured time.
type Result struct {
	Scenario   string  `json:"scenario"`
	Target     string  `json:"target"`
	Size       int     `json:"size_bytes"`
	Seconds    float64 `json:"seconds"`
	Published  uint64  `json:"published"`
	Confirmed  uint64  `json:"confirmed"`
	Received   uint64  `json:"received"`
	Rate       float64 `json:"messages_per_second"`
	MBs        float64 `json:"megabytes_per_second"`
	P50        float64 `json:"latency_p50_ms"`
	P99        float64 `json:"latency_p99_ms"`
	Max        float64 `json:"latency_max_ms"`
	Lost       uint64  `json:"lost"`       // confirmed and not received, where the scenario reads back
	Duplicates uint64  `json:"duplicates"` // received more than once
	Checked    bool    `json:"checked"`    // lost and duplicates were looked for
	CPUMicros  float64 `json:"broker_cpu_us_per_message,omitempty"`
	Note       string  `json:"note,omitempty"`
}

type scenario struct {
	about string
	run   func(context.Context, Options) (Result, error)
}

var scenarios = map[string]scenario{
	"amqp-confirm":  {"publish persistent messages with confirms to a durable queue, then read back", amqpConfirm},
	"mqtt-qos1":     {"QoS 1 publish to a durable QoS 1 subscription", mqttQoS1},
	"kafka-produce": {"produce with acks=all", kafkaProduce},
	"kafka-consume": {"produce, then read the log from the start", kafkaConsume},
	"mixed":         {"QoS 1 publish over MQTT, consume and ack over AMQP", mixed},
}

// Names lists the scenarios with what they do.
func Names() []string {
	var out []string
	for name, s := range scenarios {
		out = append(out, fmt.Sprintf("%-14s %s", name, s.about))
	}
	sort.Strings(out)
	return out
}

// Run runs one scenario.
func Run(ctx context.Context, name string, o Options) (Result, error) {
	s, ok := scenarios[name]
	if !ok {
		return Result{}, fmt.Errorf("unknown scenario %q", name)
	}
	if o.Size < headerSize {
		return Result{}, fmt.Errorf("size %d is below the %d bytes a message needs", o.Size, headerSize)
	}
	res, err := s.run(ctx, o)
	if err != nil {
		return res, fmt.Errorf("%s against %s: %w", name, o.Target, err)
	}
	res.Scenario, res.Target, res.Size = name, o.Target, o.Size
	return res, nil
}

// JSON writes the result as one line of JSON.
func (r Result) JSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Text writes the result for people.
func (r Result) Text(w io.Writer) {
	fmt.Fprintf(w, "%-14s %d B, %.1f s: %d published, %d confirmed, %d received\n", r.Scenario, r.Size, r.Seconds, r.Published, r.Confirmed, r.Received)
	fmt.Fprintf(w, "  %.0f msg/s  %.1f MB/s  latency p50 %.2f  p99 %.2f  max %.2f ms\n", r.Rate, r.MBs, r.P50, r.P99, r.Max)
	if r.Checked {
		fmt.Fprintf(w, "  lost %d  duplicates %d\n", r.Lost, r.Duplicates)
	}
	if r.CPUMicros > 0 {
		fmt.Fprintf(w, "  broker CPU %.2f us per message\n", r.CPUMicros)
	}
	if r.Note != "" {
		fmt.Fprintf(w, "  %s\n", r.Note)
	}
}

// finish fills the derived figures. done counts the messages that completed
// within seconds.
func (r *Result) finish(done uint64, o Options, elapsed time.Duration, h *histogram, cpu time.Duration) {
	r.Seconds = elapsed.Seconds()
	r.Rate = float64(done) / r.Seconds
	r.MBs = r.Rate * float64(o.Size) / 1e6
	r.P50, r.P99, r.Max = h.quantile(0.50), h.quantile(0.99), h.max()
	if o.PID > 0 && done > 0 {
		r.CPUMicros = float64(cpu.Microseconds()) / float64(done)
	}
}

// parallel runs f for each of n workers and returns the first error. The other
// workers are cancelled by it.
func parallel(ctx context.Context, n int, f func(ctx context.Context, worker int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}
