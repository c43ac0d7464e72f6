package forward

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/record"
)

// batchOf makes a batch as a log producer does.
func batchOf(values ...string) []byte { return batchFrom(-1, 0, values...) }

// batchFrom is batchOf an idempotent producer.
func batchFrom(producer int64, sequence int32, values ...string) []byte {
	var b record.Builder
	b.Reset()
	if producer >= 0 {
		b.SetProducer(producer, 0, sequence)
	}
	for _, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: 1_700_000_000_000})
	}
	return b.Finish(nil)
}

// logTopic makes a topic.
func (c *client) logTopic(name string, partitions int32) *kernel.Topic {
	c.t.Helper()
	t, err := c.CreateTopic(soon(c.t), broker.TopicSpec{Name: name, Partitions: partitions, Retention: kernel.RetainWeek})
	if err != nil {
		c.t.Fatal(err)
	}
	return t
}

// fill appends batches to a partition, at the broker itself.
func fill(t testing.TB, d *broker.Conn, to *kernel.Topic, partition int32, batches ...[]byte) {
	t.Helper()
	p := d.Publisher(nil)
	for i, b := range batches {
		if err := p.ToPartition(to, partition, b, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Settle(soon(t)); err != nil {
		t.Fatal(err)
	}
}

// values are those of a part of what was read.
func values(t testing.TB, q *broker.LogRead, part int) (list []string) {
	t.Helper()
	for _, at := range q.Parts[part].Chunks {
		for run := q.Data[at[0]:at[1]]; len(run) > 0; {
			b, rest, err := kernel.SplitBatch(run)
			if err != nil {
				t.Fatal(err)
			}
			var it record.Iter
			if err := it.Reset(b, nil); err != nil {
				t.Fatal(err)
			}
			for it.Next() {
				list = append(list, string(it.View().Value))
			}
			run = rest
		}
	}
	return list
}

// reads asks for all of partitions of a topic from their begin.
func reads(to *kernel.Topic, wait time.Duration, partitions ...int32) *broker.LogRead {
	q := &broker.LogRead{MaxBytes: 8 << 20, MinBytes: 1, Wait: wait}
	for _, p := range partitions {
		q.Parts = append(q.Parts, broker.LogPart{Topic: to.ID, Index: p, MaxBytes: 8 << 20})
	}
	return q
}

// alike fails unless two errors are the same to the letter.
func alike(t testing.TB, what string, got, want error) {
	t.Helper()
	if got == nil || want == nil || kernel.CodeOf(got) != kernel.CodeOf(want) || got.Error() != want.Error() {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestLogTopics: topics are made, found, listed and deleted as at the broker, with all that
// they are.
func TestLogTopics(t *testing.T) {
	b := open(t)
	c, d, ctx := serve(t, b).connect(t), direct(t, b), soon(t)
	made := c.logTopic("log", 3)
	want, _ := d.Topic("log")
	if !reflect.DeepEqual(made, want) || made.Partitions != 3 || made.Retention != kernel.RetainWeek {
		t.Errorf("%+v, want %+v", made, want)
	}
	if _, err := c.DeclareQueue(ctx, broker.QueueSpec{Name: "queue", Durable: true, Type: kernel.Quorum, Arguments: []kernel.Argument{{Name: "x-queue-type", Value: "quorum"}}}); err != nil {
		t.Fatal(err)
	}
	auto, err := c.AutoCreateTopic(ctx, "auto")
	if want, _ := d.Topic("auto"); err != nil || !reflect.DeepEqual(auto, want) {
		t.Errorf("%+v %v, want %+v", auto, err, want)
	}
	for range 2 { // the second may be remembered
		for _, name := range []string{"log", "queue", "auto"} {
			want, _ := d.Topic(name)
			if got, err := c.Topic(ctx, name, true); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v %v, want %+v", got, err, want)
			}
			if got, err := c.TopicByID(ctx, want.ID, true); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%+v %v, want %+v", got, err, want)
			}
		}
	}
	if got, err := c.Topics(ctx); err != nil || len(got) != 3 || !reflect.DeepEqual(got, d.Topics()) {
		t.Errorf("%+v %v", got, err)
	}
	for range 2 {
		if may, err := c.May(ctx, kernel.Acts(0).With(kernel.Read), broker.KindTopic, "log"); err != nil || !may || !d.May(kernel.Read, broker.KindTopic, "log") {
			t.Error(may, err)
		}
	}
	_, err = c.CreateTopic(ctx, broker.TopicSpec{Name: "log", Partitions: 1})
	_, wrong := d.CreateTopic(ctx, broker.TopicSpec{Name: "log", Partitions: 1})
	alike(t, "create", err, wrong)
	_, err = c.CreateTopic(ctx, broker.TopicSpec{Name: "none", Partitions: -1})
	_, wrong = d.CreateTopic(ctx, broker.TopicSpec{Name: "none", Partitions: -1})
	alike(t, "partitions", err, wrong)
	alike(t, "delete", c.DeleteTopic(ctx, "none"), d.DeleteTopic(ctx, "none"))
	if err := c.DeleteTopic(ctx, "log"); err != nil {
		t.Error(err)
	}
	_, err = c.Topic(ctx, "log", true)
	wantCode(t, err, kernel.CodeNotFound)
	_, err = c.TopicByID(ctx, made.ID, true)
	wantCode(t, err, kernel.CodeNotFound)
}

// TestTopicEncoding: nothing of a topic is lost.
func TestTopicEncoding(t *testing.T) {
	topic := &kernel.Topic{
		ID: kernel.TopicID{1, 15: 2}, Tenant: "t", Name: "n", Kind: kernel.Filter, Partitions: 7, Placement: 1 << 31,
		Retention: kernel.Retention{Delete: true, Age: 1, Bytes: 2, Dedup: -3}, Volatile: true, Internal: true, Auto: true, ExpiresAt: time.Unix(5, 6),
		Queue: &kernel.Queue{Type: kernel.Stream, Durable: true, AutoDelete: true, Exclusive: true, Owner: 1 << 40, Arguments: []kernel.Argument{{Name: "a", Value: int64(8)}}},
	}
	r := read(appendTopic(nil, topic))
	if got := r.topic(); r.Done() != nil || !reflect.DeepEqual(got, topic) {
		t.Errorf("%+v %v", got, r.Err())
	}
}

// TestReadLogs: what is read is what the broker reads, part by part, behind what the
// buffer holds.
func TestReadLogs(t *testing.T) {
	b := open(t)
	c, d := serve(t, b).connect(t), direct(t, b)
	kt := c.logTopic("log", 3)
	fill(t, d, kt, 0, batchOf("a", "b"), batchOf("c"))
	fill(t, d, kt, 2, batchOf(strings.Repeat("x", 900<<10)), batchOf(strings.Repeat("y", 900<<10)))
	ask := func() *broker.LogRead {
		q := reads(kt, 0, 0, 1, 2, 3)
		q.Parts[0].Offset = 1
		q.Parts = append(q.Parts, broker.LogPart{Topic: kernel.TopicID{1}, MaxBytes: 5}, broker.LogPart{Topic: kt.ID, Offset: 99, MaxBytes: 5})
		q.Data = []byte("before")
		return q
	}
	var admitted []int
	got, want := ask(), ask()
	got.Admit = func(n int) int { admitted = append(admitted, n); return 0 }
	if err := c.ReadLogs(soon(t), got); err != nil {
		t.Fatal(err)
	}
	if err := d.ReadLogs(soon(t), want); err != nil {
		t.Fatal(err)
	}
	if got.Epoch != want.Epoch || !slices.Equal(got.Data, want.Data) || !slices.Equal(admitted, []int{len(got.Data) - len("before")}) {
		t.Errorf("epoch %d, %d bytes, admitted %d; want %d, %d", got.Epoch, len(got.Data), admitted, want.Epoch, len(want.Data))
	}
	for i := range got.Parts {
		g, w := got.Parts[i], want.Parts[i]
		if w.Err != nil {
			alike(t, fmt.Sprint(i), g.Err, w.Err)
			g.Err, w.Err = nil, nil
		}
		if !reflect.DeepEqual(g, w) {
			t.Errorf("%d: %+v, want %+v", i, g, w)
		}
	}
	if list := values(t, got, 0); !slices.Equal(list, []string{"a", "b", "c"}) {
		t.Errorf("%.20q", list)
	}
	got = reads(kt, 0, 2, 0)
	got.MaxBytes = 1000 // one batch, however large
	if err := c.ReadLogs(soon(t), got); err != nil || got.Parts[0].Records != 1 || got.Parts[0].Offset != 1 || got.Parts[1].Bytes != 0 {
		t.Errorf("%+v %v", got.Parts, err)
	}
	got = reads(kt, 0, 0)
	got.MaxBytes, got.MinBytes = 0, 1<<40
	if err := c.ReadLogs(soon(t), got); err != nil || got.Parts[0].Records != 2 {
		t.Errorf("%+v %v", got.Parts, err)
	}
}

// polling starts a read, and waits until it is under way.
func polling(t *testing.T, n *network, c *client, q *broker.LogRead) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- c.ReadLogs(context.Background(), q) }()
	s := n.only()
	eventually(t, "it waits", func() bool { s.out.mu.Lock(); defer s.out.mu.Unlock(); return s.calls == 1 })
	return done
}

