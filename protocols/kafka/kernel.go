package kafka

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// node is what the front-end needs of broker.Broker.
type node interface {
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	BeginScram(mechanism, tenant string, remote net.Addr) (*broker.Scram, bool)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	Settings() broker.Settings
	Counters(p kernel.Protocol) *broker.Counters
	Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (client, error)
}

// client is what the handlers need of broker.Conn.
type client interface {
	Identity() kernel.Identity
	Counters() *broker.Counters
	Close()

	May(act kernel.Act, kind, name string) bool
	MayAny(kind, name string) bool
	HasTag(tag string) bool

	AutoCreateTopic(ctx context.Context, name string) (*kernel.Topic, error)
	CreateTopic(ctx context.Context, t broker.TopicSpec) (*kernel.Topic, error)
	DeleteTopic(ctx context.Context, name string) error
	Topic(name string) (*kernel.Topic, bool)
	TopicByID(id kernel.TopicID) (*kernel.Topic, bool)
	Topics() []*kernel.Topic
	Partition(t *kernel.Topic, index int32) (partition, error)
	Publisher(done kernel.Completion) publisher

	CommitOffsets(ctx context.Context, group string, commits []broker.OffsetCommit) error
	Offsets(group string) ([]broker.OffsetCommit, error)
	OffsetGroups() []string
	DeleteOffsets(ctx context.Context, group string) error
	NewProducerID(ctx context.Context) (int64, error)
}

// partition is what the handlers need of broker.Partition.
type partition interface {
	Bounds() (start, end int64)
	Read(offset int64, maxBytes int, dst []byte) ([]byte, error)
	Around(offset int64) (next int64)
	TimeOffset(ts int64) (offset, timestamp int64, err error)
	Watch(offset int64, ready chan<- struct{}) (cancel func())
}

// publisher is what the handlers need of broker.Publisher.
type publisher interface {
	ToPartition(t *kernel.Topic, partition int32, batch []byte, token uint64) error
	Close()
}

// brokerNode and brokerClient fit the broker's concrete results to the
// interfaces above.
type brokerNode struct{ *broker.Broker }

func (n brokerNode) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (client, error) {
	c, err := n.Broker.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return brokerClient{c}, nil
}

type brokerClient struct{ *broker.Conn }

func (c brokerClient) Partition(t *kernel.Topic, index int32) (partition, error) {
	p, err := c.Conn.Partition(t, index)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (c brokerClient) Publisher(done kernel.Completion) publisher { return c.Conn.Publisher(done) }
