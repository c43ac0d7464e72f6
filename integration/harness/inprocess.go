package harness

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/mqtt"
)

// InProcess runs a node with an MQTT listener inside the test's own process and
// ends it with the test. Only for tests that need limits the binary has no
// setting for, or that look at the node's heap; all others use Start or Shared.
func InProcess(t testing.TB, limits mqtt.Limits) Addresses {
	t.Helper()
	log := zerolog.New(os.Stderr).Level(zerolog.WarnLevel)
	b, err := broker.Open(broker.Config{DataDir: t.TempDir(), Logger: log, Version: "test"})
	Must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(errors.Join(err, b.Close(context.Background())))
	}
	server, served := mqtt.NewServer(mqtt.Config{Edge: edge.Of(b), Logger: log, Limits: limits}), make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := errors.Join(server.Shutdown(ctx), <-served, b.Close(ctx)); err != nil {
			t.Errorf("end of the node: %v", err)
		}
	})
	return Addresses{MQTT: l.Addr().String()}
}
