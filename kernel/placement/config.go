package placement

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Config opens a placement group.
type Config struct {
	ID  uint32 // number of its Raft group; 0 is the catalog's
	FS  vfs.FS
	Dir string // of its own: segments and checkpoints

	Shards int // goroutines for windows and dispatch; 0 = number of CPUs
	Logger zerolog.Logger
	Now    func() time.Time // nil = time.Now
	Limits Limits
}

// Limits bounds what a group keeps. Zero fields take their defaults.
type Limits struct {
	// RecordBytes is the largest record or batch, 16 MiB.
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
}

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	if l.RecordBytes <= 0 {
		l.RecordBytes = 16 << 20
	}
	def(&l.InFlightBytes, 16<<20)
	def(&l.VolatileBytes, 256<<20)
	def(&l.VolatilePartitionBytes, 64<<20)
	def(&l.SealBytes, 64<<20)
	return l
}
