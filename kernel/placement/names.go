package placement

import (
	"github.com/trivium-mq/trivium/kernel"
)

// PartitionID numbers a partition inside one placement group. The group's
// machine gives it, counting from 1, and never gives it again.
type PartitionID uint64

// GroupID numbers a share group inside one placement group, likewise.
type GroupID uint64

// PartitionSpec asks for one partition of a topic.
type PartitionSpec struct {
	Index     int32
	Retention kernel.Retention
}

// GroupSpec asks for a share group: a window on each partition of a topic.
type GroupSpec struct {
	Address kernel.GroupAddress
	Topic   kernel.TopicID
	// Owner groups hold back the deletion of what they have not settled.
	Owner bool
	// FromStart begins at the first readable record instead of at the end.
	FromStart bool
	// Start is where it begins in place of what FromStart says, unless its Kind is 0.
	// It says nothing of a group that is there.
	Start kernel.Position
	// FailedLimit archives a record that came back more often than this, and
	// AcquiredLimit one that was handed out this often and came back. 0 is no
	// limit; at most one is set.
	FailedLimit, AcquiredLimit int
	// MaxAcquired bounds the records of a partition held at the same time, 0 is
	// no bound.
	MaxAcquired int
	// Limits bound its backlog; nil is none. DeliveryLimit in them takes the place
	// of FailedLimit. See Group.SetLimits.
	Limits *kernel.Limits
}

// KV is one entry of the keyed state. A nil Value deletes the key; with UpTo only
// if the log index that wrote it is not higher.
type KV struct {
	Key, Value []byte
	UpTo       uint64 // 0 = whatever wrote it
}

// PartitionInfo names a partition in listings.
type PartitionInfo struct {
	ID        PartitionID
	Index     int32
	Retention kernel.Retention
}

// TopicInfo is what a placement group holds of a topic.
type TopicInfo struct {
	ID         kernel.TopicID
	Revision   uint64 // catalog revision of the last command applied to it
	Partitions []PartitionInfo
}

// GroupInfo names a share group in listings.
type GroupInfo struct {
	ID       GroupID
	Revision uint64
	Spec     GroupSpec
}
