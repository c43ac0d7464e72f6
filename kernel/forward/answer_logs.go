package forward

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// maxRead is how many bytes of logs one call reads at most, if they are several
	// batches, and readTotal how many all calls together.
	maxRead   = 64 << 20
	readTotal = 256 << 20
	// keepRead is how large a buffer is that is used again.
	keepRead = 2 << 20
)

// logCall returns what is asked of topics as logs, nil if there is no such method. waits
// says that it may take its time.
func (c *session) logCall(call uint64, m method, r *reader) (do answer, waits bool) {
	switch m {
	case methodActs:
		kind, name := r.String(), r.String()
		return func() (func([]byte) []byte, error) {
			acts := c.conn.Acts(kind, name)
			return func(b []byte) []byte { return append(b, byte(acts)) }, nil
		}, false
	case methodTopic:
		name := r.String()
		return topicAnswer(func() (*kernel.Topic, error) { return c.conn.FindTopic(name) }), false
	case methodTopicByID:
		id := r.topicID()
		return topicAnswer(func() (*kernel.Topic, error) { return c.conn.FindTopicByID(id) }), false
	case methodTopics:
		return func() (func([]byte) []byte, error) {
			list := c.conn.Topics()
			return func(b []byte) []byte {
				b = codec.AppendUint(b, uint64(len(list)))
				for _, t := range list {
					b = appendTopic(b, t)
				}
				return b
			}, nil
		}, true
	case methodAutoCreateTopic:
		name := r.String()
		return topicAnswer(func() (*kernel.Topic, error) { return c.conn.AutoCreateTopic(c.ctx, name) }), true
	case methodCreateTopic:
		t := r.topicSpec()
		return topicAnswer(func() (*kernel.Topic, error) { return c.conn.CreateTopic(c.ctx, t) }), true
	case methodDeleteTopic:
		name := r.String()
		return func() (func([]byte) []byte, error) { return nil, c.conn.DeleteTopic(c.ctx, name) }, true
	case methodReadLogs:
		q := r.logRead()
		return func() (func([]byte) []byte, error) { return c.readLogs(call, q) }, true
	}
	return c.offsetCall(m, r), true
}

// offsetCall returns what is asked of offsets and producers, nil if there is no such
// method.
func (c *session) offsetCall(m method, r *reader) answer {
	switch m {
	case methodLogOffsets:
		list := several(r, r.logQuery)
		return func() (func([]byte) []byte, error) {
			out, err := c.conn.LogOffsets(c.ctx, list)
			return func(b []byte) []byte { return appendLogAnswers(b, out) }, err
		}
	case methodCommitOffsets:
		coordinator, group, commits := r.tenure(), r.String(), several(r, r.commit)
		return func() (func([]byte) []byte, error) {
			return nil, c.conn.CommitOffsetsBy(c.ctx, coordinator, group, commits)
		}
	case methodOffsets:
		group := r.String()
		return func() (func([]byte) []byte, error) {
			list, err := c.conn.Offsets(group)
			return func(b []byte) []byte { return appendCommits(b, list) }, err
		}
	case methodOffsetGroups:
		return func() (func([]byte) []byte, error) {
			names := c.conn.OffsetGroups()
			return func(b []byte) []byte { return appendNames(b, names) }, nil
		}
	case methodDeleteOffsets:
		group := r.String()
		return func() (func([]byte) []byte, error) { return nil, c.conn.DeleteOffsets(c.ctx, group) }
	case methodNewProducerID:
		return countAnswer(func() (int64, error) { return c.conn.NewProducerID(c.ctx) })
	}
	return nil
}

func topicAnswer(do func() (*kernel.Topic, error)) answer {
	return func() (func([]byte) []byte, error) {
		t, err := do()
		return func(b []byte) []byte { return appendTopic(b, t) }, err
	}
}

// readLogs reads logs, and answers with what was read.
func (c *session) readLogs(call uint64, q *broker.LogRead) (func([]byte) []byte, error) {
	s := &shelf{q: q, room: broker.ReadRoom{Of: c.server.reads}}
	defer s.admit(0)
	q.MaxBytes, q.Admit = min(max(q.MaxBytes, 1), maxRead), s.admit
	if err := c.conn.ReadLogs(c.ctx, q); err != nil {
		return nil, err
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.grow(len(q.Data) + len(q.Parts)*64 + 64)
	c.result(call, nil, func(b []byte) []byte { return appendLogs(b, q) })
	return nil, errAnswered
}

// shelf has room for what is read of logs: of that which the node has for it, and a buffer
// that is used again. While it waits it has none.
type shelf struct {
	q    *broker.LogRead
	room broker.ReadRoom
}

// logBuffers are for what is read.
var logBuffers sync.Pool

// admit is broker.LogRead.Admit.
func (s *shelf) admit(bytes int) int {
	if bytes == 0 {
		if b := s.q.Data[:0]; cap(b) > 0 && cap(b) <= keepRead {
			logBuffers.Put(&b)
		}
		s.q.Data = nil
	} else if s.q.Data == nil {
		if b, ok := logBuffers.Get().(*[]byte); ok {
			s.q.Data = *b
		}
	}
	return s.room.Set(bytes)
}
