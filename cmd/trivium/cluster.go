package main

import (
	"net"
	"strconv"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/kafka"
)

// cluster is how the node and the others reach each other.
func (n *node) cluster() broker.Cluster {
	c := &n.config.Cluster
	return broker.Cluster{
		Listen: string(c.Listen), Advertise: c.Advertise, Join: c.Join, TLS: c.Certificates(), Fronts: n.told(), Heartbeat: c.Heartbeat,
		Rejoin: c.Rejoin == "auto",
	}
}

// told is where clients reach the listeners of this node, as other nodes tell them: by
// the listener's name. One that is bound to all addresses is reached where other nodes
// reach this one.
func (n *node) told() map[string]string {
	out := map[string]string{}
	for _, f := range n.fronts {
		host, port, err := net.SplitHostPort(f.l.Addr().String())
		if err != nil {
			continue
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			if host, _, err = net.SplitHostPort(n.config.Cluster.Advertise); err != nil {
				continue // nobody knows
			}
		}
		out[f.Name] = net.JoinHostPort(host, port)
	}
	for name, address := range map[string]string{"kafka": n.config.Kafka.Advertise, "kafka/ssl": n.config.Kafka.TLSAdvertise} {
		if _, on := out[name]; on && address != "" {
			out[name] = address
		}
	}
	return out
}

// brokers are the nodes of the cluster that are up, as Kafka's clients are told of them.
func (n *node) brokers() []kafka.Broker {
	var out []kafka.Broker
	for _, m := range n.replicas.Members() {
		id, err := strconv.ParseInt(m.Node, 10, 32)
		if err != nil || !m.Reachable {
			continue
		}
		out = append(out, kafka.Broker{ID: int32(id), Node: m.Raft, Plain: m.Fronts["kafka"], Secure: m.Fronts["kafka/ssl"]})
	}
	return out
}
