package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Await waits for a host: CodeUnavailable. ctx, the end of the connection and its patience
// bound it.
func (c *Conn) Await(ctx context.Context) error {
	_, err := c.linked(ctx)
	return err
}

// Identity is whose connection it is.
func (c *Conn) Identity() kernel.Identity { return c.id }

// asked is do for what returns something.
func asked[T any](ctx context.Context, c *Conn, fn func(*link) (T, error)) (out T, err error) {
	err = c.do(ctx, func(l *link) (err error) {
		out, err = fn(l)
		return err
	})
	return out, err
}

// May is Logs.May.
func (c *Conn) May(ctx context.Context, any kernel.Acts, kind, name string) (bool, error) {
	return asked(ctx, c, func(l *link) (bool, error) { return l.May(ctx, any, kind, name) })
}

// Topic is Logs.Topic.
func (c *Conn) Topic(ctx context.Context, name string, behind bool) (*kernel.Topic, error) {
	return asked(ctx, c, func(l *link) (*kernel.Topic, error) { return l.Topic(ctx, name, behind) })
}

// TopicByID is Logs.TopicByID.
func (c *Conn) TopicByID(ctx context.Context, id kernel.TopicID, behind bool) (*kernel.Topic, error) {
	return asked(ctx, c, func(l *link) (*kernel.Topic, error) { return l.TopicByID(ctx, id, behind) })
}

// Topics is broker.Conn.Topics.
func (c *Conn) Topics(ctx context.Context) ([]*kernel.Topic, error) {
	return asked(ctx, c, func(l *link) ([]*kernel.Topic, error) { return l.Topics(ctx) })
}

// AutoCreateTopic is broker.Conn.AutoCreateTopic.
func (c *Conn) AutoCreateTopic(ctx context.Context, name string) (*kernel.Topic, error) {
	return asked(ctx, c, func(l *link) (*kernel.Topic, error) { return l.AutoCreateTopic(ctx, name) })
}

// CreateTopic is broker.Conn.CreateTopic. A host that is lost may have made it: done again,
// CodeExists then says no more than that it is there, as it was asked for.
func (c *Conn) CreateTopic(ctx context.Context, spec broker.TopicSpec) (t *kernel.Topic, err error) {
	repeated := false
	err = c.do(ctx, func(l *link) (err error) {
		t, err = l.CreateTopic(ctx, spec)
		if repeated && kernel.CodeOf(err) == kernel.CodeExists {
			if made, lookup := l.Topic(ctx, spec.Name, false); lookup == nil && made.Partitions == spec.Partitions && made.Retention == spec.Retention {
				t, err = made, nil
			}
		}
		repeated = true
		return err
	})
	return t, err
}

// DeleteTopic is broker.Conn.DeleteTopic. A host that is lost may have deleted it.
func (c *Conn) DeleteTopic(ctx context.Context, name string) error {
	repeated := false
	return c.do(ctx, func(l *link) error {
		err := l.DeleteTopic(ctx, name)
		if repeated && kernel.CodeOf(err) == kernel.CodeNotFound {
			err = nil
		}
		repeated = true
		return err
	})
}

// ReadLogs is broker.Conn.ReadLogs. What is far behind the end comes from this node's
// replica if another node serves: that the user may read it is what May has said.
func (c *Conn) ReadLogs(ctx context.Context, r *broker.LogRead) error {
	return c.do(ctx, func(l *link) error {
		if l.far() && c.e.cfg.Replica != nil && c.e.cfg.Replica.ReadReplica(r) {
			return nil
		}
		return l.ReadLogs(ctx, r)
	})
}

// far reports whether the host is another node.
func (l *link) far() bool {
	_, local := l.host.Host.(localHost)
	return !local
}

// LogOffsets is broker.Conn.LogOffsets.
func (c *Conn) LogOffsets(ctx context.Context, list []broker.LogQuery) ([]broker.LogAnswer, error) {
	return asked(ctx, c, func(l *link) ([]broker.LogAnswer, error) { return l.LogOffsets(ctx, list) })
}

// CommitOffsets is Logs.CommitOffsets.
func (c *Conn) CommitOffsets(ctx context.Context, coordinator broker.Tenure, group string, commits []broker.OffsetCommit) error {
	return c.do(ctx, func(l *link) error { return l.CommitOffsets(ctx, coordinator, group, commits) })
}

// Offsets is broker.Conn.Offsets.
func (c *Conn) Offsets(ctx context.Context, group string) ([]broker.OffsetCommit, error) {
	return asked(ctx, c, func(l *link) ([]broker.OffsetCommit, error) { return l.Offsets(ctx, group) })
}

// OffsetGroups is broker.Conn.OffsetGroups.
func (c *Conn) OffsetGroups(ctx context.Context) ([]string, error) {
	return asked(ctx, c, func(l *link) ([]string, error) { return l.OffsetGroups(ctx) })
}

// DeleteOffsets is broker.Conn.DeleteOffsets.
func (c *Conn) DeleteOffsets(ctx context.Context, group string) error {
	return c.do(ctx, func(l *link) error { return l.DeleteOffsets(ctx, group) })
}

// NewProducerID is broker.Conn.NewProducerID.
func (c *Conn) NewProducerID(ctx context.Context) (int64, error) {
	return asked(ctx, c, func(l *link) (int64, error) { return l.NewProducerID(ctx) })
}

// ToPartition is broker.Publisher.ToPartition.
func (p *publisher) ToPartition(t *kernel.Topic, partition int32, batch []byte, token uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.bind()
	if in == nil {
		return ErrUnlinked
	}
	return p.judge(in.ToPartition(t, partition, batch, token))
}
