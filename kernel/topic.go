package kernel

import (
	"encoding/hex"
	"time"
)

// DefaultTenant is the tenant named "/".
const DefaultTenant = "/"

// TopicKind tells the two name spaces of topics apart. A plain name is never a
// filter.
type TopicKind uint8

// The kinds of topic.
const (
	Plain  TopicKind = iota // a log of exactly that name
	Filter                  // fed by every publish whose name the filter matches
)

// TopicID is the UUID of a topic. A topic that is deleted and made again has
// another one, so nothing meant for the first reaches the second.
type TopicID [16]byte

// String returns the UUID in hexadecimal.
func (id TopicID) String() string { return hex.EncodeToString(id[:]) }

// QueueType is what a client asked for with a queue declaration. All types
// share one implementation; the type is kept for equivalence checks, limits
// and listings.
type QueueType uint8

// The queue types.
const (
	Classic QueueType = iota
	Quorum
	Stream
)

// Retention says how long settled records stay readable, and ids of messages known.
type Retention struct {
	// Delete drops a record as soon as every owner group has settled it.
	Delete bool
	// Age is how long after append a settled record stays, 0 = no limit.
	Age time.Duration
	// Bytes is how much of a partition's settled records stays, 0 = no limit. Whole
	// batches go, the oldest first.
	Bytes int64
	// Dedup is how long the ids of messages are remembered (DedupID), 0 =
	// DefaultDedup, negative = not at all.
	Dedup time.Duration
}

// Retentions given to new topics (DESIGN section 3).
var (
	RetainDay  = Retention{Age: 24 * time.Hour, Bytes: 1 << 30} // durable declared queues
	RetainWeek = Retention{Age: 7 * 24 * time.Hour}             // topics made by a log producer
	RetainUsed = Retention{Delete: true}                        // topics made by a subscription, volatile queues
)

// Topic is one named log of 1..n partitions. Values are immutable snapshots.
type Topic struct {
	ID         TopicID
	Tenant     string
	Name       string
	Kind       TopicKind
	Partitions int32
	Retention  Retention
	Placement  uint32 // placement group that holds it
	Volatile   bool   // memory only: exclusive or non-durable queue
	Internal   bool   // hidden from clients' listings
	Auto       bool   // made by a subscription: goes with its last reader

	// Queue is set once the topic was declared as a queue: it then has its own
	// share group of the same name.
	Queue *Queue
	// ExpiresAt is set on a provisional topic (made by a publish before its
	// declaration): when it goes unless declared or consumed. Zero otherwise.
	ExpiresAt time.Time
}

// Visible reports whether other connections and protocols may reach the topic
// by its name.
func (t *Topic) Visible() bool {
	return !t.Internal && (t.Queue == nil || !t.Queue.Exclusive)
}

// Queue is what a queue declaration fixed.
type Queue struct {
	Type       QueueType
	Durable    bool
	AutoDelete bool
	Exclusive  bool
	Owner      ConnectionID // of an exclusive queue, else 0
	Arguments  []Argument   // the accepted ones, sorted by name
}
