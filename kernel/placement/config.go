package placement

import (
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Config opens a placement group. A volatile group reads only Shards, Logger,
// Now and Limits. What is passed in (WAL, KV, Cache) stays the caller's, and is
// closed after the group.
type Config struct {
	ID    uint32 // number of its Raft group; 0 is the catalog's
	FS    vfs.FS
	Dir   string     // of its own: segments and checkpoints
	WAL   *wal.Group // the node's log, group ID of it
	KV    *kv.Store  // shared by the groups of a node; keys get a prefix
	Cache *log.Cache // likewise; nil makes one
	Raft  Raft

	Shards int // goroutines for windows and dispatch; 0 = number of CPUs
	Logger zerolog.Logger
	Now    func() time.Time // nil = time.Now
	// Boot tells this process's entries from those of others and of earlier
	// ones; 0 = a random number.
	Boot   uint64
	Limits Limits
	// Watch is told of keyed writes once Get sees them, in the order of the log and
	// before their answers go out, with the index of their entry; also of those that
	// are replayed. The slices are valid during the call, which must not block or
	// call the group. May be nil.
	Watch func(index uint64, written []KV)
	// Bury is handed records that have died in groups with dead letters, on a
	// goroutine of its own: it makes their dead letters and calls Done for each, on
	// any goroutine. nil drops them.
	Bury func(*Burial)
	// OnDisk is told when the disk is found low, before the first publish is refused
	// for it, and when it has room again, after the last one; free and floor are in
	// bytes. It must not block. May be nil.
	OnDisk func(low bool, free, floor int64)
	// OnDamage is told what the scrub finds that cannot be read, again each time.
	// Records are lost to a reader who is alone. It must not block. May be nil.
	OnDamage func(topic kernel.TopicID, partition int32, bad Damage)
	// Hold returns an error while publishes are to be refused, for a reason outside
	// the group. It is called for each, and must not block. May be nil.
	Hold func() error
	// OnLead is told who leads, one call after the other, when the group has begun or
	// ceased to serve. It must not block. May be nil.
	OnLead func(raftgroup.Leadership)
	// OnFailure is called when the group cannot go on; the node should stop
	// then. It must not call Close itself, which would wait for it. May be nil.
	OnFailure func(error)
}

// Raft is what a durable group needs to take part in its Raft group.
type Raft struct {
	NodeID    string
	Bootstrap []raftgroup.Server
	Transport func() (raft.Transport, error) // nil: the only member
	// Source fetches segments that this node lacks from other replicas; nil: none.
	Source    Source
	Timing    raftgroup.Timing
	KeepBytes int64 // log kept before a checkpoint while there are no peers; 0 = 64 MiB
	KeepPeers int64 // and while there are; 0 = 64 MiB
}

// Limits bounds what a group keeps. Zero fields take their defaults.
type Limits struct {
	// RecordBytes is the largest record or batch: 16 MiB of payload, and room
	// for its headers.
	RecordBytes int
	// InFlightBytes is how much may be on its way to the log before Wait holds
	// publishers back, 16 MiB. At four times as much Append refuses.
	InFlightBytes int64
	// VolatileBytes bounds the records of a volatile group, 256 MiB, and
	// VolatilePartitionBytes those of one partition of it, 64 MiB.
	VolatileBytes          int64
	VolatilePartitionBytes int64
	// SealBytes is how much log is replayed at most after a restart: a seal is
	// due when that much has been applied since the last one, 64 MiB.
	SealBytes int64
	// DiskFloor is how much of the volume is kept for what frees space again, 192
	// MiB, but at most a quarter of it: with less free, publishes are refused.
	DiskFloor int64
	// ScrubEvery is how often the segments are read whole to find damage early, 0 =
	// never; ScrubRate is how many bytes of them a second, 4 MiB.
	ScrubEvery time.Duration
	ScrubRate  int64
	// RetentionBudget is how many bytes of settled records are kept in all, a fifth of
	// the volume and at most 50 GiB. What is not settled may exceed it.
	RetentionBudget int64
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	if l.RecordBytes <= 0 {
		l.RecordBytes = 16<<20 + 512<<10
	}
	def(&l.InFlightBytes, 16<<20)
	def(&l.VolatileBytes, 256<<20)
	def(&l.VolatilePartitionBytes, 64<<20)
	def(&l.SealBytes, 64<<20)
	def(&l.DiskFloor, 192<<20)
	def(&l.ScrubRate, 4<<20)
	return l
}

// held refuses publishes for reasons outside the group.
func (g *Group) held() error {
	if g.cfg.Hold == nil {
		return nil
	}
	err := g.cfg.Hold()
	if err != nil {
		g.metrics.Refused.Add(1)
	}
	return err
}

// randomBoot draws a number for Config.Boot.
func randomBoot() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return max(binary.BigEndian.Uint64(b[:]), 1)
}
