package broker

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/cluster"
)

// Steward is what operators ask of a node about its cluster, whether the node serves
// or not. Safe for concurrent use.
type Steward struct {
	*cluster.Node
	*Doorman
}

// Doorman lets those in who administer a node, whether it serves or not. Safe for
// concurrent use.
type Doorman struct {
	node   *Node
	access *access
}

// Doorman returns the node's doorman, always the same.
func (n *Node) Doorman() *Doorman { return n.doorman() }

// ID is the node's own, as in its configuration.
func (s *Doorman) ID() string { return s.node.file.Node }

// Present is Node.Present.
func (s *Doorman) Present() *Alarms { return s.node.Present() }

// Backup is that of the node.
func (s *Doorman) Backup(ctx context.Context, order kernel.BackupOrder) (kernel.BackupReport, error) {
	return s.node.Backup(ctx, order)
}

// Steward returns the node's steward, nil if it has no cluster listener.
func (n *Node) Steward() *Steward {
	if n.cluster == nil {
		return nil
	}
	return &Steward{Node: n.cluster, Doorman: n.Doorman()}
}

// Login checks the password of somebody who administers, by the catalog as this node
// has it: while it does not serve that may be behind by a moment, or longer when the
// cluster has no leader. Errors as for [Broker.Login]; CodeUnavailable while the node
// cannot tell that a name or password is wrong.
func (s *Doorman) Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error) {
	if b := s.node.facade.Load(); b != nil && b.directory() != nil && b.Ready() == nil { // not one that only begins
		return b.Login(ctx, user, password, remote)
	}
	if err := s.node.awaitAbreast(ctx); err != nil {
		return nil, err
	}
	find := func() (*kernel.User, bool) { return s.node.catalog.State().User(user) }
	return s.access.login(ctx, user, password, remote, find, s.node.hearsay)
}
