package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Fetch, versions 4-18.
//
// v4: isolation level; without transactions both levels read the same
// v5: log start offset
// v7: sessions (KIP-227), declined: the answer's session id is always 0, and
// the client goes on sending whole requests
// v9: the client's view of the leader epoch is checked (KIP-320)
// v11: rack, ignored; preferred replica, none
// v12: flexible; last fetched epoch, ignored, as the log is never truncated
// below what was acknowledged
// v13: topics by id
// v15-18: replica fields, ignored: no follower fetches here
//
// Whole batches are answered as stored, beginning with the one that contains
// the offset; clients skip what they did not ask for. The first batch goes out
// however large it is. A request that finds less than min_bytes waits, woken by
// appends, until there is enough or max_wait is over; it is then answered with
// what there is, never with an error.
//
// Records that are lost to damage on disk are an error once, for somebody to see;
// then they are a hole, as compaction leaves them, which clients step over.

// maxWait bounds max_wait, which is the client's.
const maxWait = 5 * time.Minute

func (c *conn) handleFetch(req *kmsg.FetchRequest, r *reply) {
	f := &fetch{conn: c, version: req.Version, correlation: r.correlation}
	f.read.MinBytes = int(req.MinBytes)
	f.read.MaxBytes = min(max(int(req.MaxBytes), 0), c.srv.cfg.MaxFetchBytes)
	f.read.Wait = min(max(time.Duration(req.MaxWaitMillis)*time.Millisecond, 0), maxWait)
	f.room.Of = c.srv.fetches
	f.read.Admit = f.room.Set
	for i := range req.Topics {
		f.add(&req.Topics[i])
	}
	r.later(f.answer)
}

// fetch is one fetch request while it is answered. Its parts are filled in by
// the reader and used by the writer.
type fetch struct {
	conn        *conn
	version     int16
	correlation int32
	topics      []fetchTopic
	parts       []fetchPart // of all topics, in order
	read        broker.LogRead

	room broker.ReadRoom // of the node's memory for fetches
}

type fetchTopic struct {
	name  string
	id    kernel.TopicID
	parts int
}

// fetchPart is one partition of a fetch.
type fetchPart struct {
	index      int32
	code       int16
	read       int // its place among what is read, -1 = nowhere
	start, end int64
	chunks     [][2]int // where in the data
}

// add prepares the partitions of one topic.
func (f *fetch) add(q *kmsg.FetchRequestTopic) {
	f.topics = append(f.topics, fetchTopic{name: q.Topic, id: q.TopicID, parts: len(q.Partitions)})
	t, code := f.conn.topicFor(kernel.Read, f.version >= 13, q.TopicID, q.Topic)
	if code == kerr.InvalidTopicException.Code {
		code = kerr.UnknownTopicOrPartition.Code
	}
	for i := range q.Partitions {
		qp := &q.Partitions[i]
		p := fetchPart{index: qp.Partition, code: code, read: -1, start: -1, end: -1}
		if p.code == 0 {
			p.code = f.conn.srv.checkEpoch(qp.CurrentLeaderEpoch)
		}
		if p.code == 0 {
			p.read = len(f.read.Parts)
			f.read.Parts = append(f.read.Parts, broker.LogPart{Topic: t.ID, Index: qp.Partition, Offset: qp.FetchOffset, MaxBytes: int(qp.PartitionMaxBytes)})
		} else {
			f.read.Wait = 0 // an error is told at once
		}
		f.parts = append(f.parts, p)
	}
}

// answer waits until there is something to say and says it. It runs on the
// connection's writer.
func (f *fetch) answer(ctx context.Context, w *writer) error {
	f.read.Data = f.conn.srv.buffers.get()
	defer func() {
		f.conn.srv.buffers.put(f.read.Data)
		f.room.Set(0)
	}()
	if err := f.readAll(ctx); err != nil {
		return err
	}
	f.count()
	f.room.Set(len(f.read.Data))
	return w.write(f.encode())
}

// readAll reads, and waits if need be. When the server stops it answers with what there
// is, or that clients should look for another node.
func (f *fetch) readAll(ctx context.Context) error {
	if len(f.read.Parts) == 0 {
		return f.rest(ctx)
	}
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.conn.drain, cancel)()
	err := f.conn.client.ReadLogs(calling, &f.read)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i := range f.parts {
		p := &f.parts[i]
		if p.read < 0 {
			continue
		}
		if err != nil {
			p.code = kerr.NotLeaderForPartition.Code
			continue
		}
		part := &f.read.Parts[p.read]
		if part.Err != nil {
			p.code = fetchCode(part.Err)
		}
		p.start, p.end, p.chunks = part.Start, part.End, part.Chunks
	}
	return nil
}

// rest waits as long as a request for nothing asks for.
func (f *fetch) rest(ctx context.Context) error {
	timer := time.NewTimer(f.read.Wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.conn.drain.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// count adds what is answered to the protocol's counters.
func (f *fetch) count() {
	records, bytes := 0, 0
	for i := range f.read.Parts {
		p := &f.read.Parts[i]
		records, bytes = records+p.Records, bytes+p.Bytes
	}
	counters := f.conn.client.Counters()
	counters.Out.Add(uint64(records))
	counters.OutBytes.Add(uint64(bytes))
}
