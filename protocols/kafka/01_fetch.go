package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
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

// smallFetch is the most a fetch answers when memory is short.
const smallFetch = 64 << 10

func (c *conn) handleFetch(req *kmsg.FetchRequest, r *reply) {
	f := &fetch{
		conn: c, version: req.Version, correlation: r.correlation, minBytes: int(req.MinBytes),
		maxBytes: min(max(int(req.MaxBytes), 0), c.srv.cfg.MaxFetchBytes),
		wait:     min(max(time.Duration(req.MaxWaitMillis)*time.Millisecond, 0), maxWait),
	}
	for i := range req.Topics {
		f.add(&req.Topics[i])
	}
	r.later(f.answer)
}

// fetch is one fetch request while it is answered. Its parts are filled in by
// the reader and used by the writer.
type fetch struct {
	conn               *conn
	version            int16
	correlation        int32
	minBytes, maxBytes int
	wait               time.Duration
	topics             []fetchTopic
	parts              []fetchPart // of all topics, in order

	held  int64  // bytes of the node's memory for fetches that are reserved
	data  []byte // batches read, in the order of chunks
	total int    // bytes read
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
	partition  partition // nil when code is set
	start, end int64
	next       int64 // offset to read from
	maxBytes   int
	bytes      int      // read so far
	records    int      // in them
	chunks     [][2]int // where in data
	more       bool     // there is more in the log than the limits let in
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
		p := fetchPart{index: qp.Partition, code: code, next: qp.FetchOffset, maxBytes: int(qp.PartitionMaxBytes), start: -1, end: -1}
		if p.code == 0 {
			p.code = f.conn.srv.checkEpoch(qp.CurrentLeaderEpoch)
		}
		if p.code == 0 {
			var err error
			if p.partition, err = f.conn.client.Partition(t, qp.Partition); err != nil {
				p.code = fetchCode(err)
			}
		}
		f.parts = append(f.parts, p)
	}
}

// answer waits until there is something to say and says it. It runs on the
// connection's writer.
func (f *fetch) answer(ctx context.Context, w *writer) error {
	f.data = f.conn.srv.buffers.get()
	defer func() {
		f.conn.srv.buffers.put(f.data)
		f.reserve(0)
	}()
	if !f.read() {
		if err := f.poll(ctx); err != nil {
			return err
		}
	}
	f.count()
	f.reserve(f.total)
	return w.write(f.encode())
}

// poll reads again after every append, until there is enough, the wait is
// over, or the server stops.
func (f *fetch) poll(ctx context.Context) error {
	timer := time.NewTimer(f.wait)
	defer timer.Stop()
	ready := make(chan struct{}, 1)
	for enough := false; !enough; enough = f.read() {
		cancel := f.watch(ready)
		select {
		case <-ready:
			cancel()
		case <-timer.C:
			cancel()
			return nil
		case <-f.conn.drain.Done():
			cancel()
			return nil
		case <-ctx.Done():
			cancel()
			return context.Cause(ctx)
		}
	}
	return nil
}

// watch asks to be woken by the next append to any partition.
func (f *fetch) watch(ready chan<- struct{}) (cancel func()) {
	cancels := make([]func(), 0, len(f.parts))
	for i := range f.parts {
		if p := &f.parts[i]; p.partition != nil {
			cancels = append(cancels, p.partition.Watch(p.next, ready))
		}
	}
	return func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}

// read reads on in every partition, within the limits. It reports whether the
// request is to be answered now.
func (f *fetch) read() (enough bool) {
	enough = f.wait == 0
	f.reserve(f.maxBytes)
	defer func() {
		if f.total == 0 {
			f.reserve(0) // nothing is held while it waits
		}
	}()
	for i := range f.parts {
		p := &f.parts[i]
		if p.partition != nil {
			f.readPart(p)
		}
		if p.code != 0 || p.more {
			enough = true
		}
	}
	return enough || f.total >= f.minBytes
}

// reserve changes how much of the node's memory for fetch answers this one
// holds. Where there is no more, the answer is kept small instead of waiting
// for others, which may be slow on purpose.
func (f *fetch) reserve(bytes int) {
	want := int64(bytes)
	switch {
	case want < f.held:
		f.conn.srv.fetches.Release(f.held - want)
		f.held = want
	case want > f.held && f.conn.srv.fetches.TryAcquire(want-f.held):
		f.held = want
	case want > f.held:
		f.maxBytes = min(f.maxBytes, smallFetch)
	}
}

func (f *fetch) readPart(p *fetchPart) {
	p.start, p.end = p.partition.Bounds()
	if p.next == p.end {
		return
	}
	room := min(p.maxBytes-p.bytes, f.maxBytes-f.total)
	if room <= 0 && f.total > 0 {
		p.more = true
		return
	}
	at := len(f.data)
	data, err := p.partition.Read(p.next, max(room, 1), f.data)
	for err != nil && kernel.CodeOf(err) == kernel.CodeCorrupt {
		next := p.partition.Around(p.next)
		if next <= p.next {
			break
		}
		p.next = next // it may be the end: then there is nothing yet
		data, err = p.partition.Read(p.next, max(room, 1), f.data)
	}
	if err != nil {
		p.code, p.partition = fetchCode(err), nil
		p.chunks = nil // what was read before is not answered beside an error
		return
	}
	f.data = data
	n := len(data) - at
	if n == 0 {
		return
	}
	next, records, ok := stampRun(data[at:], f.conn.srv.cfg.Epoch)
	if !ok || next <= p.next {
		p.code, p.partition, p.chunks = kerr.CorruptMessage.Code, nil, nil
		return
	}
	p.chunks = append(p.chunks, [2]int{at, len(data)})
	p.next, p.bytes, p.records, f.total = next, p.bytes+n, p.records+records, f.total+n
	p.more = p.next < p.end
	p.end = max(p.end, p.next) // appended since Bounds: the answer must not end beyond its high watermark
}

// stampRun writes the leader epoch into each batch of a run. It returns the
// offset that follows the run and how many records it holds.
func stampRun(run []byte, epoch int32) (next int64, records int, ok bool) {
	for len(run) > 0 {
		batch, rest, err := kernel.SplitBatch(run)
		if err != nil {
			return 0, 0, false
		}
		batch.SetLeaderEpoch(epoch)
		next, records, run = batch.LastOffset()+1, records+batch.Count(), rest
	}
	return next, records, true
}

// count adds what is answered to the protocol's counters.
func (f *fetch) count() {
	records, bytes := 0, 0
	for i := range f.parts {
		if p := &f.parts[i]; p.code == 0 {
			records, bytes = records+p.records, bytes+p.bytes
		}
	}
	counters := f.conn.client.Counters()
	counters.Out.Add(uint64(records))
	counters.OutBytes.Add(uint64(bytes))
}
