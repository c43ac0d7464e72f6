// Package auth tests users, permissions and their withdrawal, with real clients
// of all protocols against one node.
package auth

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/kafka"
	"github.com/trivium-mq/trivium/protocols/mqtt"
)

// node is a node in the test's process, whose users the test makes.
type node struct {
	harness.Addresses
	*broker.Broker
	stop func()
}

type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// start runs a node on dir until the test ends, or stop.
func start(t testing.TB, dir string, change ...func(*broker.Config)) *node {
	t.Helper()
	log := zerolog.New(os.Stderr).Level(zerolog.ErrorLevel)
	cfg := broker.Config{DataDir: dir, Logger: log, Version: "test"}
	for _, fn := range change {
		fn(&cfg)
	}
	b, err := broker.Open(cfg)
	must(t, err)
	k, err := kafka.NewServer(edge.Of(b), kafka.Config{NodeID: 1, Node: b.NodeID(), ClusterID: b.ClusterID(), Log: log})
	must(t, err)
	n := &node{Broker: b}
	var servers []server
	served := make(chan error, 3)
	run := func(s server) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		servers = append(servers, s)
		go func() { served <- s.Serve(l) }()
		return l.Addr().String()
	}
	n.AMQP = run(amqp.NewServer(amqp.Config{Edge: edge.Of(b), Logger: log, Version: "test"}))
	n.MQTT = run(mqtt.NewServer(mqtt.Config{Edge: edge.Of(b), Logger: log}))
	n.Kafka = run(k)
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		var errs []error
		for _, s := range servers {
			errs = append(errs, s.Shutdown(ctx), <-served)
		}
		if err := errors.Join(append(errs, b.Close(ctx))...); err != nil {
			t.Errorf("end of the node: %v", err)
		}
	}
	t.Cleanup(n.stop)
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	harness.Must(t, err)
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

// user makes a user, whose password is his name.
func (n *node) user(t testing.TB, name string) {
	t.Helper()
	must(t, n.PutUser(soon(t), broker.UserSpec{Name: name, Password: &name}))
}

// grant gives a user access to a tenant.
func (n *node) grant(t testing.TB, tenant, user, configure, write, read string) {
	t.Helper()
	must(t, n.PutPermission(soon(t), kernel.Permission{Tenant: tenant, User: user, Configure: configure, Write: write, Read: read}))
}
