package forward

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

func (r *reader) topicID() (id kernel.TopicID) {
	copy(id[:], r.Bytes(len(id)))
	return id
}

func appendRetention(b []byte, t *kernel.Retention) []byte {
	b = codec.AppendFlags(b, t.Delete)
	for _, n := range []int64{int64(t.Age), t.Bytes, int64(t.Dedup)} {
		b = codec.AppendInt(b, n)
	}
	return b
}

func (r *reader) retention() kernel.Retention {
	return kernel.Retention{Delete: r.flag(), Age: time.Duration(r.Int()), Bytes: r.Int(), Dedup: time.Duration(r.Int())}
}

// appendTopic appends all of a topic: what the catalog writes of one leaves out what does
// not outlive a process.
func appendTopic(b []byte, t *kernel.Topic) []byte {
	b = append(b, t.ID[:]...)
	b = append(codec.AppendString(codec.AppendString(b, t.Tenant), t.Name), byte(t.Kind))
	b = codec.AppendUint(codec.AppendInt(b, int64(t.Partitions)), uint64(t.Placement))
	b = appendRetention(b, &t.Retention)
	b = codec.AppendFlags(b, t.Volatile, t.Internal, t.Auto, t.Queue != nil, !t.ExpiresAt.IsZero())
	if q := t.Queue; q != nil {
		b = codec.AppendFlags(append(b, byte(q.Type)), q.Durable, q.AutoDelete, q.Exclusive)
		b = codec.AppendArguments(codec.AppendUint(b, uint64(q.Owner)), q.Arguments)
	}
	if !t.ExpiresAt.IsZero() {
		b = codec.AppendInt(b, t.ExpiresAt.UnixNano())
	}
	return b
}

func (r *reader) topic() *kernel.Topic {
	t := &kernel.Topic{ID: r.topicID(), Tenant: r.String(), Name: r.String(), Kind: kernel.TopicKind(r.Byte())}
	t.Partitions, t.Placement = int32(r.int()), uint32(r.Uint())
	t.Retention = r.retention()
	var queue, expires bool
	r.Flags(&t.Volatile, &t.Internal, &t.Auto, &queue, &expires)
	if queue {
		q := &kernel.Queue{Type: kernel.QueueType(r.Byte())}
		r.Flags(&q.Durable, &q.AutoDelete, &q.Exclusive)
		q.Owner, q.Arguments = kernel.ConnectionID(r.Uint()), r.Arguments()
		t.Queue = q
	}
	if expires {
		t.ExpiresAt = time.Unix(0, r.Int())
	}
	return t
}

func appendTopicSpec(b []byte, t *broker.TopicSpec) []byte {
	return appendRetention(codec.AppendInt(codec.AppendString(b, t.Name), int64(t.Partitions)), &t.Retention)
}

func (r *reader) topicSpec() broker.TopicSpec {
	return broker.TopicSpec{Name: r.String(), Partitions: int32(r.int()), Retention: r.retention()}
}

// several reads as many as a count says.
func several[T any](r *reader, one func() T) (list []T) {
	for range r.Count() {
		if r.Err() != nil {
			return nil
		}
		list = append(list, one())
	}
	return list
}

func appendNames(b []byte, names []string) []byte {
	b = codec.AppendUint(b, uint64(len(names)))
	for _, name := range names {
		b = codec.AppendString(b, name)
	}
	return b
}

func appendTenure(b []byte, t broker.Tenure) []byte {
	return codec.AppendUint(codec.AppendString(b, t.Node), t.Number)
}

func appendTenures(b []byte, list []broker.Tenure) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for _, t := range list {
		b = appendTenure(b, t)
	}
	return b
}

func (r *reader) tenure() broker.Tenure { return broker.Tenure{Node: r.String(), Number: r.Uint()} }

// appendPlaceOf appends a partition of a topic.
func appendPlaceOf(b []byte, id kernel.TopicID, index int32) []byte {
	return codec.AppendInt(append(b, id[:]...), int64(index))
}

