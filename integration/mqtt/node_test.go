// Package mqtt tests the MQTT front-end from outside: real clients and raw
// bytes over real sockets, a whole node in this process.
package mqtt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/mqtt"
)

const patience = 10 * time.Second

// node is a broker with an MQTT and an AMQP listener.
type node struct {
	addr, amqp string
	broker     *broker.Broker
	servers    []server
	served     chan error
}

type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// shared is the node that most tests use together, with names of their own.
var shared *node

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trivium-mqtt-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if shared, err = start(dir, mqtt.Limits{}); err != nil {
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
func start(dir string, l mqtt.Limits) (*node, error) {
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	b, err := broker.Open(broker.Config{DataDir: dir, Logger: log, Version: "test"})
	if err != nil {
		return nil, err
	}
	n := &node{broker: b, served: make(chan error, 2)}
	for _, s := range []struct {
		addr *string
		server
	}{
		{&n.addr, mqtt.NewServer(mqtt.Config{Broker: b, Logger: log, Limits: l})},
		{&n.amqp, amqp.NewServer(amqp.Config{Broker: b, Logger: log, Version: "test"})},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, n.stop())
		}
		*s.addr = l.Addr().String()
		n.servers = append(n.servers, s.server)
		go func() { n.served <- s.Serve(l) }()
	}
	return n, nil
}

func (n *node) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	for _, s := range n.servers {
		errs = append(errs, s.Shutdown(ctx), <-n.served)
	}
	return errors.Join(append(errs, n.broker.Close(ctx))...)
}

// private starts a node for one test.
func private(t testing.TB, dir string, l mqtt.Limits) *node {
	t.Helper()
	n, err := start(dir, l)
	must(t, err)
	return n
}

var names atomic.Uint64

// name makes a name that no other test has.
func name(kind string) string { return fmt.Sprintf("%s-%d", kind, names.Add(1)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receive takes one value from a channel or fails.
func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatal("nothing came")
	}
	panic("unreachable")
}
