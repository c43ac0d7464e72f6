package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// Heartbeat, versions 0-4.
//
// v3: static members (KIP-345)

func (c *conn) handleHeartbeat(req *kmsg.HeartbeatRequest, resp *kmsg.HeartbeatResponse) {
	if resp.ErrorCode = c.coordinated(req.Group); resp.ErrorCode != 0 {
		return
	}
	resp.ErrorCode = int16(c.srv.groups.Heartbeat(c.groupKey(req.Group), req.MemberID, value(req.InstanceID), req.Generation))
}

// groupRefused returns the code for a group that the user may not read, 0 if he
// may.
func (c *conn) groupRefused(name string) int16 { return c.allowed(kernel.Read, broker.KindGroup, name) }

// groupKey is the key of a group of the connection's tenant.
func (c *conn) groupKey(name string) group.Key {
	return group.Key{Tenant: c.client.Identity().Tenant, Group: name}
}