// most bounds what is asked for, so that it fits what numbers are carried as.
func most(n int) int64 { return int64(min(max(n, 0), 1<<30)) }

func appendLogRead(b []byte, q *broker.LogRead) []byte {
	b = codec.AppendUint(b, uint64(len(q.Parts)))
	for i := range q.Parts {
		p := &q.Parts[i]
		b = codec.AppendInt(appendPlaceOf(b, p.Topic, p.Index), p.Offset)
		b = codec.AppendInt(b, most(p.MaxBytes-p.Bytes))
	}
	b = codec.AppendInt(codec.AppendInt(b, most(q.MaxBytes)), most(q.MinBytes))
	return codec.AppendInt(b, int64(q.Wait))
}

func (r *reader) logRead() *broker.LogRead {
	q := &broker.LogRead{Parts: several(r, func() broker.LogPart {
		return broker.LogPart{Topic: r.topicID(), Index: int32(r.int()), Offset: r.Int(), MaxBytes: r.int()}
	})}
	q.MaxBytes, q.MinBytes, q.Wait = r.int(), r.int(), time.Duration(r.Int())
	return q
}

// appendLogs appends what was read: of each part how it has gone, and then the batches.
func appendLogs(b []byte, q *broker.LogRead) []byte {
	b = codec.AppendInt(b, int64(q.Epoch))
	for i := range q.Parts {
		p := &q.Parts[i]
		for _, n := range []int64{p.Offset, p.Start, p.End, int64(p.Bytes), int64(p.Records)} {
			b = codec.AppendInt(b, n)
		}
		b = appendError(b, p.Err)
	}
	for i := range q.Parts {
		for _, at := range q.Parts[i].Chunks {
			b = append(b, q.Data[at[0]:at[1]]...)
		}
	}
	return b
}

// logs reads what appendLogs has written of so many parts. The batches are what is left of
// the body, as long as the parts say.
func (r *reader) logs(n int) (epoch int32, parts []broker.LogPart) {
	epoch, parts = int32(r.int()), make([]broker.LogPart, n)
	total := 0
	for i := range parts {
		p := &parts[i]
		p.Offset, p.Start, p.End, p.Bytes, p.Records, p.Err = r.Int(), r.Int(), r.Int(), r.int(), r.int(), r.error()
		if p.Bytes < 0 || p.Records < 0 || p.Err != nil && p.Bytes > 0 {
			r.Bytes(-1)
		}
		total += p.Bytes
	}
	if r.Err() == nil && total != len(r.B) {
		r.Bytes(-1)
	}
	return epoch, parts
}

func appendLogQueries(b []byte, list []broker.LogQuery) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for i := range list {
		q := &list[i]
		b = codec.AppendInt(append(appendPlaceOf(b, q.Topic, q.Index), byte(q.Point)), q.Time)
	}
	return b
}

func (r *reader) logQuery() broker.LogQuery {
	return broker.LogQuery{Topic: r.topicID(), Index: int32(r.int()), Point: broker.LogPoint(r.Byte()), Time: r.Int()}
}

func appendLogAnswers(b []byte, list []broker.LogAnswer) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for i := range list {
		a := &list[i]
		b = appendError(codec.AppendInt(codec.AppendInt(b, a.Offset), a.Timestamp), a.Err)
	}
	return b
}

func (r *reader) logAnswer() broker.LogAnswer {
	return broker.LogAnswer{Offset: r.Int(), Timestamp: r.Int(), Err: r.error()}
}

func appendCommits(b []byte, list []broker.OffsetCommit) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for i := range list {
		o := &list[i]
		b = codec.AppendInt(appendPlaceOf(b, o.Topic, o.Partition), o.Offset)
		b = codec.AppendString(codec.AppendInt(b, int64(o.LeaderEpoch)), o.Metadata)
	}
	return b
}

func (r *reader) commit() broker.OffsetCommit {
	return broker.OffsetCommit{Topic: r.topicID(), Partition: int32(r.int()), Offset: r.Int(), LeaderEpoch: int32(r.int()), Metadata: r.String()}
}
