// Package config is everything that can be set: in a YAML file, in environment
// variables TRIVIUM_SECTION_KEY, with flags. A section is a struct, a setting a
// field of it with its default, limits and description in tags; that is all
// there is to add for a new one.
package config

import "time"

// Config holds all sections. A field's tags are
//
//	key      its name in the file; the flag and the variable follow from it
//	default  its value as it would be written in a variable
//	choice   the texts allowed, separated by |
//	min, max bounds of a number, a size or a duration
//	flag     the flag's name, if it is not section-key
//	about    what it is, for help and documentation; what is in '' '' is the flag's argument
//	secret   "yes": never shown
type Config struct {
	Node        Node        `key:"node"`
	AMQP        AMQP        `key:"amqp"`
	MQTT        MQTT        `key:"mqtt"`
	Kafka       Kafka       `key:"kafka"`
	HTTP        HTTP        `key:"http"`
	Cluster     Cluster     `key:"cluster"`
	TLS         TLS         `key:"tls"`
	Proxy       Proxy       `key:"proxy"`
	Connections Connections `key:"connections"`
	Memory      Memory      `key:"memory"`
	Disk        Disk        `key:"disk"`
	Storage     Storage     `key:"storage"`
	Admin       Admin       `key:"admin"`
	Access      Access      `key:"access"`
	Topics      Topics      `key:"topics"`
	Queues      Queues      `key:"queues"`
	Retention   Retention   `key:"retention"`
	Retained    Retained    `key:"retained"`
	Backlog     Backlog     `key:"backlog"`
	Log         Log         `key:"log"`
}

// Node is the process itself.
type Node struct {
	ID           int           `key:"id" default:"1" min:"1" max:"2147483647" about:"number of this node in its cluster"`
	Data         string        `key:"data" default:"./data" flag:"data" about:"data ''directory''"`
	DrainTimeout time.Duration `key:"drain_timeout" default:"6s" min:"0s" max:"10m" about:"how long clients may take to go when the node stops; then they are cut off"`
}

// HTTP is the front-end for people and tools.
type HTTP struct {
	Listen         Address `key:"listen" default:"127.0.0.1:15672" flag:"http" about:"HTTP ''host:port''"`
	TLSListen      Address `key:"tls_listen" default:"off" about:"HTTPS ''host:port'', usually 15671"`
	ProxyProtocol  string  `key:"proxy_protocol" default:"off" choice:"off|optional|required" about:"PROXY header at the beginning of HTTP connections"`
	ClientAuth     string  `key:"client_auth" choice:"|off|request|require" about:"client certificates of HTTPS; empty is tls.client_auth"`
	MaxConnections int     `key:"max_connections" default:"1000" min:"0" max:"10000000" about:"HTTP connections open at one time, 0 = no limit of its own"`
}

// Proxy is about load balancers in front of the node.
type Proxy struct {
	Trusted Networks `key:"trusted" about:"''networks'' whose PROXY headers are believed, such as 10.0.0.0/8"`
}

// Connections bound what clients may take before and after they have logged in.
type Connections struct {
	Max              int           `key:"max" default:"0" min:"0" max:"10000000" about:"connections of all listeners open at one time, 0 = as many as the limit of open files allows"`
	PerSecond        int           `key:"per_second" default:"2000" min:"0" max:"1000000" about:"connections that each listener accepts in a second, and at once after a quiet one; the others wait; 0 = no limit"`
	UnknownPerClient int           `key:"unknown_per_client" default:"1000" min:"0" max:"10000000" about:"connections of one address (IPv6: /64) that have not logged in, 0 = no limit"`
	HandshakeTimeout time.Duration `key:"handshake_timeout" default:"10s" min:"1s" max:"10m" about:"how long PROXY, TLS and WebSocket may take together, and then the login"`
}
