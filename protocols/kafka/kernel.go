package kafka

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// node is what the front-end needs of edge.Edge.
type node interface {
	// Await waits until somebody serves.
	Await(ctx context.Context) error
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	BeginScram(mechanism, tenant string, remote net.Addr) (edge.Scram, bool)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	Counters(p kernel.Protocol) *broker.Counters
	edge.Coordinating
	Connect(ctx context.Context, id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (client, error)
}

// client is what the handlers need of edge.Conn.
type client interface {
	Identity() kernel.Identity
	Counters() *broker.Counters
	Await(ctx context.Context) error
	Close()

	HasTag(tag string) bool
	Publisher(done kernel.Completion) publisher
	edge.Logs
}

// publisher is what the handlers need of edge.Publisher.
type publisher interface {
	ToPartition(t *kernel.Topic, partition int32, batch []byte, token uint64) error
	Close()
}

// edgeNode and edgeClient fit the edge's concrete results to the interfaces above.
type edgeNode struct{ *edge.Edge }

func (n edgeNode) Connect(ctx context.Context, id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (client, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := n.ConnectWithin(ctx, id, info, end)
	if err != nil {
		return nil, err
	}
	c.SetPatience(patience)
	return edgeClient{c}, nil
}

type edgeClient struct{ *edge.Conn }

func (c edgeClient) Publisher(done kernel.Completion) publisher { return c.Conn.Publisher(done) }

// allowed returns the code for a resource with which the user may not do something, 0 if
// he may.
func (c *conn) allowed(act kernel.Act, kind, name string) int16 {
	return c.allowedOne(kernel.Acts(0).With(act), kind, name)
}

// allowedAny returns the code for a resource with which the user may do nothing at all, 0
// if he may do something.
func (c *conn) allowedAny(kind, name string) int16 {
	return c.allowedOne(kernel.AnyAct, kind, name)
}

func (c *conn) allowedOne(any kernel.Acts, kind, name string) int16 {
	refused, code := kerr.TopicAuthorizationFailed.Code, topicCode
	if kind == broker.KindGroup {
		refused, code = kerr.GroupAuthorizationFailed.Code, groupCode
	}
	may, err := c.client.May(c.ctx, any, kind, name)
	switch {
	case err != nil:
		return code(err)
	case !may:
		return refused
	}
	return 0
}
