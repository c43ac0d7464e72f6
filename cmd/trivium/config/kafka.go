package config

import (
	"net"
	"strconv"
)

// Kafka is the front-end for Kafka clients.
type Kafka struct {
	Listen         Address `key:"listen" default:"127.0.0.1:9092" flag:"kafka" about:"Kafka ''host:port''"`
	TLSListen      Address `key:"tls_listen" default:"off" about:"Kafka over TLS ''host:port'', usually 9093"`
	Advertise      string  `key:"advertise" about:"''host:port'' told to Kafka clients; empty is the address they connected to"`
	TLSAdvertise   string  `key:"tls_advertise" about:"''host:port'' told to Kafka clients over TLS; empty is the address they connected to"`
	ProxyProtocol  string  `key:"proxy_protocol" default:"off" choice:"off|optional|required" about:"PROXY header at the beginning of Kafka connections"`
	ClientAuth     string  `key:"client_auth" choice:"|off|request|require" about:"client certificates of Kafka over TLS; empty is tls.client_auth"`
	MaxConnections int     `key:"max_connections" default:"0" min:"0" max:"10000000" about:"Kafka connections open at one time, 0 = no limit of its own"`
	Leaders        string  `key:"leaders" default:"serving" choice:"serving|spread" about:"which nodes Kafka clients are told as leaders of partitions: the one that serves, or all, each of some"`
	MaxBatch       Bytes   `key:"max_batch" default:"1048588" min:"1KiB" max:"16MiB" about:"largest batch"`
}

func (k *Kafka) check(p *problems) {
	advertised(p, "kafka.advertise", k.Advertise)
	advertised(p, "kafka.tls_advertise", k.TLSAdvertise)
}

// advertised checks an address that clients are told: a wildcard reaches nobody.
func advertised(p *problems, name, addr string) {
	if addr == "" {
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		p.add(name, "%q is not host:port", addr)
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		p.add(name, "%q has no valid port", addr)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		p.add(name, "%s is no address a client can connect to", addr)
	}
}
