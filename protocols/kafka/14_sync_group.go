package kafka

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// SyncGroup, versions 0-5.
//
// v3: static members (KIP-345)
// v5: protocol type and name, checked against the group's (KIP-559)

func (c *conn) handleSyncGroup(req *kmsg.SyncGroupRequest, r *reply) {
	q := group.Sync{
		Group: req.Group, Member: req.MemberID, Instance: value(req.InstanceID), Generation: req.Generation,
		ProtocolType: req.ProtocolType, Protocol: req.Protocol,
	}
	if len(req.GroupAssignment) > 0 {
		q.Assignments = make(map[string][]byte, len(req.GroupAssignment))
		for _, a := range req.GroupAssignment {
			q.Assignments[a.MemberID] = bytes.Clone(a.MemberAssignment) // outlives the request's frame
		}
	}
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	if resp.ErrorCode = c.coordinated(req.Group); resp.ErrorCode != 0 {
		resp.MemberAssignment = []byte{}
		r.send(resp)
		return
	}
	c.srv.groups.Sync(c.client.Identity().Tenant, q, func(s group.Synced) {
		resp.ErrorCode, resp.MemberAssignment = int16(s.Err), s.Assignment
		if resp.MemberAssignment == nil {
			resp.MemberAssignment = []byte{}
		}
		if s.Err == group.OK {
			resp.ProtocolType, resp.Protocol = &s.ProtocolType, &s.Protocol
		}
		r.send(resp)
	})
}
