package admin

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Node is what the front-end asks of the broker: what there is, who may do
// what, and, for changes, a connection as one of its users.
type Node interface {
	Listings
	Directory
	Policies

	Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (*broker.Conn, error)
	Operate(id kernel.Identity, info kernel.ConnectionInfo) (*broker.Conn, error)
	CloseConnection(id kernel.ConnectionID, reason string) error
	Ready() error
	// Present is what the node itself is short of, with the figures of now.
	Present() *broker.Alarms
}

// Listings are snapshots of what there is.
type Listings interface {
	Counters(p kernel.Protocol) *broker.Counters
	Overview() broker.Overview

	QueueStatuses() []broker.QueueStatus
	QueueStatus(tenant, name string) (broker.QueueStatus, bool)
	Exchanges(tenant string) []kernel.Exchange
	Exchange(tenant, name string) (kernel.Exchange, bool)
	BindingsFrom(tenant, exchange string) []kernel.Binding
	BindingsOf(tenant, queue string) []kernel.Binding
	TopicStatuses(tenant string) []broker.TopicStatus
	TopicStatus(tenant, name string, kind kernel.TopicKind) (broker.TopicStatus, []broker.PartitionBounds, error)
	Groups(tenant string) []broker.GroupStatus
	Group(addr kernel.GroupAddress) (broker.GroupStatus, []broker.Progress, error)

	Connections() []broker.ConnectionStatus
	Connection(id kernel.ConnectionID) (broker.ConnectionStatus, error)
	Members() []broker.MemberStatus
}

// Directory is who there is and what he may do.
type Directory interface {
	Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error)
	MayEnter(id kernel.Identity) error
	HasTenant(tenant string) bool

	Tenants() []kernel.Tenant
	Tenant(name string) (kernel.Tenant, error)
	PutTenant(ctx context.Context, t kernel.Tenant) error
	DropTenant(ctx context.Context, name string) error

	Users() []kernel.User
	User(name string) (kernel.User, error)
	PutUser(ctx context.Context, u broker.UserSpec) error
	DropUser(ctx context.Context, name string) error

	Permissions() []kernel.Permission
	Permission(tenant, user string) (kernel.Permission, error)
	PutPermission(ctx context.Context, p kernel.Permission) error
	DropPermission(ctx context.Context, tenant, user string) error
	TopicPermissions() []kernel.TopicPermission
	PutTopicPermission(ctx context.Context, p kernel.TopicPermission) error
	DropTopicPermission(ctx context.Context, tenant, user, exchange string) error
}

// Policies are those of the tenants, and what they come to.
type Policies interface {
	Policies() []kernel.Policy
	Policy(tenant string, operator bool, name string) (kernel.Policy, error)
	PutPolicy(ctx context.Context, p kernel.Policy) error
	DropPolicy(ctx context.Context, tenant string, operator bool, name string) error
	QueuePolicies(q *broker.QueueStatus) broker.QueuePolicies
	ExchangePolicy(tenant, name string) *kernel.Policy
}

// Mapper reads and shows what the kernel keeps in a form of its own: arguments
// and messages (amqp.Mapper).
type Mapper interface {
	Queue(spec *broker.QueueSpec, vhost string, args map[string]any) error
	Arguments(args map[string]any) ([]kernel.Argument, error)
	Values(args []kernel.Argument) map[string]any
	Record(exchange, key string, properties map[string]any, body []byte, user string) (*kernel.Record, kernel.PublishOptions, error)
	Message(v *kernel.View, topic string) (exchange, key string, properties map[string]any)
}
