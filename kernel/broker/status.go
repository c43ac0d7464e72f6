package broker

import (
	"cmp"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
)

// QueueStatus is one queue or share group in listings.
type QueueStatus struct {
	Address   kernel.GroupAddress
	Queue     *kernel.Queue // nil for a group that is not a declared queue
	Volatile  bool
	Info      QueueInfo
	Published uint64 // records appended to its topic since start
	Delivered uint64
	Settled   uint64
}

// Overview sums the node up.
type Overview struct {
	NodeID      string
	Version     string
	Started     time.Time // when the process began, whoever served then
	Exchanges   int
	Queues      int
	Connections int
	Members     int
	Ready       int64
	Held        int64
	Protocols   map[kernel.Protocol]*Counters // of clients whose sockets are here
	Away        map[kernel.Protocol]*Counters // of those at other nodes, which this one serves: what is read by offset is not among it
	Syncs       uint64                        // fsyncs of the write-ahead log since start
	LogBytes    uint64                        // bytes appended to it
	DiskFree    int64                         // bytes of the volume, as last looked
	DiskLow     int64                         // below which publishes are refused
}

// Overview returns the totals now. Queues counts queues and shares; Ready, Held
// and Members are those of all groups, sessions' included. Reply queues are in none.
func (b *Broker) Overview() Overview {
	wal := b.node.wal.Stats()
	o := Overview{
		NodeID: b.node.file.Node, Version: b.node.cfg.Version, Started: b.node.started, Protocols: b.node.traffic.all(), Away: b.node.away.all(),
		Syncs: uint64(wal.Syncs), LogBytes: uint64(wal.AppendedBytes),
	}
	o.DiskFree, o.DiskLow = b.durable.Disk()
	b.mu.Lock()
	o.Connections = len(b.conns)
	b.mu.Unlock()
	for _, t := range b.tenants.load() {
		o.Exchanges++ // the default one, which no table holds
		t.table.Load().Exchanges(func(kernel.Exchange) { o.Exchanges++ })
		t.mu.Lock()
		for addr, g := range t.groups {
			if kernel.IsReply(addr.Topic) {
				continue
			}
			ready, held, members, _, _ := g.place.Stats(g.id)
			o.Ready, o.Held, o.Members = o.Ready+ready, o.Held+held, o.Members+members
			if !addr.IsSession() {
				o.Queues++
			}
		}
		t.mu.Unlock()
	}
	return o
}

// QueueStatuses lists the groups that are queues or shares, by tenant and name.
func (b *Broker) QueueStatuses() []QueueStatus {
	var list []QueueStatus
	for _, t := range b.tenants.load() {
		table := t.table.Load()
		t.mu.Lock()
		for addr, g := range t.groups {
			topic, ok := table.TopicByID(g.spec.Topic)
			if ok && !addr.IsSession() && !kernel.IsReply(addr.Topic) {
				list = append(list, g.status(topic))
			}
		}
		t.mu.Unlock()
	}
	slices.SortFunc(list, func(x, y QueueStatus) int {
		return cmp.Or(cmp.Compare(x.Address.Tenant, y.Address.Tenant), cmp.Compare(x.Info.Name, y.Info.Name))
	})
	return list
}

// status describes a group. tenant.mu is held.
func (g *group) status(topic *route.Topic) QueueStatus {
	s := QueueStatus{Address: g.spec.Address, Queue: g.spec.Queue, Volatile: topic.Volatile}
	if g.spec.Address.IsOwn() {
		s.Info.Name, s.Queue = g.spec.Address.Topic, topic.Queue
	} else {
		s.Info.Name = g.spec.Address.String()
	}
	s.Info.Ready, s.Info.Held, s.Info.Members, s.Delivered, s.Settled = g.place.Stats(g.id)
	s.Published = g.place.Published(topic.ID)
	return s
}
