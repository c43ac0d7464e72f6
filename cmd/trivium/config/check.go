package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Where   string // file and line, variable, flag, or "default"
	Setting string // section.key, "" if it is about no known one
	Text    string
	Minor   bool // the node starts all the same
}

func (p Problem) String() string {
	switch {
	case p.Setting == "":
		return p.Where + ": " + p.Text
	case p.Where == FromDefault:
		return p.Setting + ": " + p.Text
	}
	return p.Setting + ": " + p.Text + " (" + p.Where + ")"
}

// Problems are all that is wrong, as an error.
type Problems []Problem

// Error is one line: the first problem, and how many there are.
func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].String()
	}
	return fmt.Sprintf("%s; and %d more problems, which `trivium config check` lists", p[0], len(p)-1)
}

// Serious are the problems that a node does not start with, nil if there is none.
func (p Problems) Serious() error {
	var out Problems
	for _, one := range p {
		if !one.Minor {
			out = append(out, one)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// problems gathers.
type problems struct {
	loaded *Loaded
	all    Problems
}

func (p *problems) err() error {
	if len(p.all) == 0 {
		return nil
	}
	return p.all
}

func (p *problems) at(where, setting, format string, args ...any) {
	p.all = append(p.all, Problem{Where: where, Setting: setting, Text: fmt.Sprintf(format, args...)})
}

// add notes a problem with a setting's value, wherever that comes from.
func (p *problems) add(setting, format string, args ...any) {
	p.at(p.loaded.byName[setting].Where, setting, format, args...)
}

// warn is add for a problem that the node starts with.
func (p *problems) warn(setting, format string, args ...any) {
	p.add(setting, format, args...)
	p.all[len(p.all)-1].Minor = true
}

// check finds what cannot work together.
func (c *Config) check(p *problems) {
	if c.Node.Data == "" {
		p.add("node.data", "empty")
	}
	c.AMQP.check(p)
	c.MQTT.check(p)
	c.Kafka.check(p)
	c.Memory.check(p)
	c.checkAccess(p)
	c.checkTLS(p)
	c.checkCluster(p)
	c.checkSockets(p)
}

// Socket is one listener that there may be.
type Socket struct {
	Setting  string // of its address
	Protocol string // "amqp", "mqtt", "kafka", "http", "cluster"
	// Name is what RabbitMQ calls it in listings.
	Name       string
	Address    Address
	TLS, Web   bool
	Proxy      string
	ClientAuth string
}

// Sockets lists all listeners, also those that are off.
func (c *Config) Sockets() []Socket {
	all := []Socket{
		{"amqp.listen", "amqp", "amqp", c.AMQP.Listen, false, false, c.AMQP.ProxyProtocol, c.AMQP.ClientAuth},
		{"amqp.tls_listen", "amqp", "amqp/ssl", c.AMQP.TLSListen, true, false, c.AMQP.ProxyProtocol, c.AMQP.ClientAuth},
		{"mqtt.listen", "mqtt", "mqtt", c.MQTT.Listen, false, false, c.MQTT.ProxyProtocol, c.MQTT.ClientAuth},
		{"mqtt.tls_listen", "mqtt", "mqtt/ssl", c.MQTT.TLSListen, true, false, c.MQTT.ProxyProtocol, c.MQTT.ClientAuth},
		{"mqtt.ws_listen", "mqtt", "http/web-mqtt", c.MQTT.WSListen, false, true, c.MQTT.ProxyProtocol, c.MQTT.ClientAuth},
		{"mqtt.wss_listen", "mqtt", "https/web-mqtt", c.MQTT.WSSListen, true, true, c.MQTT.ProxyProtocol, c.MQTT.ClientAuth},
		{"kafka.listen", "kafka", "kafka", c.Kafka.Listen, false, false, c.Kafka.ProxyProtocol, c.Kafka.ClientAuth},
		{"kafka.tls_listen", "kafka", "kafka/ssl", c.Kafka.TLSListen, true, false, c.Kafka.ProxyProtocol, c.Kafka.ClientAuth},
		{"http.listen", "http", "http", c.HTTP.Listen, false, false, c.HTTP.ProxyProtocol, c.HTTP.ClientAuth},
		{"http.tls_listen", "http", "https", c.HTTP.TLSListen, true, false, c.HTTP.ProxyProtocol, c.HTTP.ClientAuth},
		{"cluster.listen", "cluster", "clustering", c.Cluster.Listen, false, false, "off", listener.ClientAuthOff},
	}
	for i := range all {
		if all[i].ClientAuth == "" {
			all[i].ClientAuth = c.TLS.ClientAuth
		}
	}
	return all
}

// checkSockets: no two on one port, and proxies are known where their word counts.
func (c *Config) checkSockets(p *problems) {
	var on []Socket
	for _, s := range c.Sockets() {
		if s.Address.Off() {
			continue
		}
		for _, other := range on {
			if collide(string(s.Address), string(other.Address)) {
				p.add(s.Setting, "%s is taken by %s", s.Address, other.Setting)
			}
		}
		on = append(on, s)
		if s.Proxy != "off" && len(c.Proxy.Trusted) == 0 {
			p.add("proxy.trusted", "empty, but %s.proxy_protocol is %s", s.Protocol, s.Proxy)
		}
	}
}

// collide reports whether two listeners cannot both have their addresses.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || strings.Trim(portA, "0") == "" {
		return false
	}
	return hostA == hostB || wildcard(hostA) || wildcard(hostB)
}

func wildcard(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}
