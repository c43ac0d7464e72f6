package placement

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
)

// Group is one placement group on this node. Its methods are safe for
// concurrent use.
type Group struct {
	cfg Config
}

// Open opens a durable group on the node's write-ahead log and replays what
// is not in its checkpoint. It returns before the group leads: see Ready.
func Open(cfg Config) (*Group, error) { panic("unfinished") }

// OpenVolatile opens a group that lives in memory.
func OpenVolatile(cfg Config) (*Group, error) { panic("unfinished") }

// Close stops the group: publishes in flight whose outcome is not known are
// completed with CodeUnknown, consumers get Ended. Nothing is left running.
// Idempotent.
func (g *Group) Close() { panic("unfinished") }

// Ready returns nil while the group leads and serves, else CodeUnavailable.
func (g *Group) Ready() error { panic("unfinished") }

// WaitReady waits until the group leads and serves.
func (g *Group) WaitReady(ctx context.Context) error { panic("unfinished") }

// Targets returns the interned set of the given partitions, for Append. It is
// immutable. Partitions that do not exist (any more) discard what is sent to
// them.
func (g *Group) Targets(parts ...PartitionID) *TargetSet { panic("unfinished") }

// TargetSet is a set of partitions that a record is written to once.
type TargetSet struct{}

// Append adds r to every partition of set, in the order of the calls. It
// copies r. An error (CodeTooLarge; CodeUnavailable: not leading or stopped;
// CodeLimit: a volatile group is full) means that nothing happened; otherwise
// done.Completed(token) follows exactly once, on a goroutine of the group.
// done may be nil. It does not wait: see Wait.
func (g *Group) Append(set *TargetSet, r *kernel.Record, done kernel.Completion, token uint64) error {
	panic("unfinished")
}

// AppendBatch adds a ready RecordBatch, which the caller has validated and the
// group copies, to a partition. A batch with a producer id is checked when
// applied: a repeated one completes with the offset of the first, else
// CodeSequenceGap or CodeFenced. Errors as for Append.
func (g *Group) AppendBatch(p PartitionID, batch []byte, done kernel.Completion, token uint64) error {
	panic("unfinished")
}

// Wait holds a publisher back while more bytes are in flight than the budget
// allows, at most two seconds or until stop is closed. It returns CodeLimit if
// that did not help and CodeUnavailable if the group has stopped.
func (g *Group) Wait(stop <-chan struct{}) error { panic("unfinished") }

// CreatePartitions makes the partitions of a topic that do not exist yet and
// returns the ids of all those asked for, in their order.
func (g *Group) CreatePartitions(ctx context.Context, topic kernel.TopicID, specs []PartitionSpec, revision uint64) ([]PartitionID, error) {
	panic("unfinished")
}

// DropTopic removes a topic with its groups. Members get Ended, readers
// CodeDropped; late publishes to it are acknowledged and discarded. A missing
// one is no error.
func (g *Group) DropTopic(ctx context.Context, topic kernel.TopicID, revision uint64) error {
	panic("unfinished")
}

// SetRetention replaces the retention of all partitions of a topic.
func (g *Group) SetRetention(ctx context.Context, topic kernel.TopicID, r kernel.Retention, revision uint64) error {
	panic("unfinished")
}

// CreateGroup makes a share group, or returns the id of the one that has the
// same address on the same topic, whatever its other properties.
func (g *Group) CreateGroup(ctx context.Context, spec GroupSpec, revision uint64) (GroupID, error) {
	panic("unfinished")
}

// SetOwner changes whether a group holds back deletion.
func (g *Group) SetOwner(ctx context.Context, id GroupID, owner bool) error { panic("unfinished") }

// DropGroup removes a share group. Its members get Ended. A missing one is no
// error.
func (g *Group) DropGroup(ctx context.Context, id GroupID, revision uint64) error {
	panic("unfinished")
}

// Purge archives what a group has ready and returns how many records that
// were.
func (g *Group) Purge(ctx context.Context, id GroupID) (int64, error) { panic("unfinished") }

// Put writes keyed state: all entries or none, durable when it returns. The
// last writer wins.
func (g *Group) Put(ctx context.Context, entries []KV) error { panic("unfinished") }

// Get returns a value of the keyed state, nil if the key is missing. What a
// finished Put wrote is seen.
func (g *Group) Get(key []byte) ([]byte, error) { panic("unfinished") }

// Iterate calls fn for every key that begins with prefix, in order, until fn
// fails. The slices are valid during the call.
func (g *Group) Iterate(prefix []byte, fn func(key, value []byte) error) error { panic("unfinished") }

// Topics lists the topics in the group.
func (g *Group) Topics() []TopicInfo { panic("unfinished") }

// Groups lists the share groups in the group.
func (g *Group) Groups() []GroupInfo { panic("unfinished") }

// Stats returns the state of a share group: records available, records held,
// members (pull members not counted), and how many records were handed out
// and settled since the process started. Zeros if it does not exist. It is
// cheap.
func (g *Group) Stats(id GroupID) (ready, held int64, members int, delivered, settled uint64) {
	panic("unfinished")
}

// Published returns how many records were appended to a topic since the
// process started.
func (g *Group) Published(topic kernel.TopicID) uint64 { panic("unfinished") }

// Join adds a member to a share group: CodeNotFound, CodeAccessRefused (one
// side wants to be alone). Of opt it reads AutoSettle, Exclusive, Pull and
// Tag. to may be nil with Pull.
func (g *Group) Join(id GroupID, opt kernel.MemberOptions, to kernel.Consumer) (*Member, error) {
	panic("unfinished")
}

// Partition opens a partition for reading: CodeNotFound.
func (g *Group) Partition(id PartitionID) (*Partition, error) { panic("unfinished") }
