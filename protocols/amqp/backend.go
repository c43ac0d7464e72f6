package amqp

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// backend is what the front-end needs of a node.
type backend interface {
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	HasTenant(tenant string) (bool, error)
	Counters(p kernel.Protocol) *broker.Counters
	Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (link, error)
}

// What a connection has of it.
type (
	link      = edge.Link
	member    = edge.Member
	publisher = edge.Publisher
	pool      = edge.Pool
)

// node makes an edge a backend.
type node struct{ *edge.Edge }

func (n node) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (link, error) {
	c, err := n.Edge.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return c, nil
}
