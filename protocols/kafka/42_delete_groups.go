package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups, versions 0-2.
//
// A group with members is not deleted; otherwise its committed offsets are
// forgotten, and with them the group.

func (c *conn) handleDeleteGroups(req *kmsg.DeleteGroupsRequest, resp *kmsg.DeleteGroupsResponse) {
	withOffsets, err := c.client.OffsetGroups(c.ctx)
	for _, name := range req.Groups {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group = name
		refused := c.coordinated(name) // and its members are loaded
		_, active := c.srv.groups.Describe(c.groupKey(name))
		switch {
		case refused != 0:
			out.ErrorCode = refused
		case err != nil:
			out.ErrorCode = groupCode(err)
		case active:
			out.ErrorCode = kerr.NonEmptyGroup.Code
		case !slices.Contains(withOffsets, name):
			out.ErrorCode = kerr.GroupIDNotFound.Code
		default:
			out.ErrorCode = groupCode(c.client.DeleteOffsets(c.ctx, name))
		}
		resp.Groups = append(resp.Groups, out)
	}
}
