package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

func (l localLink) May(_ context.Context, any kernel.Acts, kind, name string) (bool, error) {
	return l.Conn.Acts(kind, name)&any != 0, nil
}

func (l localLink) Topic(_ context.Context, name string, _ bool) (*kernel.Topic, error) {
	return l.FindTopic(name)
}

func (l localLink) TopicByID(_ context.Context, id kernel.TopicID, _ bool) (*kernel.Topic, error) {
	return l.FindTopicByID(id)
}

func (l localLink) Topics(context.Context) ([]*kernel.Topic, error) { return l.Conn.Topics(), nil }

func (l localLink) CommitOffsets(ctx context.Context, coordinator broker.Tenure, group string, commits []broker.OffsetCommit) error {
	return l.CommitOffsetsBy(ctx, coordinator, group, commits)
}

func (l localLink) Offsets(_ context.Context, group string) ([]broker.OffsetCommit, error) {
	return l.Conn.Offsets(group)
}

func (l localLink) OffsetGroups(context.Context) ([]string, error) { return l.Conn.OffsetGroups(), nil }
