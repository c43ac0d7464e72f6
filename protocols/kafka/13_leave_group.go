package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup, versions 0-5.
//
// v3: several members, also by instance id alone (KIP-345)
// v5: reason, ignored (KIP-800)

func (c *conn) handleLeaveGroup(req *kmsg.LeaveGroupRequest, resp *kmsg.LeaveGroupResponse) {
	if resp.ErrorCode = c.coordinated(req.Group); resp.ErrorCode != 0 {
		return
	}
	key := c.groupKey(req.Group)
	if req.Version < 3 {
		resp.ErrorCode = int16(c.srv.groups.Leave(key, req.MemberID, ""))
		return
	}
	for _, m := range req.Members {
		rm := kmsg.NewLeaveGroupResponseMember()
		rm.MemberID, rm.InstanceID = m.MemberID, m.InstanceID
		rm.ErrorCode = int16(c.srv.groups.Leave(key, m.MemberID, value(m.InstanceID)))
		resp.Members = append(resp.Members, rm)
	}
}
