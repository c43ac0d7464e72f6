package admin

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// nodeInfo is the node that serves. Figures that RabbitMQ has and that mean nothing
// here are left out.
type nodeInfo struct {
	Name          string         `json:"name"`
	Type          string         `json:"type"`
	Running       bool           `json:"running"`
	Uptime        int64          `json:"uptime"` // milliseconds
	PID           int            `json:"os_pid,string"`
	Processors    int            `json:"processors"`
	Goroutines    int            `json:"proc_used"`
	MemUsed       uint64         `json:"mem_used"`
	MemLimit      int64          `json:"mem_limit"` // where garbage is collected in earnest
	MemAlarm      bool           `json:"mem_alarm"`
	DiskAlarm     bool           `json:"disk_free_alarm"`
	DiskFree      int64          `json:"disk_free"`       // bytes
	DiskLimit     int64          `json:"disk_free_limit"` // publishes need so much
	Sockets       int            `json:"sockets_used"`
	RunQueue      int            `json:"run_queue"`
	RatesMode     string         `json:"rates_mode"`
	ExchangeTypes []exchangeType `json:"exchange_types"`
	Mechanisms    []mechanism    `json:"auth_mechanisms"`
	Applications  []application  `json:"applications"`
	Contexts      []contextInfo  `json:"contexts"`
	Partitions    []string       `json:"partitions"`
	Plugins       []string       `json:"enabled_plugins"`
	Links         []string       `json:"cluster_links"`
}

type mechanism struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

type application struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Version     string `json:"version"`
}

func (s *Server) nodeInfo() nodeInfo {
	o, alarms := s.node.Overview(), s.node.Present()
	name := s.nodeName(o.NodeID)
	_, contexts := s.listeners(name)
	memory := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(memory)
	return nodeInfo{
		Name: name, Type: "disc", Running: s.node.Ready() == nil, Uptime: time.Since(o.Started).Milliseconds(), PID: os.Getpid(),
		Processors: runtime.GOMAXPROCS(0), Goroutines: runtime.NumGoroutine(),
		MemUsed: memory[0].Value.Uint64() - memory[1].Value.Uint64(), MemLimit: debug.SetMemoryLimit(-1),
		MemAlarm: alarms.Memory.On, DiskAlarm: alarms.Disk.On, DiskFree: o.DiskFree, DiskLimit: o.DiskLow,
		Sockets: o.Connections, RatesMode: "basic", ExchangeTypes: exchangeTypes,
		Mechanisms:   []mechanism{{"PLAIN", "SASL PLAIN authentication mechanism", true}, {"AMQPLAIN", "QPid AMQPLAIN mechanism", true}},
		Applications: []application{{"trivium", "Trivium", o.Version}},
		Contexts:     contexts, Partitions: []string{}, Plugins: []string{}, Links: []string{},
	}
}

// peerInfo is another node of the cluster: what it has beyond this it tells itself, at
// /metrics. For want of memory only the node that serves refuses something.
type peerInfo struct {
	Name         string        `json:"name"`
	Type         string        `json:"type"`
	Running      bool          `json:"running"`
	MemAlarm     bool          `json:"mem_alarm"`
	DiskAlarm    bool          `json:"disk_free_alarm"` // as it has told lately
	Applications []application `json:"applications"`
	Partitions   []string      `json:"partitions"`
	Plugins      []string      `json:"enabled_plugins"`
	Links        []string      `json:"cluster_links"`
}

// namedNode is a nodeInfo or a peerInfo.
type namedNode struct {
	name string
	info any
}

func (s *Server) nodes() []namedNode {
	this := s.nodeInfo()
	out := []namedNode{{this.Name, this}}
	if s.cfg.Peers == nil {
		return out
	}
	for _, n := range s.cfg.Peers() {
		name := s.nodeName(n.Name)
		if name == this.Name || n.Name == s.id() {
			continue
		}
		out = append(out, namedNode{name, peerInfo{
			Name: name, Type: "disc", Running: n.State != kernel.NodeUnreachable && n.State != kernel.NodeRefused, DiskAlarm: n.Low,
			Applications: []application{{"trivium", "Trivium", n.Version}}, Partitions: []string{}, Plugins: []string{}, Links: []string{},
		}})
	}
	return out
}

// listNodes is GET /api/nodes.
func listNodes(c *call) error {
	return list(c, c.s.nodes(), func(n *namedNode) string { return n.name }, func(n *namedNode) any { return n.info })
}

// getNode is GET /api/nodes/{name}.
func getNode(c *call) error {
	for _, n := range c.s.nodes() {
		if n.name == c.args[0] {
			return one(c, n.info)
		}
	}
	return errNotFound
}
