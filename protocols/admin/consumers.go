package admin

import (
	"fmt"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// consumerInfo is one consumer.
type consumerInfo struct {
	Tag         string         `json:"consumer_tag"`
	Queue       resourceName   `json:"queue"`
	Channel     channelRef     `json:"channel_details"`
	AckRequired bool           `json:"ack_required"`
	Exclusive   bool           `json:"exclusive"`
	Prefetch    int            `json:"prefetch_count"`
	Active      bool           `json:"active"`
	Activity    string         `json:"activity_status"`
	Arguments   map[string]any `json:"arguments"`
}

// resourceName names a queue.
type resourceName struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
}

// channelRef says whose a consumer is.
type channelRef struct {
	Name       string `json:"name"`
	Number     int    `json:"number"`
	Connection string `json:"connection_name"`
	Node       string `json:"node"`
	Host       string `json:"peer_host"`
	Port       int    `json:"peer_port"`
	User       string `json:"user"`
}

func (s *Server) consumerInfo(m *broker.MemberStatus) consumerInfo {
	info := consumerInfo{
		Tag: m.Tag, Queue: resourceName{groupName(m.Address), m.Address.Tenant}, AckRequired: m.Settles, Exclusive: m.Exclusive,
		Prefetch: m.Prefetch, Active: true, Activity: "up", Arguments: map[string]any{},
		Channel: channelRef{Number: m.Channel, Connection: connectionName(&m.Info), Node: s.nodeOf(&m.Info), User: m.Identity.User},
	}
	info.Channel.Host, info.Channel.Port = hostPort(m.Info.Remote)
	info.Channel.Name = channelName(&m.Info, m.Channel)
	return info
}

// groupName is a queue's name, or the share address of a group that is none.
func groupName(a kernel.GroupAddress) string {
	if a.IsOwn() {
		return a.Group
	}
	return a.String()
}

// channelName is a channel's name in RabbitMQ's form.
func channelName(info *kernel.ConnectionInfo, number int) string {
	return fmt.Sprintf("%s (%d)", connectionName(info), number)
}

// connectionName is a connection's name in RabbitMQ's form, by which it can be
// found and closed.
func connectionName(info *kernel.ConnectionInfo) string {
	return fmt.Sprintf("%v -> %v", info.Remote, info.Local)
}

// hostPort takes an address apart.
func hostPort(a net.Addr) (host string, port int) {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp != nil {
		return tcp.IP.String(), tcp.Port
	}
	if a == nil {
		return "", 0
	}
	return a.String(), 0
}

// listConsumers is GET /api/consumers and GET /api/consumers/{vhost}.
func listConsumers(c *call) error {
	rows := []broker.MemberStatus{}
	for _, m := range c.s.node.Members() {
		if len(c.args) == 1 && m.Address.Tenant != c.args[0] || !c.sees(m.Identity.User, m.Address.Tenant) {
			continue
		}
		rows = append(rows, m)
	}
	return list(c, rows, func(m *broker.MemberStatus) string { return groupName(m.Address) },
		func(m *broker.MemberStatus) any { return c.s.consumerInfo(m) })
}

// sees reports whether the user may see what belongs to a client's connection:
// a monitor all, others their own in their tenants.
func (c *call) sees(owner, vhost string) bool {
	return c.is(forMonitor) || owner == c.user.Name && c.member(vhost)
}
