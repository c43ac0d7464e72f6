// Package crash kills the real broker under load and checks what it promised.
package crash

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// history is what the clients of one topic know.
type history struct {
	mu        sync.Mutex
	published map[string]bool
	confirmed map[string]bool
	acked     map[string]time.Time // when its ack was sent
	settled   map[string]bool      // acked long before the end of a life
	returned  []string             // settled, and delivered again
	begun     time.Time            // this life
	killed    time.Time            // the last kill
	slowest   time.Duration        // that a publish of this life has waited for its confirm
}

func newHistory() *history {
	return &history{published: map[string]bool{}, confirmed: map[string]bool{}, acked: map[string]time.Time{}, settled: map[string]bool{}}
}

func (h *history) publish(body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published[body] = true
}

func (h *history) confirm(body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed[body] = true
}

// deliver notes a delivery, and that its ack is about to be sent.
func (h *history) deliver(body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settled[body] {
		h.returned = append(h.returned, body)
	}
	h.acked[body] = time.Now()
}

func (h *history) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed = time.Now()
}

// wait notes how long a publish has waited for its confirm.
func (h *history) wait(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slowest = max(h.slowest, d)
}

// restart begins a life. Acks are logged within a second, and later by as much as
// confirms were late: then the machine had no time for the node.
func (h *history) restart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	long := h.killed.Add(-time.Second - h.slowest)
	for body, at := range h.acked {
		if at.After(h.begun) && at.Before(long) {
			h.settled[body] = true
		}
	}
	h.begun, h.slowest = time.Now(), 0
}

// check compares the history with the log read back.
func (h *history) check(t *testing.T, topic string, log map[string]int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	missing, invented := 0, 0
	for body := range h.confirmed {
		if log[body] == 0 {
			if missing++; missing <= 5 {
				t.Errorf("%s: confirmed %s is missing", topic, body)
			}
		}
	}
	for body := range log {
		if !h.published[body] {
			if invented++; invented <= 5 {
				t.Errorf("%s: %q was never published", topic, body)
			}
		}
	}
	if len(h.returned) > 0 {
		t.Errorf("%s: %d acks sent long before a kill came back, e.g. %s", topic, len(h.returned), h.returned[0])
	}
	t.Logf("%s: %d published, %d confirmed, %d acked, %d in the log; %d missing, %d invented", topic, len(h.published), len(h.confirmed), len(h.acked), len(log), missing, invented)
}

func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("TRIVIUM_CRASH_ROUNDS")); err == nil {
		return n
	}
	return 20
}

func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("TRIVIUM_SEED"), 10, 64); err == nil {
		return n
	}
	return uint64(time.Now().UnixNano())
}

// TestKillUnderLoad: kill -9 under full confirmed load over three protocols,
// again and again on one data directory. Nothing confirmed is missing, nothing
// is invented, old acks do not come back.
func TestKillUnderLoad(t *testing.T) {
	s := seed()
	t.Logf("seed %d (TRIVIUM_SEED)", s)
	rng := rand.New(rand.NewPCG(s, 1))
	b := harness.Start(t)
	overAMQP, overMQTT, overKafka := newHistory(), newHistory(), newHistory()
	prepare(t, b)
	for round := range rounds() {
		ctx, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		clients.Go(func() { publishAMQP(ctx, b, overAMQP, round) })
		clients.Go(func() { consumeAMQP(ctx, b, overAMQP) })
		clients.Go(func() { publishMQTT(ctx, b, overMQTT, round) })
		clients.Go(func() { publishKafka(ctx, b, overKafka, round) })
		load := time.NewTimer(time.Duration(300+rng.IntN(1500)) * time.Millisecond)
		<-load.C
		b.Kill()
		for _, h := range []*history{overAMQP, overMQTT, overKafka} {
			h.kill()
		}
		cancel()
		clients.Wait()
		overAMQP.restart()
		b.Run()
	}
	for topic, h := range map[string]*history{"work": overAMQP, "sensors": overMQTT, "events": overKafka} {
		h.check(t, topic, readAll(t, b, topic))
	}
	consumeRest(t, b, overAMQP)
}

// readAll reads a topic over Kafka from its first offset to its end.
func readAll(t *testing.T, b *harness.Broker, topic string) map[string]int {
	t.Helper()
	c := b.DialKafka(t, kgo.ConsumeTopics(topic))
	end := endOffset(t, c, topic)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	out := map[string]int{}
	for next := int64(0); next < end; {
		f := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s: read %d of %d records", topic, next, end)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next {
				t.Errorf("%s: offset %d follows %d", topic, r.Offset, next-1)
			}
			next = r.Offset + 1
			out[string(r.Value)]++
		})
	}
	return out
}
