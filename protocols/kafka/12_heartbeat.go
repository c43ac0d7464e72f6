package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// Heartbeat, versions 0-4.
//
// v3: static members (KIP-345)

func (c *conn) handleHeartbeat(req *kmsg.HeartbeatRequest, resp *kmsg.HeartbeatResponse) {
	resp.ErrorCode = int16(c.srv.groups.Heartbeat(c.groupKey(req.Group), req.MemberID, value(req.InstanceID), req.Generation))
}

// groupKey is the key of a group of the connection's tenant.
func (c *conn) groupKey(name string) group.Key {
	return group.Key{Tenant: c.client.Identity().Tenant, Group: name}
}
