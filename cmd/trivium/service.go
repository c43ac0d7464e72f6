package main

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/admin"
)

// service is what a node runs while it leads. The servers of the protocols outlast it.
type service struct {
	broker *broker.Broker
	admin  *admin.Server // answers HTTP
	ended  chan struct{} // closed when all of it has ended
}

func (n *node) newService(b *broker.Broker, log zerolog.Logger) *service {
	return &service{broker: b, admin: n.newAdmin(b, log.With().Str("listener", "http").Logger()), ended: make(chan struct{})}
}

// close has the clients that still have a link here leave it until ctx ends, and closes the
// broker.
func (s *service) close(ctx context.Context) error { return s.broker.Close(ctx) }
