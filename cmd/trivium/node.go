package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/admin"
	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/kafka"
	"github.com/trivium-mq/trivium/protocols/listener"
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
	broker *broker.Broker
	fronts []front
	wg     sync.WaitGroup
	failed chan error // first failure of a front-end
}

type front struct {
	name   string
	server frontEnd
	l      net.Listener
}

// openNode binds every listener, opens the broker and starts serving. A taken
// port or a locked data directory is a usageError.
func openNode(c Config, log zerolog.Logger) (_ *node, err error) {
	n := &node{failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			n.abandon()
		}
	}()
	budget := listener.NewBudget(connectionBudget(openFiles()))
	for _, f := range []struct{ name, addr string }{
		{"amqp", c.AMQP.Listen}, {"mqtt", c.MQTT.Listen}, {"kafka", c.Kafka.Listen}, {"http", c.HTTP.Listen},
	} {
		if f.addr == addressOff {
			continue
		}
		l, err := listener.Listen(f.addr, listener.Options{
			Budgets: []*listener.Budget{budget}, OnError: newAcceptLog(log.With().Str("listener", f.name).Logger()).report,
		})
		if err != nil {
			return n, usageError{fmt.Errorf("%s: %w", f.name, err)}
		}
		n.fronts = append(n.fronts, front{name: f.name, l: l})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.broker, err = broker.Open(broker.Config{
		DataDir: c.Node.Data, NodeID: strconv.Itoa(c.Node.ID), Version: Version, Logger: log,
		Registerer: registry, ClusterAddr: c.Cluster.Listen,
	})
	if err != nil {
		return n, openError(err)
	}
	for i := range n.fronts {
		f := &n.fronts[i]
		if f.server, err = n.newServer(f.name, c, log.With().Str("listener", f.name).Logger(), registry); err != nil {
			return n, usageError{err}
		}
	}
	for _, f := range n.fronts {
		n.wg.Go(func() {
			if err := f.server.Serve(f.l); err != nil {
				select {
				case n.failed <- fmt.Errorf("%s: %w", f.name, err):
				default:
				}
			}
		})
	}
	return n, nil
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

func (n *node) newServer(name string, c Config, log zerolog.Logger, registry *prometheus.Registry) (frontEnd, error) {
	switch name {
	case "amqp":
		return amqp.NewServer(amqp.Config{Broker: n.broker, Logger: log, Version: Version}), nil
	case "mqtt":
		return mqtt.NewServer(mqtt.Config{Broker: n.broker, Logger: log}), nil
	case "kafka":
		return kafka.NewServer(n.broker, kafka.Config{NodeID: int32(c.Node.ID), ClusterID: n.broker.ClusterID(), Advertise: c.Kafka.Advertise, Log: log})
	default:
		return admin.NewServer(n.broker, admin.Config{Cluster: clusterName, Listeners: n.listeners, Gatherer: registry, Log: log}), nil
	}
}

// listeners describes the sockets for listings.
func (n *node) listeners() []admin.Listener {
	var out []admin.Listener
	for _, f := range n.fronts {
		out = append(out, admin.Listener{Protocol: f.name, Address: f.l.Addr()})
	}
	return out
}

// addresses tells where the front-ends listen.
func (n *node) addresses() map[string]string {
	out := map[string]string{}
	for _, f := range n.fronts {
		out[f.name] = f.l.Addr().String()
	}
	return out
}

// abandon undoes a start that failed.
func (n *node) abandon() {
	for _, f := range n.fronts {
		_ = f.l.Close()
	}
	if n.broker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainBudget)
		defer cancel()
		_ = n.broker.Close(ctx)
	}
}

// close drains the front-ends side by side, then closes the broker.
func (n *node) close(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, drainBudget)
	defer cancel()
	var stopping sync.WaitGroup
	for _, f := range n.fronts {
		stopping.Go(func() {
			// A client that does not finish in time is cut off; that is no failure.
			_ = f.server.Shutdown(drain)
		})
	}
	stopping.Wait()
	n.wg.Wait()
	return n.broker.Close(ctx)
}
