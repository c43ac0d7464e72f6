package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Logs is the part of a Link that is about topics as logs, and their readers. Its methods
// are those of broker.Conn, but for what is said here.
type Logs interface {
	// May reports whether the user may do at least one of some acts (broker.Conn.Acts).
	// It may be up to a second behind in what it says is so, and not in what is not: what
	// is done is refused, if need be.
	May(ctx context.Context, any kernel.Acts, kind, name string) (bool, error)
	// Topic and TopicByID are as far behind if the caller says that it may be so. A topic
	// that is not there is CodeNotFound.
	Topic(ctx context.Context, name string, behind bool) (*kernel.Topic, error)
	TopicByID(ctx context.Context, id kernel.TopicID, behind bool) (*kernel.Topic, error)
	Topics(ctx context.Context) ([]*kernel.Topic, error)
	AutoCreateTopic(ctx context.Context, name string) (*kernel.Topic, error)
	CreateTopic(ctx context.Context, t broker.TopicSpec) (*kernel.Topic, error)
	DeleteTopic(ctx context.Context, name string) error

	// ReadLogs leaves the parts as they were when it returns an error.
	ReadLogs(ctx context.Context, r *broker.LogRead) error
	LogOffsets(ctx context.Context, list []broker.LogQuery) ([]broker.LogAnswer, error)

	// CommitOffsets commits what members of a group have asked its coordinator for:
	// CodeFenced if that is another one (broker.Conn.Coordinates).
	CommitOffsets(ctx context.Context, coordinator broker.Tenure, group string, commits []broker.OffsetCommit) error
	Offsets(ctx context.Context, group string) ([]broker.OffsetCommit, error)
	OffsetGroups(ctx context.Context) ([]string, error)
	DeleteOffsets(ctx context.Context, group string) error
	NewProducerID(ctx context.Context) (int64, error)
}

// LogPublisher is the part of a Publisher that is for logs.
type LogPublisher interface {
	// ToPartition is broker.Publisher.ToPartition. Its outcome has the offset.
	ToPartition(t *kernel.Topic, partition int32, batch []byte, token uint64) error
}
