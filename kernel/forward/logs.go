package forward

import (
	"context"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

var _ edge.Logs = (*link)(nil)

// May implements edge.Logs. What the user may do is remembered for a second.
func (l *link) May(ctx context.Context, any kernel.Acts, kind, name string) (bool, error) {
	of := recalled{m: methodActs, kind: kind, name: name}
	if s, known := l.recall.get(of); known && s.acts&any != 0 {
		return true, nil
	}
	var acts kernel.Acts
	err := l.call(ctx, methodActs, func(b []byte) []byte {
		return codec.AppendString(codec.AppendString(b, kind), name)
	}, func(r *reader) {
		if acts = kernel.Acts(r.Byte()); r.Done() == nil {
			l.recall.put(of, said{acts: acts})
		}
	}, nil)
	return acts&any != 0, err
}

// Topic implements edge.Logs. One that is there is remembered for a second.
func (l *link) Topic(ctx context.Context, name string, behind bool) (*kernel.Topic, error) {
	if s, known := l.recall.get(recalled{m: methodTopic, name: name}); known && behind {
		return s.topic, nil
	}
	return l.topic(ctx, methodTopic, text(name))
}

// TopicByID implements edge.Logs. One that is there is remembered for a second.
func (l *link) TopicByID(ctx context.Context, id kernel.TopicID, behind bool) (*kernel.Topic, error) {
	if s, known := l.recall.get(recalled{m: methodTopicByID, id: id}); known && behind {
		return s.topic, nil
	}
	return l.topic(ctx, methodTopicByID, func(b []byte) []byte { return append(b, id[:]...) })
}

// topic calls what returns a topic.
func (l *link) topic(ctx context.Context, m method, args func([]byte) []byte) (*kernel.Topic, error) {
	var t *kernel.Topic
	err := l.call(ctx, m, args, func(r *reader) {
		if m == methodCreateTopic {
			l.recall.forget()
		}
		if t = r.topic(); r.Done() == nil {
			l.recall.topic(t)
		}
	}, nil)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Topics implements edge.Logs.
func (l *link) Topics(ctx context.Context) ([]*kernel.Topic, error) {
	var list []*kernel.Topic
	err := l.call(ctx, methodTopics, nil, func(r *reader) { list = several(r, r.topic) }, nil)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// AutoCreateTopic implements edge.Logs.
func (l *link) AutoCreateTopic(ctx context.Context, name string) (*kernel.Topic, error) {
	return l.topic(ctx, methodAutoCreateTopic, text(name))
}

// CreateTopic implements edge.Logs.
func (l *link) CreateTopic(ctx context.Context, t broker.TopicSpec) (*kernel.Topic, error) {
	made, err := l.topic(ctx, methodCreateTopic, func(b []byte) []byte { return appendTopicSpec(b, &t) })
	if err != nil {
		l.recall.forget()
	}
	return made, err
}

// DeleteTopic implements edge.Logs.
func (l *link) DeleteTopic(ctx context.Context, name string) error {
	err := l.call(ctx, methodDeleteTopic, text(name), func(*reader) { l.recall.forget() }, l.recall.forget)
	if err != nil {
		l.recall.forget()
	}
	return err
}

// ReadLogs implements edge.Logs. Admit is told how many bytes have come, and not asked.
func (l *link) ReadLogs(ctx context.Context, q *broker.LogRead) error {
	at := len(q.Data)
	err := l.call(ctx, methodReadLogs, func(b []byte) []byte { return appendLogRead(b, q) },
		func(r *reader) { l.onLogs(q, r) }, nil)
	if err == nil && q.Admit != nil {
		q.Admit(len(q.Data) - at)
	}
	return err
}

// onLogs takes what was read. What is wrong with it leaves q as it is.
func (l *link) onLogs(q *broker.LogRead, r *reader) {
	epoch, parts := r.logs(len(q.Parts))
	if r.Err() != nil {
		return
	}
	q.Epoch = epoch
	at := len(q.Data)
	q.Data = append(slices.Grow(q.Data, len(r.B)), r.B...)
	r.B = nil
	for i := range parts {
		p, got := &q.Parts[i], &parts[i]
		p.Offset, p.Start, p.End, p.Err = got.Offset, got.Start, got.End, got.Err
		if p.Err != nil {
			p.Chunks, p.Bytes, p.Records = nil, 0, 0
			l.recall.doubt(p.Err)
			continue
		}
		p.Bytes, p.Records = p.Bytes+got.Bytes, p.Records+got.Records
		if got.Bytes > 0 {
			p.Chunks = append(p.Chunks, [2]int{at, at + got.Bytes})
			at += got.Bytes
		}
	}
}

// LogOffsets implements edge.Logs.
func (l *link) LogOffsets(ctx context.Context, list []broker.LogQuery) ([]broker.LogAnswer, error) {
	var out []broker.LogAnswer
	err := l.call(ctx, methodLogOffsets, func(b []byte) []byte { return appendLogQueries(b, list) }, func(r *reader) {
		if out = several(r, r.logAnswer); len(out) != len(list) {
			r.Bytes(-1)
		}
	}, nil)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// CommitOffsets implements edge.Logs.
func (l *link) CommitOffsets(ctx context.Context, coordinator broker.Tenure, group string, commits []broker.OffsetCommit) error {
	return l.call(ctx, methodCommitOffsets, func(b []byte) []byte {
		return appendCommits(codec.AppendString(appendTenure(b, coordinator), group), commits)
	}, nil, nil)
}

// Offsets implements edge.Logs.
func (l *link) Offsets(ctx context.Context, group string) ([]broker.OffsetCommit, error) {
	var list []broker.OffsetCommit
	err := l.call(ctx, methodOffsets, text(group), func(r *reader) { list = several(r, r.commit) }, nil)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// OffsetGroups implements edge.Logs.
func (l *link) OffsetGroups(ctx context.Context) ([]string, error) {
	var list []string
	err := l.call(ctx, methodOffsetGroups, nil, func(r *reader) { list = several(r, r.String) }, nil)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// DeleteOffsets implements edge.Logs.
func (l *link) DeleteOffsets(ctx context.Context, group string) error {
	return l.call(ctx, methodDeleteOffsets, text(group), nil, nil)
}

// NewProducerID implements edge.Logs.
func (l *link) NewProducerID(ctx context.Context) (int64, error) {
	var id int64
	if err := l.call(ctx, methodNewProducerID, nil, func(r *reader) { id = r.Int() }, nil); err != nil {
		return 0, err
	}
	return id, nil
}
