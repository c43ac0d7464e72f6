// Package kafka tests the Kafka front-end from outside: real clients, real
// sockets, a whole node in this process.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/kafka"
	"github.com/trivium-mq/trivium/protocols/listener"
)

const patience = 30 * time.Second

// node is a broker with a Kafka listener.
type node struct {
	addr   string
	broker *broker.Broker
	server *kafka.Server
	served chan error
}

// shared is the node that most tests use together, with names of their own.
var shared *node

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trivium-kafka-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if shared, err = start(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop:", err)
		code = 1
	}
	return code
}

// start opens a node on a directory.
func start(dir string) (*node, error) {
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	b, err := broker.Open(broker.Config{DataDir: dir, Logger: log, Version: "test"})
	if err != nil {
		return nil, err
	}
	s, err := kafka.NewServer(b, kafka.Config{NodeID: 1, ClusterID: "trivium", Log: log})
	if err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	l, err := listener.Listen("127.0.0.1:0", listener.Options{})
	if err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	n := &node{addr: l.Addr().String(), broker: b, server: s, served: make(chan error, 1)}
	go func() { n.served <- s.Serve(l) }()
	return n, nil
}

func (n *node) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return errors.Join(n.server.Shutdown(ctx), <-n.served, n.broker.Close(ctx))
}

// limited is a context for one test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, n *node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.addr), kgo.MetadataMinAge(10 * time.Millisecond), kgo.AllowAutoTopicCreation(), kgo.FetchMaxWait(2 * time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func admin(t *testing.T, n *node) *kadm.Client { return kadm.NewClient(client(t, n)) }

// consume reads records until there are as many as wanted.
func consume(ctx context.Context, t *testing.T, cl *kgo.Client, want int) []*kgo.Record {
	t.Helper()
	var got []*kgo.Record
	for len(got) < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d: %v", len(got), want, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

// until waits for a condition that the node reaches by itself; each try is a
// request, which paces it.
func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// tool finds a program, or skips the test loudly; in CI a skip fails.
func tool(t *testing.T, name string, probe ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil && len(probe) > 0 {
		err = exec.Command(path, probe...).Run()
	}
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is missing: %v", name, err)
	}
	t.Skipf("SKIPPED: %s is missing: %v", name, err)
	return ""
}