// TestLongPoll: a read that finds too little waits for it, and nothing else waits for the
// read.
func TestLongPoll(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c := n.connect(t)
	kt := c.logTopic("log", 2)
	q := reads(kt, patience, 0, 1)
	done := polling(t, n, c, q)
	p := c.Publisher(nil)
	if err := p.ToPartition(kt, 1, batchOf("woken"), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !slices.Equal(values(t, q, 1), []string{"woken"}) || q.Parts[0].Bytes != 0 || q.Parts[0].End != 0 {
		t.Errorf("%+v %v", q.Parts, err)
	}
	q = reads(kt, time.Millisecond, 0)
	if err := c.ReadLogs(soon(t), q); err != nil || len(q.Data) != 0 {
		t.Errorf("%+v %v", q, err)
	}
}

// TestLongPollOfOneWhoLeaves: the end of the client's link ends its reads. Where it breaks
// what was asked for is as it was.
func TestLongPollOfOneWhoLeaves(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		b := open(t)
		n := serve(t, b)
		c := n.connect(t)
		q := reads(c.logTopic("log", 1), time.Hour, 0)
		q.Data, q.Parts[0].Chunks, q.Parts[0].Start = []byte("before"), [][2]int{{1, 2}}, 7
		before := *q
		before.Parts = slices.Clone(q.Parts)
		done := polling(t, n, c, q)
		if breaks {
			n.near.Close()
			wantCode(t, <-done, kernel.CodeUnknown)
			if !reflect.DeepEqual(*q, before) {
				t.Errorf("%+v, want %+v", *q, before)
			}
		}
		c.Close()
		if !breaks {
			err := <-done // with what there is, unless it had not begun
			if err == nil && (q.Parts[0].Start != 0 || q.Parts[0].End != 0) || err != nil && kernel.CodeOf(err) != kernel.CodeUnavailable {
				t.Errorf("%+v %v", q, err)
			}
		}
		eventually(t, "the connection has gone", func() bool { return len(b.Connections()) == 0 })
	}
}

