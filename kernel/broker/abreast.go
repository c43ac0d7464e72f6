package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc"
)

const (
	// abreastAgain is the pause after a leader could not be asked how far the catalog is.
	abreastAgain = 100 * time.Millisecond
	// abreastTime is how long a login waits for the catalog.
	abreastTime = 5 * time.Second
)

var (
	errNotAbreast = kernel.Errorf(kernel.CodeUnavailable, "", "", "the node has started, and does not have all of the catalog yet: users may be missing here")
	errHearsay    = kernel.Errorf(kernel.CodeUnavailable, "", "", "the cluster has no leader at the moment, and by what this node knows of its users the name or password is wrong")
)

// comeAbreast waits until the catalog here has all that had been committed when the node
// started, which its leader tells.
func (n *Node) comeAbreast() {
	for n.ctx.Err() == nil {
		changed := n.Changed()
		index, err := n.barrier(n.ctx, metasvc.CatalogGroup)
		if err == nil && awaitApplied(n.ctx, n.catalog.Raft(), index) == nil {
			close(n.abreast)
			n.turn(func(*lead) {}) // who waits looks again
			return
		}
		select {
		case <-changed:
		case <-time.After(abreastAgain):
		case <-n.ctx.Done():
		}
	}
}

// Abreast returns nil once the catalog of this node has had all that had been committed
// when the node started, else CodeUnavailable: it may lack users until then.
func (n *Node) Abreast() error {
	if leads, _ := n.catalog.Raft().Leader(); leads {
		return nil
	}
	select {
	case <-n.abreast:
		return nil
	default:
		return errNotAbreast
	}
}

// awaitAbreast waits for that, for a while, if there is a leader who knows better.
func (n *Node) awaitAbreast(ctx context.Context) error {
	if _, leader := n.catalog.Raft().Leader(); leader == "" || n.Abreast() == nil {
		return nil
	}
	select {
	case <-n.abreast:
		return nil
	case <-time.After(abreastTime):
	case <-ctx.Done():
	}
	return errNotAbreast
}

// hearsay returns why this node cannot tell that somebody is not a user, nil if it can.
func (n *Node) hearsay() error {
	if _, leader := n.catalog.Raft().Leader(); leader == "" {
		return errHearsay
	}
	return n.Abreast()
}
