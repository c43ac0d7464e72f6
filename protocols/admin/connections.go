package admin

import (
	"cmp"
	"time"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// connectionInfo is one connection of a client.
type connectionInfo struct {
	Name      string         `json:"name"`
	Given     string         `json:"user_provided_name,omitempty"`
	ClientID  string         `json:"client_id,omitempty"`
	Number    uint64         `json:"connection_id"`
	Node      string         `json:"node"`
	VHost     string         `json:"vhost"`
	User      string         `json:"user"`
	By        string         `json:"user_who_performed_action"`
	Protocol  string         `json:"protocol"`
	Mechanism string         `json:"auth_mechanism"`
	State     string         `json:"state"`
	Type      string         `json:"type"`
	Channels  int            `json:"channels"`
	Consumers int            `json:"consumer_count"`
	At        int64          `json:"connected_at"` // milliseconds
	Timeout   int            `json:"timeout"`      // of heartbeats, seconds
	PeerHost  string         `json:"peer_host"`
	PeerPort  int            `json:"peer_port"`
	Host      string         `json:"host"`
	Port      int            `json:"port"`
	SSL       bool           `json:"ssl"`
	Client    map[string]any `json:"client_properties"`
}

// protocolNames are the names that RabbitMQ shows.
var protocolNames = map[string]string{"amqp": "AMQP", "mqtt": "MQTT", "kafka": "Kafka"}

func (s *Server) connectionInfo(x *broker.ConnectionStatus) connectionInfo {
	info := connectionInfo{
		Name: connectionName(&x.Info), ClientID: x.Info.ClientID, Number: uint64(x.ID), Node: s.nodeOf(&x.Info), VHost: x.Identity.Tenant,
		User: x.Identity.User, By: x.Identity.User, Mechanism: x.Info.Mechanism, State: "running", Type: "network",
		Channels: len(x.Channels), Consumers: x.Members, At: x.Connected.UnixMilli(), Timeout: int(x.Info.Heartbeat / time.Second),
		SSL: x.Info.Secure, Client: s.cfg.Mapper.Values(x.Info.Properties),
	}
	info.Protocol = cmp.Or(protocolNames[string(x.Info.Protocol)], string(x.Info.Protocol))
	if x.Info.Version != "" {
		info.Protocol += " " + x.Info.Version
	}
	if x.Closing {
		info.State = "closing"
	}
	if x.Info.Name != info.Name {
		info.Given = x.Info.Name
	}
	info.PeerHost, info.PeerPort = hostPort(x.Info.Remote)
	info.Host, info.Port = hostPort(x.Info.Local)
	return info
}

// connections are those that the user may see. The API's own are not shown.
func (c *call) connections() []broker.ConnectionStatus {
	rows := []broker.ConnectionStatus{}
	for _, x := range c.s.node.Connections() {
		if x.Info.Protocol != protocol && c.sees(x.Identity.User, x.Identity.Tenant) {
			rows = append(rows, x)
		}
	}
	return rows
}

func connectionRowName(x *broker.ConnectionStatus) string { return connectionName(&x.Info) }

// listConnections is GET /api/connections, .../username/{user} below it, and GET
// /api/vhosts/{vhost}/connections.
func listConnections(want func(c *call, x *broker.ConnectionStatus) bool) handler {
	return func(c *call) error {
		rows := []broker.ConnectionStatus{}
		for _, x := range c.connections() {
			if want(c, &x) {
				rows = append(rows, x)
			}
		}
		return list(c, rows, connectionRowName, func(x *broker.ConnectionStatus) any { return c.s.connectionInfo(x) })
	}
}

func everyConnection(*call, *broker.ConnectionStatus) bool      { return true }
func connectionOfUser(c *call, x *broker.ConnectionStatus) bool { return x.Identity.User == c.args[0] }
func connectionInVHost(c *call, x *broker.ConnectionStatus) bool {
	return x.Identity.Tenant == c.args[0]
}
func (c *call) namedConnection(x *broker.ConnectionStatus) bool {
	return connectionName(&x.Info) == c.args[0]
}

// connection is the one that the path names.
func (c *call) connection() (*broker.ConnectionStatus, error) {
	all := c.s.node.Connections()
	for i := range all {
		x := &all[i]
		if x.Info.Protocol == protocol || !c.namedConnection(x) {
			continue
		}
		if !c.sees(x.Identity.User, x.Identity.Tenant) {
			return nil, unauthorised("User not authorised to access object")
		}
		return x, nil
	}
	return nil, errNotFound
}

// getConnection is GET /api/connections/{name}.
func getConnection(c *call) error {
	x, err := c.connection()
	if err != nil {
		return err
	}
	return one(c, c.s.connectionInfo(x))
}

// deleteConnection is DELETE /api/connections/{name}: it closes the connection
// and tells the client what the header X-Reason says.
func deleteConnection(c *call) error {
	x, err := c.connection()
	if err != nil {
		return err
	}
	if err := c.mayClose(x); err != nil {
		return err
	}
	if err := c.s.node.CloseConnection(x.ID, c.reason()); err != nil {
		return errNotFound // it has just gone
	}
	return c.gone()
}

// deleteUserConnections is DELETE /api/connections/username/{user}.
func deleteUserConnections(c *call) error {
	if !c.is(administrator) && c.args[0] != c.user.Name { // whether or not he sees any
		return unauthorised("User not authorised to access object")
	}
	for _, x := range c.connections() {
		if x.Identity.User != c.args[0] {
			continue
		}
		if err := c.mayClose(&x); err != nil {
			return err
		}
		_ = c.s.node.CloseConnection(x.ID, c.reason()) // an error means that it has gone
	}
	return c.gone()
}

// mayClose lets administrators close all connections, others their own.
func (c *call) mayClose(x *broker.ConnectionStatus) error {
	if c.is(administrator) || x.Identity.User == c.user.Name {
		return nil
	}
	return unauthorised("User not authorised to access object")
}

// maxReason is how much of a reason is passed on, in bytes.
const maxReason = 200

func (c *call) reason() string {
	reason := c.r.Header.Get("X-Reason")
	if reason == "" {
		return "Closed via management plugin"
	}
	return reason[:min(len(reason), maxReason)]
}