// TestReadsAreBounded: where the node has no more room for what is read, little is read,
// and nothing waits; what was read gives the room back.
func TestReadsAreBounded(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c, d := n.connect(t), direct(t, b)
	kt := c.logTopic("log", 1)
	for range 30 {
		fill(t, d, kt, 0, batchOf(strings.Repeat("x", 10<<10)))
	}
	free := n.server.reads
	size := func() int {
		q := reads(kt, patience, 0)
		if err := c.ReadLogs(soon(t), q); err != nil {
			t.Fatal(err)
		}
		return len(q.Data)
	}
	if got := size(); got < 300<<10 {
		t.Errorf("%d bytes", got)
	}
	if !free.TryAcquire(readTotal) {
		t.Fatal("a read that is over has room")
	}
	if got := size(); got == 0 || got > broker.SmallRead {
		t.Errorf("%d bytes", got)
	}
	free.Release(readTotal)
	polling(t, n, c, func() *broker.LogRead { q := reads(kt, time.Hour, 0); q.Parts[0].Offset = 30; return q }())
	eventually(t, "who waits has no room", func() bool {
		ok := free.TryAcquire(readTotal)
		if ok {
			free.Release(readTotal)
		}
		return ok
	})
}

// TestLogOffsets: questions for offsets have the broker's answers.
func TestLogOffsets(t *testing.T) {
	b := open(t)
	c, d := serve(t, b).connect(t), direct(t, b)
	kt := c.logTopic("log", 1)
	fill(t, d, kt, 0, batchOf("a", "b"))
	list := []broker.LogQuery{
		{Topic: kt.ID, Point: broker.LogStart}, {Topic: kt.ID, Point: broker.LogEnd}, {Topic: kt.ID, Point: broker.LogTime, Time: 1},
		{Topic: kt.ID, Point: broker.LogTime, Time: 1 << 60}, {Topic: kt.ID, Point: broker.LogNewest}, {Topic: kt.ID, Index: 5}, {Point: 77},
	}
	got, err := c.LogOffsets(soon(t), list)
	want, wrong := d.LogOffsets(soon(t), list)
	if err != nil || wrong != nil || !reflect.DeepEqual(got, want) || got[1].Offset != 2 || kernel.CodeOf(got[5].Err) != kernel.CodeNotFound {
		t.Errorf("%+v %v, want %+v %v", got, err, want, wrong)
	}
}

