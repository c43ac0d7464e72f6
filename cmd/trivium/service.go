package main

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/admin"
)

// service is what a node runs while it leads: the broker and the servers of all
// protocols, which get their connections from the node.
type service struct {
	broker  *broker.Broker
	servers map[string]frontEnd // by protocol
	admin   *admin.Server       // answers HTTP
	queues  map[string]*queue   // by front's name
	carried map[string]*queue   // by protocol: clients of other nodes
	serving sync.WaitGroup
	ended   chan struct{} // closed when all of it has ended
}

// newService starts the servers whose connections last no longer than a service: also of
// protocols for which this node has no listener, as other nodes may have one.
func (n *node) newService(b *broker.Broker) (*service, error) {
	log := func(protocol string) zerolog.Logger { return n.log.With().Str("listener", protocol).Logger() }
	s := &service{
		broker: b, servers: map[string]frontEnd{}, queues: map[string]*queue{}, carried: map[string]*queue{},
		admin: n.newAdmin(b, log("http")), ended: make(chan struct{}),
	}
	server, err := n.newKafka(b, log("kafka"))
	if err != nil {
		return nil, usageError{err}
	}
	s.servers["kafka"] = server
	for protocol, server := range s.servers {
		s.carried[protocol] = newQueue(n.address(protocol))
		n.serve(s, protocol, server, s.carried[protocol])
	}
	for _, f := range n.fronts {
		if server := s.servers[f.Protocol]; server != nil {
			s.queues[f.Name] = newQueue(f.l.Addr())
			n.serve(s, f.Name, server, s.queues[f.Name])
		}
	}
	return s, nil
}

// serve has a server take the connections of a queue until it shuts down.
func (n *node) serve(s *service, name string, server frontEnd, q *queue) {
	s.serving.Go(func() {
		if err := server.Serve(q); err != nil {
			n.fail(fmt.Errorf("%s: %w", name, err))
		}
	})
}

// put hands a connection of a front's listener over; false if the service ends.
func (s *service) put(name string, c net.Conn) bool { return s.queues[name].put(c) }

// close drains the servers until ctx ends, and closes the broker.
func (s *service) close(ctx context.Context) error {
	s.shutdown(ctx)
	for _, q := range s.queues {
		_ = q.Close()
	}
	for _, q := range s.carried {
		_ = q.Close()
	}
	s.serving.Wait()
	return s.broker.Close(ctx)
}

// shutdown drains the servers side by side until ctx ends.
func (s *service) shutdown(ctx context.Context) {
	var stopping sync.WaitGroup
	for _, server := range s.servers {
		stopping.Go(func() {
			// A client that does not finish in time is cut off; that is no failure.
			_ = server.Shutdown(ctx)
		})
	}
	stopping.Wait()
}
