package mqtt

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// node is what the front-end needs of an edge.
type node interface {
	// Await waits until somebody serves.
	Await(ctx context.Context) error
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	BeginScram(mechanism, tenant string, remote net.Addr) (edge.Scram, bool)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	Counters(p kernel.Protocol) *broker.Counters
	Connect(ctx context.Context, id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (client, error)
}

// client is a connection, whichever node serves it.
type client interface {
	ID() kernel.ConnectionID
	Counters() *broker.Counters
	Publisher(done kernel.Completion) publisher
	AttachSession(ctx context.Context, a broker.Attaching, taken func()) (session, bool, error)
	// Linked reports whether somebody serves it. The function given to WatchAlarms is
	// told when that changes.
	Linked() bool
	Alarms() *broker.Alarms
	WatchAlarms(fn func())
	Close()
}

type publisher interface {
	edge.SessionPublisher
	Close()
}

// What a connection has of its session.
type (
	session    = edge.Session
	sessionPin = broker.SessionPin
	subscribed = edge.Subscribed
	member     = edge.SessionMember
	cursor     = edge.Cursor
)

// edgeNode makes an edge a node.
type edgeNode struct{ *edge.Edge }

func (n edgeNode) Connect(ctx context.Context, id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (client, error) {
	c, err := n.ConnectWithin(ctx, id, info, end)
	if err != nil {
		return nil, err
	}
	return edgeClient{c}, nil
}

type edgeClient struct{ *edge.Conn }

func (c edgeClient) Publisher(done kernel.Completion) publisher { return c.Conn.Publisher(done) }
