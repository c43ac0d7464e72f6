package kafka

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// ListGroups, versions 0-5.
//
// v4: states, in the answer and as a filter (KIP-518)
// v5: types likewise (KIP-848): all groups are "classic"

const groupType = "classic"

func (c *conn) handleListGroups(req *kmsg.ListGroupsRequest, resp *kmsg.ListGroupsResponse) {
	if !admits(req.TypesFilter, groupType) {
		return
	}
	if err := c.loadAll(); err != nil {
		resp.ErrorCode = groupCode(err)
		return
	}
	list := c.srv.groups.List(c.client.Identity().Tenant)
	active := len(list)
	withOffsets, err := c.client.OffsetGroups(c.ctx)
	if err != nil {
		resp.ErrorCode = groupCode(err)
		return
	}
	for _, name := range withOffsets {
		if !c.coordinates(name) {
			continue // the node that does lists it
		}
		known := func(d group.Description) bool { return d.Group == name }
		if !slices.ContainsFunc(list[:active], known) {
			list = append(list, group.Description{Key: c.groupKey(name), State: group.Empty, ProtocolType: "consumer"})
		}
	}
	for _, d := range list {
		if !admits(req.StatesFilter, d.State.String()) || c.groupRefused(d.Group) != 0 {
			continue
		}
		out := kmsg.NewListGroupsResponseGroup()
		out.Group, out.ProtocolType, out.GroupState, out.GroupType = d.Group, d.ProtocolType, d.State.String(), groupType
		resp.Groups = append(resp.Groups, out)
	}
}

// admits tells whether a filter, of which none is given or one matches, lets
// value through.
func admits(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
