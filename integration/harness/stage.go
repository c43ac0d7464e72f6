package harness

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// Server is a front-end that lasts as long as the process.
type Server interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
}

// Stage is a node in the test's own process whose facade comes and goes behind a server
// that stays, as that of a cluster's node does when another one begins to serve.
type Stage struct {
	Door *edge.Edge

	t    testing.TB
	node *broker.Node
	now  *broker.Broker // nil = nobody serves
}

// NewStage opens a stage with the server that open makes, which serves, and returns the
// address of its listener. It ends with the test.
func NewStage(t testing.TB, open func(*edge.Edge) Server) (s *Stage, addr string) {
	t.Helper()
	n, err := broker.OpenNode(context.Background(), broker.Config{DataDir: t.TempDir(), Logger: zerolog.Nop()})
	Must(t, err)
	s = &Stage{Door: edge.New(edge.Config{Counters: n.Counters, Logger: zerolog.Nop()}), t: t, node: n}
	server := open(s.Door)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		s.Door.Shut(errors.New("shutdown"))
		Must(t, server.Shutdown(ctx))
		Must(t, <-served)
		s.Rest()
		s.Door.Close()
		Must(t, n.Close())
	})
	s.Serve()
	return s, l.Addr().String()
}

// Serve has a new facade serve.
func (s *Stage) Serve() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	b, err := s.node.Serve(ctx)
	Must(s.t, err)
	s.now = b
	s.Door.Set(edge.Local(b))
}

// Rest ends the facade, if there is one: nobody serves.
func (s *Stage) Rest() {
	s.t.Helper()
	if s.now == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	Must(s.t, s.now.Close(ctx))
	s.now = nil
}