// TestCommits: positions are committed if they come by the group's coordinator, and read
// and deleted as at the broker.
func TestCommits(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	c, d, ctx := n.connect(t), direct(t, b), soon(t)
	now, err := NewHost(n, "1").Coordinators(ctx, "test")
	if err != nil {
		t.Fatal(err)
	}
	nodes := now.Nodes
	if own, err := b.Coordinators(ctx, "test"); err != nil || !reflect.DeepEqual(now, own) || len(nodes) != 1 {
		t.Fatal(now, own, err)
	}
	kt := c.logTopic("log", 2)
	commits := []broker.OffsetCommit{{Topic: kt.ID, Offset: 5, LeaderEpoch: -1, Metadata: "m"}, {Topic: kt.ID, Partition: 1, Offset: 1 << 40, LeaderEpoch: 3}}
	wantCode(t, c.CommitOffsets(ctx, broker.Tenure{Node: nodes[0].Node, Number: 7}, "g", commits), kernel.CodeFenced)
	if list, err := c.Offsets(ctx, "g"); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	if err := c.CommitOffsets(ctx, nodes[0], "g", commits); err != nil {
		t.Fatal(err)
	}
	if list, err := c.Offsets(ctx, "g"); err != nil || !reflect.DeepEqual(list, commits) {
		t.Error(list, err)
	}
	commits[0].Metadata = strings.Repeat("m", 5000)
	alike(t, "metadata", c.CommitOffsets(ctx, nodes[0], "g", commits), d.CommitOffsets(ctx, "g", commits))
	if names, err := c.OffsetGroups(ctx); err != nil || !slices.Equal(names, []string{"g"}) {
		t.Error(names, err)
	}
	if err := c.DeleteOffsets(ctx, "g"); err != nil {
		t.Error(err)
	}
	if names, err := c.OffsetGroups(ctx); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
	n.server.serving = func() *broker.Broker { return nil }
	_, err = NewHost(n, "1").Coordinators(ctx, "test")
	wantCode(t, err, kernel.CodeUnavailable)
}

// TestProducerIDs: no number is given twice.
func TestProducerIDs(t *testing.T) {
	n := serve(t, open(t))
	var mu sync.Mutex
	seen := make(map[int64]bool)
	var work sync.WaitGroup
	for range 4 {
		c := n.connect(t)
		work.Go(func() {
			for range 20 {
				id, err := c.NewProducerID(soon(t))
				mu.Lock()
				if err != nil || seen[id] {
					t.Errorf("%d %v", id, err)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	work.Wait()
}
