package admin

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// groupInfo is one share group, or one group of log readers.
type groupInfo struct {
	Name      string `json:"name"` // queue name, share address, or the log readers' group
	VHost     string `json:"vhost"`
	Kind      string `json:"kind"` // queue, share, session, log
	Topic     string `json:"topic"`
	Client    string `json:"client_id,omitempty"`
	Declared  bool   `json:"declared"`
	Members   int    `json:"members"`
	Ready     int64  `json:"messages_ready"`
	Held      int64  `json:"messages_unacknowledged"`
	Delivered uint64 `json:"delivered"` // since start
	Settled   uint64 `json:"settled"`
}

// progressInfo is how far a group has come in one partition.
type progressInfo struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start_offset"`
	End       int64  `json:"end_offset"`
	Floor     int64  `json:"floor"` // everything below is settled, or the committed offset
	Lag       int64  `json:"lag"`
}

// sessionMark begins the group of a durable session in listings.
const sessionMark = "$session/"

func describeGroup(g *broker.GroupStatus) groupInfo {
	info := groupInfo{
		Name: groupName(g.Address), VHost: g.Address.Tenant, Kind: "share", Topic: g.Address.Topic, Declared: g.Declared,
		Members: g.Members, Ready: g.Ready, Held: g.Held, Delivered: g.Delivered, Settled: g.Settled,
	}
	switch {
	case g.Address.IsOwn():
		info.Kind = "queue"
	case g.Address.IsSession():
		info.Kind, info.Client = "session", strings.TrimPrefix(g.Address.Group, sessionMark)
		info.Name = g.Address.Group + "/" + g.Address.Topic
	}
	return info
}

// listGroups is GET /api/groups; listVHostGroups is GET /api/groups/{vhost}.
func listGroups(c *call) error      { return groupsOf(c, c.visible()) }
func listVHostGroups(c *call) error { return groupsOf(c, c.args[:1]) }

func groupsOf(c *call, vhosts []string) error {
	rows := []groupInfo{}
	for _, vhost := range vhosts {
		for _, g := range c.s.node.Groups(vhost) {
			rows = append(rows, describeGroup(&g))
		}
		if !c.member(vhost) {
			continue // positions are read as a member
		}
		err := c.within(vhost, func(conn *broker.Conn) error {
			for _, name := range conn.OffsetGroups() {
				rows = append(rows, groupInfo{Name: name, VHost: vhost, Kind: "log"})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return list(c, rows, func(g *groupInfo) string { return g.Name }, func(g *groupInfo) any { return g })
}

// getGroup is GET /api/groups/{vhost}/{name}: a queue's name, a share address, a
// session's group as listed, or a group of log readers.
func getGroup(c *call) error {
	vhost, name := c.args[0], c.args[1]
	addr := kernel.QueueAddress(vhost, name)
	if kernel.IsShare(name) {
		var err error
		if addr, _, err = kernel.ParseShare(vhost, name); err != nil {
			return errNotFound
		}
	}
	g, progress, err := c.s.node.Group(addr)
	if err != nil && strings.HasPrefix(name, sessionMark) {
		for _, each := range c.s.node.Groups(vhost) {
			if each.Address.IsSession() && describeGroup(&each).Name == name {
				g, progress, err = c.s.node.Group(each.Address)
			}
		}
	}
	if err != nil {
		return logGroup(c)
	}
	info := struct {
		groupInfo
		Partitions []progressInfo `json:"partitions"`
	}{describeGroup(&g), []progressInfo{}}
	for _, p := range progress {
		info.Partitions = append(info.Partitions, progressInfo{g.Address.Topic, p.Partition, p.Start, p.End, p.Floor, p.Unsettled})
	}
	return one(c, info)
}

// logGroup answers with the positions that a group of log readers has
// committed.
func logGroup(c *call) error {
	if !c.member(c.args[0]) {
		return errNotFound
	}
	info := struct {
		groupInfo
		Partitions []progressInfo `json:"partitions"`
	}{groupInfo{Name: c.args[1], VHost: c.args[0], Kind: "log"}, []progressInfo{}}
	err := c.within(c.args[0], func(conn *broker.Conn) error {
		commits, err := conn.Offsets(c.args[1])
		for _, o := range commits {
			t, ok := conn.TopicByID(o.Topic)
			if !ok {
				continue
			}
			p := progressInfo{Topic: t.Name, Partition: o.Partition, Floor: o.Offset}
			if part, err := conn.Partition(t, o.Partition); err == nil {
				p.Start, p.End = part.Bounds()
				p.Lag = max(p.End-max(o.Offset, p.Start), 0)
			}
			info.Partitions = append(info.Partitions, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(info.Partitions) == 0 {
		return errNotFound
	}
	return one(c, info)
}
