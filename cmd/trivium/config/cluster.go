package config

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/trivium-mq/trivium/kernel/cluster"
)

// Cluster is how nodes reach each other.
type Cluster struct {
	Listen    Address       `key:"listen" default:"127.0.0.1:7420" flag:"cluster" about:"node to node ''host:port''"`
	Advertise string        `key:"advertise" flag:"advertise" about:"''host:port'' at which other nodes reach this one; empty is cluster.listen"`
	Join      []string      `key:"join" flag:"join" about:"''host:port,...'' of nodes whose cluster this one is to join; the first of them founds one when most of them have come up new"`
	CA        string        `key:"ca" about:"''file'' with the authority that signed the certificates of all nodes, PEM; needed beyond the loopback"`
	Cert      string        `key:"cert" about:"''file'' with this node's certificate, which names trivium-node-ID, PEM"`
	Key       string        `key:"key" about:"''file'' with its private key, PEM"`
	Rejoin    string        `key:"rejoin" default:"auto" choice:"auto|off" about:"whether a member whose log or checkpoints are damaged sets them aside and joins again as a new node, or does not start"`
	Heartbeat time.Duration `key:"heartbeat" default:"500ms" min:"100ms" max:"30s" about:"how long nodes of a cluster wait for a leader before they elect another one"`
}

// Certificates are the files of the cluster, nil if there are none.
func (c *Cluster) Certificates() *cluster.TLS {
	if c.CA == "" && c.Cert == "" && c.Key == "" {
		return nil
	}
	return &cluster.TLS{CA: c.CA, Cert: c.Cert, Key: c.Key}
}

// checkCluster: a node beyond the loopback has certificates, and an address that others
// can use.
func (c *Config) checkCluster(p *problems) {
	k := &c.Cluster
	if k.Listen.Off() {
		if len(k.Join) > 0 {
			p.add("cluster.join", "needs cluster.listen, which is off")
		}
		return
	}
	for _, seed := range k.Join {
		if err := reachable(seed); err != nil {
			p.add("cluster.join", "%v", err)
		}
	}
	if k.Advertise != "" {
		if err := reachable(k.Advertise); err != nil {
			p.add("cluster.advertise", "%v", err)
		}
	}
	host, _, _ := net.SplitHostPort(string(k.Listen))
	ip := net.ParseIP(host)
	if k.Advertise == "" && wildcard(host) {
		p.add("cluster.listen", "%s is no address that other nodes can use: cluster.advertise has to name one", k.Listen)
	}
	switch files := k.Certificates(); {
	case files == nil && (wildcard(host) || ip != nil && !ip.IsLoopback()):
		p.add("cluster.listen", "%s is beyond the loopback: needs cluster.ca, cluster.cert and cluster.key (trivium cluster certs makes them)", k.Listen)
	case files == nil && beyond(k.Advertise):
		p.add("cluster.advertise", "%s is beyond the loopback: needs cluster.ca, cluster.cert and cluster.key (trivium cluster certs makes them)", k.Advertise)
	case files == nil:
	case k.CA == "" || k.Cert == "" || k.Key == "":
		p.add("cluster.cert", "cluster.ca, cluster.cert and cluster.key go together")
	default:
		if err := files.Check(strconv.Itoa(c.Node.ID)); err != nil {
			p.add("cluster.cert", "%s", oneLine(err))
		}
	}
}

// beyond reports whether an address is an IP address other than the loopback.
func beyond(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return ip != nil && !ip.IsLoopback()
}

// reachable returns an error if an address names no host and port.
func reachable(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return fmt.Errorf("%q is no host:port", address)
	}
	if wildcard(host) {
		return fmt.Errorf("%q is a wildcard address: it cannot be advertised, nor joined, as it names no machine", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q has no valid port", address)
	}
	return nil
}
