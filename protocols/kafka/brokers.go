package kafka

import (
	"slices"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// Broker is a node of the cluster as clients are told of it.
type Broker struct {
	ID int32
	// Node is its name in the cluster, as listener.Via has it.
	Node string
	// Plain and Secure are its HOST:PORT for clients without and with TLS; empty is
	// not known.
	Plain, Secure string
}

// reachable is a broker with its address for one client.
type reachable struct {
	id   int32
	node string // its Raft name
	endpoint
}

// brokers lists the nodes that the client of c can connect to, by id, this one among
// them. The node that it is connected to has the address that it has used, unless
// another one is configured.
func (c *conn) brokers() []reachable {
	here, via := c.srv.cfg.NodeID, listener.Via(c.net)
	var all []Broker
	if c.srv.cfg.Brokers != nil {
		all = c.srv.cfg.Brokers()
	}
	host, port := c.srv.advertised(c.net)
	out := make([]reachable, 0, len(all)+1)
	known := false
	for _, b := range all {
		r := reachable{id: b.ID, node: b.Node}
		text := b.Plain
		if listener.Secure(c.net) {
			text = b.Secure
		}
		switch at, err := parseAdvertise(text); {
		case b.ID == here && via == "", b.Node == via && via != "" && (err != nil || at.host == ""):
			r.endpoint = endpoint{host, port}
		case err == nil && at.host != "":
			r.endpoint = at
		default:
			continue
		}
		known = known || b.ID == here
		out = append(out, r)
	}
	if !known { // its own address is not known: the client's way leads here
		out = slices.DeleteFunc(out, func(r reachable) bool { return r.host == host && r.port == port })
		out = append(out, reachable{here, c.srv.cfg.Node, endpoint{host, port}})
	}
	slices.SortFunc(out, func(a, b reachable) int { return int(a.id) - int(b.id) })
	return out
}

// ids are the numbers of the brokers, which all have a replica of everything.
func ids(list []reachable) []int32 {
	out := make([]int32, len(list))
	for i, b := range list {
		out[i] = b.id
	}
	return out
}
