package broker

import (
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Counters count one protocol's traffic since start.
type Counters struct {
	In       atomic.Uint64 // records accepted from publishers
	InBytes  atomic.Uint64 // their payload
	Out      atomic.Uint64 // records handed to clients
	OutBytes atomic.Uint64
	Settled  atomic.Uint64 // records accepted, refused or auto-settled by members
	Dropped  atomic.Uint64 // live messages dropped at a full buffer
	Opened   atomic.Uint64 // connections opened
	Closed   atomic.Uint64
	Refused  atomic.Uint64 // failed authentications and refused connections
}

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
	Started     time.Time
	Exchanges   int
	Queues      int
	Connections int
	Members     int
	Ready       int64
	Held        int64
	Protocols   map[kernel.Protocol]*Counters
	Syncs       uint64 // fsyncs of the write-ahead log since start
	LogBytes    uint64 // bytes appended to it
}

// Overview returns the totals now.
func (b *Broker) Overview() Overview { panic("unfinished") }

// QueueStatuses lists the groups that are queues or shares, by tenant and name.
func (b *Broker) QueueStatuses() []QueueStatus { panic("unfinished") }

// Ready returns nil when the node serves, else why not.
func (b *Broker) Ready() error { panic("unfinished") }
