package broker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// Config opens a broker.
type Config struct {
	// DataDir is the node's directory. It is made if missing.
	DataDir string
	// FS holds it; nil = the real one. KV is then needed as well if the keyed
	// state is to outlive Close: nil is a store in memory, which the broker
	// closes.
	FS vfs.FS
	KV *kv.Store
	// NodeID names the node; "" = the name in the directory, or a new one.
	NodeID  string
	Version string // of the program, for listings
	Logger  zerolog.Logger
	// Registerer takes the metrics; nil = none.
	Registerer prometheus.Registerer
	Cluster    Cluster
	Settings   *Settings // nil = DefaultSettings
	// Admin is put right at every start, in place of the default user at the
	// first.
	Admin  Admin
	Limits Limits
	Tables Tables           // nil = records have no typed headers
	Now    func() time.Time // nil = time.Now
}

// Cluster is how a node and the others of its cluster reach each other.
type Cluster struct {
	// Listen is where others reach this one, host:port; "" or "off" opens no socket:
	// there are no others.
	Listen string
	// Advertise is the address that others are told; "" = that of the socket.
	Advertise string
	// Join are addresses of other nodes. A node that is new asks them to be let in.
	Join []string
	// TLS protects what nodes say to each other; nil is possible on the loopback only.
	TLS *cluster.TLS
	// Fronts are the addresses that clients are told, by listener.
	Fronts map[string]string
	// Rejoin has a member whose log or checkpoints are damaged join its cluster again as a
	// new node; without, it does not start.
	Rejoin bool
	// Heartbeat is how long nodes hear nothing of a leader before they elect another;
	// 0 = 1 s.
	Heartbeat time.Duration
}

// Settings are choices of the operator.
type Settings struct {
	// RetentionBudget is how many bytes of settled records the node keeps in all; 0 =
	// a fifth of the volume, at most 50 GiB.
	RetentionBudget int64
	// AutoCreateTopics lets log clients make topics by naming them, with
	// AutoCreatePartitions partitions.
	AutoCreateTopics     bool
	AutoCreatePartitions int32
	// AutoCreateQueues lets a publish to the default exchange make the queue.
	AutoCreateQueues bool
	// Anonymous admits connections without credentials: from the loopback as the
	// default user, or, if AnonymousUser names another, as that from anywhere.
	Anonymous     bool
	AnonymousUser string
	// Logins say how wrong ones slow down others.
	Logins auth.ThrottleLimits
}

// DefaultSettings are those of a node without configuration.
func DefaultSettings() *Settings {
	return &Settings{AutoCreateTopics: true, AutoCreatePartitions: 1, AutoCreateQueues: true, Anonymous: true}
}

// Limits bounds what a node keeps. Zero fields take their defaults.
type Limits struct {
	Placement placement.Limits
	// MemoryBytes is what the process should use: with more than 70 % of it in use,
	// publishes are refused. 0 = no limit.
	MemoryBytes int64
	// CacheBytes of log that is not sealed yet stay in memory: 64 MiB.
	CacheBytes int64
	// Topics, Exchanges and Bindings of one tenant: 200,000, 100,000 and
	// 1,000,000.
	Topics, Exchanges, Bindings int
	// Partitions of one topic: MaxPartitions.
	Partitions int
	// Provisional is how many queues made by a publish, and neither declared
	// nor consumed yet, a tenant may have: 1,000.
	Provisional int
	// Sessions of one tenant: 1,000,000; Subscriptions of one session: 1,000.
	Sessions, Subscriptions int
	// Numbers under which one session may have publishes that it has not released:
	// 8,192; and all sessions of the node together, AllNumbers: 2,000,000. Each
	// takes about 150 bytes of memory. One more is refused.
	Numbers, AllNumbers int
	// Takeovers of one session per minute, after the first ten: 30. More have to
	// wait, then are refused.
	Takeovers int
	// Retained messages of one tenant: 2,000,000, which with their names may take
	// RetainedBytes: 1 GiB. A publish that would exceed them is refused.
	Retained      int
	RetainedBytes int64
	// RetainedMemory is how many bytes of small retained messages a node keeps in
	// memory beside their names: 64 MiB. The others are read from the disk.
	RetainedMemory int64
	// BacklogBytes and BacklogAge bound what waits for a session on one topic: 256
	// MiB, 7 days. Beyond them the oldest messages are dropped.
	BacklogBytes int64
	BacklogAge   time.Duration
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Topics, 200_000)
	def(&l.Exchanges, 100_000)
	def(&l.Bindings, 1_000_000)
	def(&l.Partitions, MaxPartitions)
	def(&l.Provisional, 1000)
	def(&l.Sessions, 1_000_000)
	def(&l.Subscriptions, 1000)
	def(&l.Numbers, 8192)
	def(&l.AllNumbers, 2_000_000)
	def(&l.Takeovers, 30)
	def(&l.Retained, 2_000_000)
	if l.RetainedBytes <= 0 {
		l.RetainedBytes = 1 << 30
	}
	if l.CacheBytes <= 0 {
		l.CacheBytes = 64 << 20
	}
	if l.BacklogBytes <= 0 {
		l.BacklogBytes = 256 << 20
	}
	if l.BacklogAge <= 0 {
		l.BacklogAge = 7 * 24 * time.Hour
	}
	if l.RetainedMemory <= 0 {
		l.RetainedMemory = 64 << 20
	}
	return l
}

const (
	// provisionalLife is how long a queue made by a publish waits for somebody
	// to declare or consume it.
	provisionalLife = 24 * time.Hour
	// goneLife is how long a publish does not make a queue whose exclusive or
	// auto-delete namesake has just gone.
	goneLife = 10 * time.Minute
	// goneNames bounds how many such names a tenant remembers.
	goneNames = 100_000
	// takeoverWait is how long a connection may take to give up its session.
	takeoverWait = 5 * time.Second
	// roomWait is how long a publisher waits for live subscribers with full
	// buffers in all, and roomRest how long it takes until it would wait that
	// long again. Waits of up to freeWait do not count: half a buffer that drains
	// so fast is no slow subscriber, but a fast publisher.
	roomWait = 2 * time.Second
	roomRest = 30 * time.Second
	freeWait = 100 * time.Millisecond
	// changeWait bounds a change of metadata: after it its outcome is unknown.
	changeWait = 30 * time.Second
	// commitWait bounds the writing of readers' positions and memberships, whose clients
	// send nothing else meanwhile, also no sign of life (Kafka's offsets.commit.timeout.ms).
	commitWait = 5 * time.Second
	// stampAfter is how long a session is away at most before the time it ends is
	// written down; until then a restart counts from the restart. It is an eighth of its
	// expiry if that is less, but not less than stampSoonest: who is back before costs no write.
	stampAfter   = time.Minute
	stampSoonest = 100 * time.Millisecond
	stampShare   = 8
)
