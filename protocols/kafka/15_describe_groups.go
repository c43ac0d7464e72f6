package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups, versions 0-6.
//
// v3: authorized operations, not computed: answered as not requested
// v4: instance ids (KIP-345)
// v6: GROUP_ID_NOT_FOUND for a group that does not exist, until then state Dead
//
// A group that has only committed offsets is Empty.

func (c *conn) handleDescribeGroups(req *kmsg.DescribeGroupsRequest, resp *kmsg.DescribeGroupsResponse) {
	var withOffsets []string
	var err error
	for _, name := range req.Groups {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group = name
		if out.ErrorCode = c.coordinated(name); out.ErrorCode != 0 {
			resp.Groups = append(resp.Groups, out)
			continue
		}
		d, ok := c.srv.groups.Describe(c.groupKey(name))
		out.State, out.ProtocolType, out.Protocol = d.State.String(), d.ProtocolType, d.Protocol
		for _, m := range d.Members {
			rm := kmsg.NewDescribeGroupsResponseGroupMember()
			rm.MemberID, rm.InstanceID, rm.ClientID, rm.ClientHost = m.ID, optional(m.Instance), m.ClientID, m.ClientHost
			rm.ProtocolMetadata, rm.MemberAssignment = m.Metadata, m.Assignment
			out.Members = append(out.Members, rm)
		}
		if !ok {
			if withOffsets == nil && err == nil {
				withOffsets, err = c.client.OffsetGroups(c.ctx)
			}
			if err != nil {
				out.ErrorCode = groupCode(err)
			} else if slices.Contains(withOffsets, name) {
				out.State = "Empty"
			} else if req.Version >= 6 {
				text := "the group does not exist"
				out.ErrorCode, out.ErrorMessage = kerr.GroupIDNotFound.Code, &text
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
}
