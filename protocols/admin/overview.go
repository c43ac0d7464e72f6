package admin

import (
	"net"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// compatible is the RabbitMQ release whose API this one is shaped after.
// Clients read it to decide what they may ask.
const compatible = "3.13.7"

const productName = "Trivium"

// overview is GET /api/overview.
type overview struct {
	ManagementVersion string         `json:"management_version"`
	RatesMode         string         `json:"rates_mode"`
	ExchangeTypes     []exchangeType `json:"exchange_types"`
	ProductVersion    string         `json:"product_version"`
	ProductName       string         `json:"product_name"`
	RabbitMQVersion   string         `json:"rabbitmq_version"`
	ClusterName       string         `json:"cluster_name"`
	DisableStats      bool           `json:"disable_stats"`
	EnableQueueTotals bool           `json:"enable_queue_totals"`
	MessageStats      messageStats   `json:"message_stats"`
	ChurnRates        churn          `json:"churn_rates"`
	QueueTotals       depth          `json:"queue_totals"`
	ObjectTotals      objects        `json:"object_totals"`
	EventQueue        int            `json:"statistics_db_event_queue"`
	Node              string         `json:"node"`
	Listeners         []listenerInfo `json:"listeners"`
	Contexts          []contextInfo  `json:"contexts"`
	// Uptime is in milliseconds, as in RabbitMQ's node resource.
	Uptime int64 `json:"uptime"`
}

type exchangeType struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

type churn struct {
	ConnectionCreated uint64 `json:"connection_created"`
	ConnectionClosed  uint64 `json:"connection_closed"`
}

type objects struct {
	Channels    int `json:"channels"`
	Connections int `json:"connections"`
	Consumers   int `json:"consumers"`
	Exchanges   int `json:"exchanges"`
	Queues      int `json:"queues"`
}

type listenerInfo struct {
	Node      string   `json:"node"`
	Protocol  string   `json:"protocol"`
	IPAddress string   `json:"ip_address"`
	Port      int      `json:"port"`
	Options   struct{} `json:"socket_opts"`
}

type contextInfo struct {
	Node        string   `json:"node"`
	Description string   `json:"description"`
	Path        string   `json:"path"`
	Port        int      `json:"port"`
	SSLOptions  []string `json:"ssl_opts"`
}

var exchangeTypes = []exchangeType{
	{"direct", "AMQP direct exchange, as per the AMQP specification", true},
	{"fanout", "AMQP fanout exchange, as per the AMQP specification", true},
	{"topic", "AMQP topic exchange, as per the AMQP specification", true},
	{"headers", "AMQP headers exchange, as per the AMQP specification", true},
	{"x-consistent-hash", "Consistent hashing exchange", true},
	{"x-modulus-hash", "Modulus hashing exchange", true},
	{"x-random", "Random exchange", true},
	{"x-local-random", "Random exchange that prefers its node", true},
}

// getOverview is GET /api/overview.
func getOverview(c *call) error {
	s := c.s
	now, o := time.Now(), s.node.Overview()
	name := s.nodeName(o.NodeID)
	all, opened, closed := totals(&o)
	from := s.rates.update(now, all, s.node.QueueStatuses())
	per := from.since(now)
	out := overview{
		ManagementVersion: compatible, RabbitMQVersion: compatible, RatesMode: "basic",
		ProductName: productName, ProductVersion: o.Version, ClusterName: s.clusterName(o.NodeID), Node: name,
		ExchangeTypes: exchangeTypes, MessageStats: statsOf(from.all, all, per), QueueTotals: depthOf(from.all, all, per),
		ChurnRates:   churn{ConnectionCreated: opened, ConnectionClosed: closed},
		ObjectTotals: objects{Connections: o.Connections, Consumers: o.Members, Exchanges: o.Exchanges, Queues: o.Queues},
		Uptime:       now.Sub(o.Started).Milliseconds(),
	}
	out.Listeners, out.Contexts = s.listeners(name)
	return one(c, out)
}

// listeners describes the listening sockets, and which of them serve this API.
func (s *Server) listeners(node string) ([]listenerInfo, []contextInfo) {
	list, contexts := []listenerInfo{}, []contextInfo{}
	if s.cfg.Listeners == nil {
		return list, contexts
	}
	for _, l := range s.cfg.Listeners() {
		info := listenerInfo{Node: node, Protocol: l.Protocol, IPAddress: l.Address.String()}
		if tcp, ok := l.Address.(*net.TCPAddr); ok {
			info.IPAddress, info.Port = tcp.IP.String(), tcp.Port
		}
		list = append(list, info)
		if l.Protocol == protocol {
			contexts = append(contexts, contextInfo{
				Node: node, Description: "Trivium Management", Path: "/", Port: info.Port, SSLOptions: []string{},
			})
		}
	}
	return list, contexts
}

// totals sums the protocols up, of all clients that the node serves.
func totals(o *broker.Overview) (all counts, opened, closed uint64) {
	all.ready, all.held = o.Ready, o.Held
	for _, where := range []map[kernel.Protocol]*broker.Counters{o.Protocols, o.Away} {
		for _, c := range where {
			all.published += c.In.Load()
			all.delivered += c.Out.Load()
			all.settled += c.Settled.Load()
			opened += c.Opened.Load()
			closed += c.Closed.Load()
		}
	}
	return all, opened, closed
}

// name is the node's name, which does not change.
func (s *Server) name() string {
	return s.nodeName(s.id())
}

// id is the node's own.
func (s *Server) id() string {
	s.naming.Do(func() { s.own = s.node.Overview().NodeID })
	return s.own
}

// nodeOf is the name of the node that holds a connection's socket.
func (s *Server) nodeOf(x *kernel.ConnectionInfo) string {
	if x.Node == "" {
		return s.name()
	}
	return s.nodeName(x.Node)
}

// prefix goes before the id of a node in its name.
const prefix = "trivium@"

func (s *Server) nodeName(id string) string {
	if s.cfg.Name != "" {
		return s.cfg.Name
	}
	return prefix + id
}

func (s *Server) clusterName(id string) string {
	if s.cfg.Cluster != "" {
		return s.cfg.Cluster
	}
	return s.nodeName(id)
}
