package broker

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// Counters count the traffic of one protocol's clients since start, each where the
// client's socket is: what passes to or from the host that serves is counted here if that
// is this node (Conn), and by the link if it is another one (package forward). Atomics.
type Counters struct {
	In       atomic.Uint64 // records accepted from publishers
	InBytes  atomic.Uint64 // their payload
	Out      atomic.Uint64 // records handed to clients
	OutBytes atomic.Uint64
	Settled  atomic.Uint64 // records accepted, refused or auto-settled by members
	Dropped  atomic.Uint64 // live messages dropped at a full buffer, counted where that is
	Cut      atomic.Uint64 // records handed out without headers that the client could not take
	Shed     atomic.Uint64 // publishes without an answer that were refused, counted by the adapter
	Opened   atomic.Uint64 // connections of clients opened, however often they are linked to a host
	Closed   atomic.Uint64
	Refused  atomic.Uint64 // failed authentications and refused connections
}

// Received counts records of so many bytes of payload.
func (c *Counters) Received(records, bytes int) {
	c.In.Add(uint64(records))
	c.InBytes.Add(uint64(bytes))
}

// BatchPayload is what Received is told of a batch: how many records it has, and the bytes
// of them as stored, compressed or not.
func BatchPayload(batch []byte) (records, bytes int) {
	if len(batch) < record.HeaderSize {
		return 0, 0
	}
	return int(record.Count(batch)), len(batch) - record.HeaderSize
}

// Delivered counts a batch that a client gets; settled says that it settles nothing of it.
func (c *Counters) Delivered(batch []kernel.Delivery, settled bool) {
	bytes := 0
	for i := range batch {
		bytes += len(batch[i].Record.Value)
	}
	c.Out.Add(uint64(len(batch)))
	c.OutBytes.Add(uint64(bytes))
	if settled {
		c.Settled.Add(uint64(len(batch)))
	}
}

// traffic keeps counters by protocol, which outlast the leaderships.
type traffic struct {
	mu   sync.Mutex
	list map[kernel.Protocol]*Counters
}

// of returns the counters of a protocol.
func (t *traffic) of(p kernel.Protocol) *Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, ok := t.list[p]
	if !ok {
		c = &Counters{}
		if t.list == nil {
			t.list = make(map[kernel.Protocol]*Counters)
		}
		t.list[p] = c
	}
	return c
}

// all returns the counters of all protocols.
func (t *traffic) all() map[kernel.Protocol]*Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.list)
}

// Counters returns the counters of a protocol's clients whose sockets are at this node.
func (n *Node) Counters(p kernel.Protocol) *Counters { return n.traffic.of(p) }

// countersOf are those that count what a connection moves: the clients of other nodes are
// counted there, and apart from that here in sum, while this node serves them.
func (n *Node) countersOf(info *kernel.ConnectionInfo) *Counters {
	if info.Node != "" {
		return n.away.of(info.Protocol)
	}
	return n.Counters(info.Protocol)
}

// The metrics of traffic. Their names are part of the operator's interface.
var (
	descReceived  = desc("messages_received_total", "Messages accepted from publishers.", "protocol")
	descReceivedB = desc("messages_received_bytes_total", "Payload of messages accepted from publishers.", "protocol")
	descDelivered = desc("messages_delivered_total", "Messages handed to consumers.", "protocol")
	descDeliverdB = desc("messages_delivered_bytes_total", "Payload of messages handed to consumers.", "protocol")
	descSettled   = desc("messages_settled_total", "Messages acknowledged, refused or settled as they were handed out.", "protocol")
	descDropped   = desc("messages_dropped_total", "Messages to session-less subscribers dropped at a full buffer.", "protocol")
	descCut       = desc("messages_headers_dropped_total", "Messages handed to consumers without headers that are larger than the client takes.", "protocol")
	descShed      = desc("publishes_shed_total", "Publishes without an answer (MQTT QoS 0) that were refused, and so lost.", "protocol")
	descOpened    = desc("connections_opened_total", "Connections opened.", "protocol")
	descClosed    = desc("connections_closed_total", "Connections closed.", "protocol")
	descRefused   = desc("connections_refused_total", "Connections refused.", "protocol")

	trafficDescs = []*prometheus.Desc{descReceived, descReceivedB, descDelivered, descDeliverdB, descSettled, descDropped, descCut, descShed,
		descOpened, descClosed, descRefused}
)

// collect gives the figures to Prometheus.
func (t *traffic) collect(ch chan<- prometheus.Metric) {
	for p, n := range t.all() {
		for i, v := range []*atomic.Uint64{&n.In, &n.InBytes, &n.Out, &n.OutBytes, &n.Settled, &n.Dropped, &n.Cut, &n.Shed, &n.Opened, &n.Closed, &n.Refused} {
			ch <- prometheus.MustNewConstMetric(trafficDescs[i], prometheus.CounterValue, float64(v.Load()), string(p))
		}
	}
}
