package pressure

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/kafka"
	"github.com/trivium-mq/trivium/protocols/mqtt"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// faulty is a node in this process, whose disk a test can break. It speaks all
// three protocols.
type faulty struct {
	broker *broker.Broker
	fault  *vfs.Fault
	at     harness.Addresses

	servers []server
	served  chan error
}

type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// openFaulty opens a node with that much log between two seals, 0 for the usual.
func openFaulty(t *testing.T, dir string, sealBytes int64) (n *faulty, end func()) {
	t.Helper()
	log := zerolog.New(os.Stderr).Level(zerolog.Disabled)
	n = &faulty{fault: vfs.NewFault(vfs.OS()), served: make(chan error, 3)}
	var err error
	n.broker, err = broker.Open(broker.Config{DataDir: dir, FS: n.fault, Logger: log, Version: "test",
		Limits: broker.Limits{Placement: placement.Limits{SealBytes: sealBytes}}})
	harness.Must(t, err)
	k, err := kafka.NewServer(edge.Of(n.broker), kafka.Config{NodeID: 1, Node: n.broker.NodeID(), ClusterID: "test", Log: log})
	harness.Must(t, err)
	n.serve(t, &n.at.AMQP, amqp.NewServer(amqp.Config{Edge: edge.Of(n.broker), Logger: log, Heartbeat: time.Second}))
	n.serve(t, &n.at.MQTT, mqtt.NewServer(mqtt.Config{Edge: edge.Of(n.broker), Logger: log}))
	n.serve(t, &n.at.Kafka, k)
	return n, func() { n.end(t) }
}

func (n *faulty) serve(t *testing.T, addr *string, s server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(errors.Join(err, n.broker.Close(context.Background())))
	}
	*addr = l.Addr().String()
	n.servers = append(n.servers, s)
	go func() { n.served <- s.Serve(l) }()
}

func (n *faulty) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	// A node that has failed cannot close its log in order.
	for _, s := range n.servers {
		_ = s.Shutdown(ctx)
	}
	for range n.servers {
		harness.Must(t, <-n.served)
	}
	_ = n.broker.Close(ctx)
}
