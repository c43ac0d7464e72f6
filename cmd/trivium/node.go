package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/cmd/trivium/config"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/admin"
	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/kafka"
	"github.com/trivium-mq/trivium/protocols/mqtt"
)

// clusterName is shown in listings.
const clusterName = "trivium"

// frontEnd is one protocol's server.
type frontEnd interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// node is a running broker with its front-ends, in the order they start.
type node struct {
	config  *config.Config
	memory  config.Memory // its shares worked out
	log     zerolog.Logger
	broker  *broker.Broker
	sockets *sockets
	fronts  []front
	servers map[string]frontEnd // by protocol
	wg      sync.WaitGroup
	failed  chan error // first failure of a front-end
	stop    context.CancelFunc
}

// openNode binds every listener, opens the broker and starts serving. A taken
// port or a locked data directory is a usageError. memory is the limit in bytes, 0
// = none.
func openNode(c *config.Config, memory int64, log zerolog.Logger) (_ *node, err error) {
	n := &node{config: c, memory: c.Memory.Shared(memory), log: log, servers: map[string]frontEnd{}, failed: make(chan error, 1), stop: func() {}}
	defer func() {
		if err != nil {
			n.abandon()
		}
	}()
	if err := n.bind(); err != nil {
		return n, usageError{err}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&frontMetrics{n.fronts, n.sockets.certificates})
	n.broker, err = broker.Open(broker.Config{
		Limits:  n.limits(memory),
		DataDir: c.Node.Data, NodeID: strconv.Itoa(c.Node.ID), Version: Version, Logger: log,
		Registerer: registry, ClusterAddr: string(c.Cluster.Listen), Settings: c.Settings(), Tables: amqp.Tables{},
		Admin: broker.Admin{User: c.Admin.User, Password: c.Admin.Password, PasswordHash: c.Admin.PasswordHash},
	})
	if err != nil {
		return n, openError(err)
	}
	for i := range n.fronts {
		f := &n.fronts[i]
		if n.servers[f.Protocol] == nil {
			log := log.With().Str("listener", f.Protocol).Logger()
			if n.servers[f.Protocol], err = n.newServer(f.Protocol, log, registry); err != nil {
				return n, usageError{err}
			}
		}
		f.server = n.servers[f.Protocol]
	}
	n.start()
	return n, nil
}

// limits are the kernel's share of the memory, and of the disk.
func (n *node) limits(memory int64) broker.Limits {
	l := n.config.Limits()
	l.MemoryBytes, l.CacheBytes, l.RetainedMemory = memory, int64(n.memory.Cache), int64(n.memory.Retained)
	l.Placement.InFlightBytes, l.Placement.VolatileBytes = int64(n.memory.InFlight), int64(n.memory.Volatile)
	l.Placement.VolatilePartitionBytes = max(l.Placement.VolatileBytes/4, 1)
	l.Placement.DiskFloor = int64(n.config.Disk.Low)
	return l
}

// bind binds the listeners that are on; the cluster's is the broker's own.
func (n *node) bind() (err error) {
	if n.sockets, err = newSockets(n.config, n.log); err != nil {
		return err
	}
	for _, s := range n.config.Sockets() {
		if s.Address.Off() || s.Protocol == "cluster" {
			continue
		}
		l, err := n.sockets.bind(s)
		if err != nil {
			return err
		}
		n.fronts = append(n.fronts, front{Socket: s, l: l})
	}
	return nil
}

func (n *node) start() {
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	if n.sockets.certificates != nil {
		n.wg.Go(func() { n.renewal().run(ctx) })
	}
	for _, f := range n.fronts {
		n.wg.Go(func() {
			if err := f.server.Serve(f.l); err != nil {
				select {
				case n.failed <- fmt.Errorf("%s: %w", f.Name, err):
				default:
				}
			}
		})
	}
}

func (n *node) renewal() renewal { return renewal{n.sockets.certificates, n.log} }

// reload takes what may change while the node runs: certificates.
func (n *node) reload() {
	if n.sockets.certificates == nil {
		n.log.Info().Msg("nothing to reload: no listener with TLS")
		return
	}
	n.renewal().now()
}

// openError makes what the user can mend a usage error.
func openError(err error) error {
	for _, mendable := range []error{broker.ErrLocked, broker.ErrFormat, broker.ErrIdentity, broker.ErrCluster} {
		if errors.Is(err, mendable) {
			return usageError{err}
		}
	}
	return err
}

func (n *node) newServer(protocol string, log zerolog.Logger, registry *prometheus.Registry) (frontEnd, error) {
	c := n.config
	patience := c.Connections.HandshakeTimeout
	switch protocol {
	case "amqp":
		return amqp.NewServer(amqp.Config{
			Broker: n.broker, Logger: log, Version: Version, HandshakeTimeout: patience,
			Heartbeat: c.AMQP.Heartbeat.Round(time.Second), FrameMax: c.AMQP.FrameMax, ChannelMax: c.AMQP.ChannelMax,
			OutTotal: int(n.memory.AMQPOut), InTotal: int(n.memory.AMQPIn), BlockedBuffer: int(c.AMQP.BlockedBuffer),
		}), nil
	case "mqtt":
		return mqtt.NewServer(mqtt.Config{Broker: n.broker, Logger: log, CertificateFirst: c.MQTT.CertificateFirst, Limits: mqtt.Limits{
			ConnectTimeout: patience, MaximumPacketSize: c.MQTT.MaxPacket, ReceiveMaximum: c.MQTT.ReceiveMaximum, KeepAlive: uint16(c.MQTT.MaxKeepAlive),
			OutTotal: int(n.memory.MQTTOut), InTotal: int(n.memory.MQTTIn),
		}}), nil
	case "kafka":
		return kafka.NewServer(n.broker, kafka.Config{
			NodeID: int32(c.Node.ID), ClusterID: n.broker.ClusterID(), Log: log, MaxBatchBytes: c.Kafka.MaxBatch, LoginTimeout: patience,
			Advertise: c.Kafka.Advertise, AdvertiseTLS: c.Kafka.TLSAdvertise,
			RequestMemory: int64(n.memory.KafkaRequests), FetchMemory: int64(n.memory.KafkaFetches),
		})
	default:
		return admin.NewServer(n.broker, admin.Config{Cluster: clusterName, Mapper: amqp.Mapper{}, Listeners: n.listeners, Gatherer: registry, Log: log}), nil
	}
}

// listeners describes the sockets for listings.
func (n *node) listeners() []admin.Listener {
	var out []admin.Listener
	for _, f := range n.fronts {
		out = append(out, admin.Listener{Protocol: f.Name, Address: f.l.Addr()})
	}
	return out
}

// addresses tells where the front-ends listen.
func (n *node) addresses() map[string]string {
	out := map[string]string{}
	for _, f := range n.fronts {
		out[f.Name] = f.l.Addr().String()
	}
	return out
}

// abandon undoes a start that failed.
func (n *node) abandon() {
	for _, f := range n.fronts {
		_ = f.l.Close()
	}
	if n.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), storeTime)
		defer cancel()
		_ = n.broker.Close(ctx)
	}
}

// close drains the front-ends side by side, then closes the broker.
func (n *node) close(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, n.config.Node.DrainTimeout)
	defer cancel()
	var stopping sync.WaitGroup
	for _, s := range n.servers {
		stopping.Go(func() {
			// A client that does not finish in time is cut off; that is no failure.
			_ = s.Shutdown(drain)
		})
	}
	stopping.Wait()
	n.stop()
	n.wg.Wait()
	return n.broker.Close(ctx)
}
