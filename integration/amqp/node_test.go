// Package amqp tests the AMQP front-end from outside: real clients, real
// sockets, a whole node in this process.
//
// With TRIVIUM_AMQP_ADDR=host:port the tests of errors run against that broker
// instead, which is how their table was compared with RabbitMQ.
package amqp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp"
)

const patience = 10 * time.Second

// node is a broker with an AMQP listener.
type node struct {
	addr   string
	broker *broker.Broker
	server *amqp.Server
	served chan error
}

// shared is the node that most tests use together, with names of their own.
var shared *node

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if addr := os.Getenv("TRIVIUM_AMQP_ADDR"); addr != "" {
		shared = &node{addr: addr}
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "trivium-amqp-")
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	n := &node{
		addr: l.Addr().String(), broker: b, served: make(chan error, 1),
		server: amqp.NewServer(amqp.Config{Broker: b, Logger: log, Version: "test"}),
	}
	go func() { n.served <- n.server.Serve(l) }()
	return n, nil
}

func (n *node) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-n.served; err != nil {
		return err
	}
	return n.broker.Close(ctx)
}

// external reports whether the tests run against some other broker.
func external() bool { return shared.broker == nil }

// recoverAll is basic.recover.
func recoverAll(ch *amqp091.Channel, requeue bool) error {
	//lint:ignore SA1019 old clients use it
	return ch.Recover(requeue)
}

// ownOnly skips what other brokers do differently on purpose.
func ownOnly(t *testing.T) {
	t.Helper()
	if external() {
		t.Skip("not comparable with another broker")
	}
}

var names atomic.Uint64

// name makes a name that no other test has, not even of another run.
func name(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, os.Getpid(), names.Add(1))
}

func dial(t testing.TB, n *node) *amqp091.Connection {
	t.Helper()
	c, err := amqp091.Dial("amqp://guest:guest@" + n.addr + "/")
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func channel(t testing.TB, c *amqp091.Connection) *amqp091.Channel {
	t.Helper()
	ch, err := c.Channel()
	must(t, err)
	return ch
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatal("closed")
		}
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// until polls a condition that another party brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came: %s", what)
		}
	}
}
