package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
)

// TopicSpec asks for a log topic.
type TopicSpec struct {
	Name       string
	Partitions int32
	Retention  kernel.Retention
}

// CreateTopic makes a topic: CodeExists, CodeInvalidName, CodeInvalid.
func (c *Conn) CreateTopic(ctx context.Context, t TopicSpec) (*kernel.Topic, error) {
	panic("unfinished")
}

// DeleteTopic deletes a topic with all its groups: CodeNotFound, CodeLocked,
// CodePrecondition while an owner group has unsettled records.
func (c *Conn) DeleteTopic(ctx context.Context, name string) error { panic("unfinished") }

// Topic returns a plain, durable, visible topic by name.
func (c *Conn) Topic(name string) (*kernel.Topic, bool) { panic("unfinished") }

// TopicByID returns a topic by UUID.
func (c *Conn) TopicByID(id kernel.TopicID) (*kernel.Topic, bool) { panic("unfinished") }

// Topics lists the plain, durable, visible topics of the tenant by name.
func (c *Conn) Topics() []*kernel.Topic { panic("unfinished") }

// Partition opens a partition for reading. CodeNotFound when it has gone.
func (c *Conn) Partition(t *kernel.Topic, index int32) (*Partition, error) { panic("unfinished") }

// Partition reads one partition's log. Safe for concurrent use.
type Partition struct{}

// Bounds returns the first readable offset and the next offset to be given.
func (p *Partition) Bounds() (start, end int64) { panic("unfinished") }

// Read appends whole stored batches to dst, beginning with the one that
// contains offset, until maxBytes is reached; at least one batch if there is
// any, even if larger. Nothing is appended at end. CodeOutOfRange,
// CodeCorrupt, CodeDropped.
func (p *Partition) Read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	panic("unfinished")
}

// TimeOffset returns the first offset whose record timestamp (ms) is at least
// ts, with that timestamp; ok is false when there is none.
func (p *Partition) TimeOffset(ts int64) (offset, timestamp int64, ok bool) { panic("unfinished") }

// Watch sends on ready (without blocking; give it capacity 1) as soon as end >
// offset, or the partition is dropped, at once if that is so already. cancel
// ends the watch.
func (p *Partition) Watch(offset int64, ready chan<- struct{}) (cancel func()) { panic("unfinished") }

// OffsetCommit is one committed reader position.
type OffsetCommit struct {
	Topic       kernel.TopicID
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// CommitOffsets stores reader positions of a reader group durably.
func (c *Conn) CommitOffsets(ctx context.Context, group string, commits []OffsetCommit) error {
	panic("unfinished")
}

// Offsets returns the committed positions of a reader group, all topics.
func (c *Conn) Offsets(group string) ([]OffsetCommit, error) { panic("unfinished") }

// OffsetGroups lists the reader groups that have committed positions.
func (c *Conn) OffsetGroups() []string { panic("unfinished") }

// DeleteOffsets forgets a reader group's positions.
func (c *Conn) DeleteOffsets(ctx context.Context, group string) error { panic("unfinished") }

// NewProducerID returns a producer id never given before.
func (c *Conn) NewProducerID(ctx context.Context) (int64, error) { panic("unfinished") }
