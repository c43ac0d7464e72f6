package main

import (
	"context"
	"errors"
	"time"
)

const (
	// lostTime is how long clients may take to go when the node leads no more:
	// nothing that they send can be confirmed.
	lostTime = 200 * time.Millisecond
	// leadRetry is the pause after a service that could not be started.
	leadRetry = time.Second
)

// lead runs the service whenever the node leads, until it stops. The outcome of the
// first try goes to first.
func (n *node) lead(first chan<- error) {
	for {
		err := n.leadOnce(first)
		if n.ctx.Err() != nil {
			return
		}
		if failed := n.replicas.Failed(); failed != nil {
			n.fail(failed)
			return
		}
		if err == nil {
			continue
		}
		n.log.Error().Err(err).Msg("the node leads and cannot serve")
		select {
		case first <- err:
		default:
		}
		select {
		case <-time.After(leadRetry):
		case <-n.ctx.Done():
			return
		}
	}
}

// leadOnce waits for a leadership and serves until it is over.
func (n *node) leadOnce(first chan<- error) error {
	b, err := n.replicas.Serve(n.ctx)
	if err != nil {
		return err
	}
	n.gather(b)
	s := n.newService(b, n.log)
	n.log.Info().Uint64("epoch", b.Epoch()).Msg("this node serves now")
	n.edge.set(s)
	n.gate.Serving(s.admin)
	select {
	case first <- nil:
	default:
	}
	select {
	case <-b.Lost():
		n.log.Warn().Uint64("epoch", b.Epoch()).Msg("this node no longer leads: its clients are cut off")
	case <-s.ended: // the leadership is being passed on
		select {
		case <-n.replicas.Changed():
		case <-time.After(leadRetry):
		case <-n.ctx.Done():
		}
		return nil
	case <-n.ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), lostTime)
	defer cancel()
	err = n.endService(ctx, false)
	<-s.ended
	return err
}

// endService ends the service if there is one: its clients have until ctx ends. With
// hand it passes the leadership on to another node.
func (n *node) endService(ctx context.Context, hand bool) error {
	if s := n.edge.get(); s != nil {
		s.broker.Retire() // before the clients of this node leave it
	}
	s := n.edge.take()
	if s == nil {
		return nil
	}
	n.gate.Serving(nil)
	err := s.close(ctx)
	if hand {
		n.replicas.HandOver(ctx)
	}
	close(s.ended)
	return err
}

// ready returns nil when clients are served, here or by another node, and this one knows its
// users.
func (n *node) ready() error {
	if !n.there.Load() {
		return errOpening
	}
	if s := n.edge.get(); s != nil {
		return s.broker.Ready()
	}
	if err := n.replicas.Served(); err != nil {
		return err
	}
	return n.replicas.Abreast()
}

// errOpening is why a node serves nobody that is not open.
var errOpening = errors.New("the node starts, or waits to be let into its cluster: its log says why")
