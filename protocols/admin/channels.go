package admin

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// channelRow is a channel of a connection.
type channelRow struct {
	conn *broker.ConnectionStatus
	kernel.ChannelStatus
}

// channelInfo is one channel.
type channelInfo struct {
	Name       string        `json:"name"`
	Number     int           `json:"number"`
	Connection connectionRef `json:"connection_details"`
	Node       string        `json:"node"`
	VHost      string        `json:"vhost"`
	User       string        `json:"user"`
	By         string        `json:"user_who_performed_action"`
	State      string        `json:"state"`
	Consumers  int           `json:"consumer_count"`
	Unacked    int           `json:"messages_unacknowledged"`
	Prefetch   int           `json:"prefetch_count"`
	Confirm    bool          `json:"confirm"`
	Tx         bool          `json:"transactional"`
}

// connectionRef says whose a channel is.
type connectionRef struct {
	Name string `json:"name"`
	Host string `json:"peer_host"`
	Port int    `json:"peer_port"`
}

func (s *Server) channelInfo(ch *channelRow) channelInfo {
	info := channelInfo{
		Name: channelName(&ch.conn.Info, ch.Number), Number: ch.Number, Node: s.nodeOf(&ch.conn.Info), VHost: ch.conn.Identity.Tenant,
		User: ch.conn.Identity.User, By: ch.conn.Identity.User, State: "running", Consumers: ch.Consumers, Unacked: ch.Unsettled,
		Prefetch: ch.Prefetch, Confirm: ch.Confirms, Connection: connectionRef{Name: connectionName(&ch.conn.Info)},
	}
	info.Connection.Host, info.Connection.Port = hostPort(ch.conn.Info.Remote)
	return info
}

// channels are those of the connections that the user may see and want admits.
func (c *call) channels(want func(*broker.ConnectionStatus) bool) []channelRow {
	rows := []channelRow{}
	conns := c.connections()
	for i := range conns {
		if !want(&conns[i]) {
			continue
		}
		for _, ch := range conns[i].Channels {
			rows = append(rows, channelRow{&conns[i], ch})
		}
	}
	return rows
}

// listChannels is GET /api/channels, GET /api/vhosts/{vhost}/channels and GET
// /api/connections/{name}/channels.
func listChannels(want func(c *call, x *broker.ConnectionStatus) bool) handler {
	return func(c *call) error {
		rows := c.channels(func(x *broker.ConnectionStatus) bool { return want(c, x) })
		return list(c, rows, func(ch *channelRow) string { return channelName(&ch.conn.Info, ch.Number) },
			func(ch *channelRow) any { return c.s.channelInfo(ch) })
	}
}

func channelsOfConnection(c *call) error {
	x, err := c.connection()
	if err != nil {
		return err
	}
	return listChannels(func(_ *call, y *broker.ConnectionStatus) bool { return y.ID == x.ID })(c)
}

// getChannel is GET /api/channels/{name}.
func getChannel(c *call) error {
	rows := c.channels(func(*broker.ConnectionStatus) bool { return true })
	for i := range rows {
		if channelName(&rows[i].conn.Info, rows[i].Number) == c.args[0] {
			return one(c, c.s.channelInfo(&rows[i]))
		}
	}
	return errNotFound
}
