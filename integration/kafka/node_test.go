// Package kafka tests the Kafka front-end from outside: real clients, real
// sockets, the real binary.
package kafka

import (
	"context"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// patience is for tests that wait for rebalances and foreign clients.
const patience = 3 * harness.Patience

// shared is the node that most tests use together, with names of their own.
var shared harness.Addresses

func TestMain(m *testing.M) { os.Exit(harness.Shared(m, &shared)) }

var must = harness.Must

// limited is a context for one test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func admin(t *testing.T, at harness.Addresses) *kadm.Client {
	t.Helper()
	return kadm.NewClient(at.DialKafka(t))
}

// consume reads records until there are as many as wanted.
func consume(ctx context.Context, t *testing.T, cl *kgo.Client, want int) []*kgo.Record {
	t.Helper()
	got, err := harness.Records(ctx, cl, want)
	must(t, err)
	return got
}

// produce sends records and waits until all are stored.
func produce(ctx context.Context, t *testing.T, cl *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	must(t, cl.ProduceSync(ctx, records...).FirstErr())
}

// until waits for a condition that the node reaches by itself.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	harness.Wait(t, patience, what, ok)
}
