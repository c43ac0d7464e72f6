package broker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// logTopic makes a topic, and returns what appends batches to its partitions.
func logTopic(t *testing.T, c *Conn, name string, partitions int32) (kt *kernel.Topic, put func(partition int32, values ...string)) {
	t.Helper()
	kt, err := c.CreateTopic(soon(t), TopicSpec{Name: name, Partitions: partitions, Retention: kernel.RetainWeek})
	must(t, err)
	p := publisher(t, c)
	n := 0
	return kt, func(partition int32, values ...string) {
		t.Helper()
		n++
		must(t, p.p.ToPartition(kt, partition, batchOf(values...), uint64(n)))
		if res := p.done.wait(t, uint64(n)); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
}

// TestReadLogs: whole batches of all parts, within the limits, with the epoch of the
// leadership, and what each part says of its log.
func TestReadLogs(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	kt, put := logTopic(t, c, "log", 2)
	put(0, "a", "b")
	put(0, "c")
	put(1, "d")
	size := len(batchOf("a", "b"))

	r := &LogRead{MaxBytes: 1 << 20, Parts: []LogPart{
		{Topic: kt.ID, MaxBytes: 1 << 20}, {Topic: kt.ID, Index: 1, MaxBytes: 1 << 20}, {Topic: kt.ID, Index: 2}, {Index: 1},
		{Topic: kt.ID, Offset: 9, MaxBytes: 1}, {Topic: kt.ID, Offset: 3, MaxBytes: 1},
	}}
	must(t, c.ReadLogs(soon(t), r))
	if p := r.Parts[0]; p.Err != nil || p.Start != 0 || p.End != 3 || p.Offset != 3 || p.Records != 3 || p.Bytes != p.Chunks[0][1]-p.Chunks[0][0] {
		t.Errorf("first: %+v", p)
	}
	if p := r.Parts[1]; p.Err != nil || p.End != 1 || p.Offset != 1 || p.Records != 1 {
		t.Errorf("second: %+v", p)
	}
	for i, code := range map[int]kernel.Code{2: kernel.CodeNotFound, 3: kernel.CodeNotFound, 4: kernel.CodeOutOfRange} {
		wantCode(t, r.Parts[i].Err, code)
		if r.Parts[i].Start != -1 || r.Parts[i].End != -1 {
			t.Errorf("part %d: %+v", i, r.Parts[i])
		}
	}
	if p := r.Parts[5]; p.Err != nil || p.End != 3 || p.Bytes != 0 {
		t.Errorf("at the end: %+v", p)
	}
	for run := kernel.Batch(r.Data); len(run) > 0; {
		batch, rest, err := kernel.SplitBatch(run)
		must(t, err)
		if record.LeaderEpoch(batch) != int32(b.Epoch()) || r.Epoch != int32(b.Epoch()) {
			t.Errorf("epoch %d and %d, want %d", record.LeaderEpoch(batch), r.Epoch, b.Epoch())
		}
		run = rest
	}

	// One batch is read even if it is too large, and the next part waits.
	r = &LogRead{MaxBytes: 1, Parts: []LogPart{{Topic: kt.ID, MaxBytes: 1 << 20}, {Topic: kt.ID, Index: 1, MaxBytes: 1 << 20}}}
	must(t, c.ReadLogs(soon(t), r))
	if len(r.Data) != size || r.Parts[0].Offset != 2 || r.Parts[1].Bytes != 0 || r.Parts[1].End != 1 {
		t.Errorf("%d bytes: %+v", len(r.Data), r.Parts)
	}
	// Who lets in less gets less.
	var told []int
	r = &LogRead{MaxBytes: 1 << 20, Parts: []LogPart{{Topic: kt.ID, MaxBytes: 1 << 20}}, Admit: func(n int) int { told = append(told, n); return min(n, size) }}
	must(t, c.ReadLogs(soon(t), r))
	if len(r.Data) != size || !slices.Equal(told, []int{1 << 20}) {
		t.Errorf("%d bytes, admitted %v", len(r.Data), told)
	}
}

// TestReadLogsWaits: for an append, for so many bytes, for no longer than it is to, and
// not with a connection that is closed.
func TestReadLogsWaits(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	kt, put := logTopic(t, connect(t, b), "log", 2)
	read := func(minBytes int, wait time.Duration, ctx context.Context) (*LogRead, chan error) {
		waits, done := make(chan struct{}, 100), make(chan error, 1)
		r := &LogRead{MaxBytes: 1 << 20, MinBytes: minBytes, Wait: wait, Parts: []LogPart{{Topic: kt.ID, MaxBytes: 1 << 20}, {Topic: kt.ID, Index: 1, MaxBytes: 1 << 20}}}
		r.Admit = func(n int) int {
			waits <- struct{}{}
			return n
		}
		go func() { done <- c.ReadLogs(ctx, r) }()
		select {
		case <-waits: // it has begun
		case <-soon(t).Done():
			t.Fatal("it does not begin")
		}
		return r, done
	}
	end := func(done chan error) error {
		t.Helper()
		select {
		case err := <-done:
			return err
		case <-soon(t).Done():
			t.Fatal("it never ends")
			return nil
		}
	}
	r, done := read(1, time.Hour, soon(t))
	put(1, "a")
	must(t, end(done))
	if r.Parts[1].Records != 1 || r.Parts[0].Err != nil || r.Parts[0].End != 0 {
		t.Errorf("woken: %+v", r.Parts)
	}
	r, done = read(3*len(batchOf("b")), time.Hour, soon(t))
	put(0, "b")
	put(0, "c")
	must(t, end(done))
	if r.Parts[0].Records != 2 || r.Parts[1].Records != 1 {
		t.Errorf("enough: %+v", r.Parts)
	}
	r, done = read(1<<20, 20*time.Millisecond, soon(t))
	must(t, end(done))
	if r.Parts[0].Records != 2 {
		t.Errorf("when the wait is over: %+v", r.Parts)
	}
	kt, _ = logTopic(t, connect(t, b), "empty", 2)
	ctx, cancel := context.WithCancel(t.Context())
	r, done = read(1, time.Hour, ctx)
	cancel()
	if must(t, end(done)); r.Parts[0].Start != 0 || r.Parts[0].Err != nil {
		t.Errorf("when nobody waits: %+v", r.Parts)
	}
	_, done = read(1, time.Hour, soon(t))
	c.Close()
	wantCode(t, end(done), kernel.CodeUnavailable)
}

// TestReadLogsOfOthers: a topic that a user may not read, also from the moment when he may
// not any more.
func TestReadLogsOfOthers(t *testing.T) {
	b := open(t, t.TempDir())
	kt, put := logTopic(t, connect(t, b), "log", 1)
	put(0, "a")
	c := userOf(t, b, "reader", "", "", "log")
	r := &LogRead{MaxBytes: 1 << 20, Parts: []LogPart{{Topic: kt.ID, MaxBytes: 1 << 20}}}
	must(t, c.ReadLogs(soon(t), r))
	must(t, r.Parts[0].Err)
	if acts := c.Acts(KindTopic, "log"); !acts.Has(kernel.Read) || acts.Has(kernel.Write) || acts.Has(kernel.Configure) {
		t.Errorf("acts %b", acts)
	}
	if acts := c.Acts(KindTopic, "other"); acts != 0 {
		t.Errorf("acts %b", acts)
	}
	c = userOf(t, b, "writer", "", "log", "")
	r = &LogRead{MaxBytes: 1 << 20, Parts: []LogPart{{Topic: kt.ID, MaxBytes: 1 << 20}}}
	must(t, c.ReadLogs(soon(t), r))
	wantCode(t, r.Parts[0].Err, kernel.CodeAccessRefused)
	a, err := c.LogOffsets(soon(t), []LogQuery{{Topic: kt.ID}})
	must(t, err)
	wantCode(t, a[0].Err, kernel.CodeAccessRefused)
}

// TestLogOffsets: all points, of times up to the highest there is.
func TestLogOffsets(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	kt, _ := logTopic(t, c, "log", 2)
	p := publisher(t, c)
	var batch record.Builder
	for i, ts := range []int64{5, math.MaxInt64, 7} {
		batch.Append(&record.Record{Value: fmt.Append(nil, i), Timestamp: ts})
	}
	must(t, p.p.ToPartition(kt, 0, batch.Finish(nil), 1))
	must(t, p.done.wait(t, 1).Err)
	const none = -1
	for _, q := range []struct {
		LogQuery
		offset, ts int64
		code       kernel.Code
	}{
		{LogQuery{Topic: kt.ID}, 0, none, 0}, {LogQuery{Topic: kt.ID, Point: LogEnd}, 3, none, 0},
		{LogQuery{Topic: kt.ID, Point: LogTime, Time: 6}, 1, math.MaxInt64, 0}, {LogQuery{Topic: kt.ID, Point: LogNewest}, 1, math.MaxInt64, 0},
		{LogQuery{Topic: kt.ID, Index: 1, Point: LogNewest}, none, none, 0}, {LogQuery{Topic: kt.ID, Index: 1, Point: LogTime}, none, none, 0},
		{LogQuery{Topic: kt.ID, Index: 1, Point: LogEnd}, 0, none, 0}, {LogQuery{Topic: kt.ID, Index: 2}, none, none, kernel.CodeNotFound},
		{LogQuery{}, none, none, kernel.CodeNotFound}, {LogQuery{Topic: kt.ID, Point: 99}, none, none, kernel.CodeInvalid},
	} {
		list, err := c.LogOffsets(soon(t), []LogQuery{q.LogQuery})
		must(t, err)
		if a := list[0]; a.Offset != q.offset || a.Timestamp != q.ts || (a.Err == nil) != (q.code == 0) || a.Err != nil && kernel.CodeOf(a.Err) != q.code {
			t.Errorf("%+v: %+v", q.LogQuery, a)
		}
	}
}

// TestReadReplica: what lies far behind comes from the replica; nothing does of which the
// replica's end would be told.
func TestReadReplica(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	kt, put := logTopic(t, c, "log", 2)
	for range 4 {
		put(0, "a", "b")
		put(1, "c")
	}
	size := len(batchOf("a", "b"))
	read := func(bytes int, parts ...LogPart) (*LogRead, bool) {
		r := &LogRead{MaxBytes: bytes, Parts: parts, Data: []byte("before")}
		before := slices.Clone(r.Parts)
		done := b.node.ReadReplica(r)
		if !done && (!slices.EqualFunc(r.Parts, before, func(a, b LogPart) bool { return a.Offset == b.Offset && a.Bytes == b.Bytes && a.Err == nil }) ||
			r.MaxBytes != bytes || string(r.Data) != "before") {
			t.Errorf("it was not read and has changed: %+v", r)
		}
		return r, done
	}
	whole := LogPart{Topic: kt.ID, MaxBytes: 1 << 20}
	if r, ok := read(2*size, whole); !ok || r.Parts[0].Offset != 4 || r.Parts[0].Records != 4 || r.Parts[0].End != 8 || r.Epoch != int32(b.Epoch()) ||
		len(r.Data) != len("before")+2*size || r.Parts[0].Chunks[0][0] != len("before") {
		t.Errorf("%v: %+v", ok, r)
	}
	for what, parts := range map[string][]LogPart{
		"to the end": {whole}, "at the end": {{Topic: kt.ID, Offset: 8}}, "beyond it": {{Topic: kt.ID, Offset: 9}},
		"no partition": {{Topic: kt.ID, Index: 2}}, "no topic": {{}}, "before the start": {{Topic: kt.ID, Offset: -1}}, "nothing": nil,
		"one of two at its end": {whole, {Topic: kt.ID, Index: 1, Offset: 4}},
	} {
		bytes := 1 << 20
		if len(parts) > 1 {
			bytes = size
		}
		if _, ok := read(bytes, parts...); ok {
			t.Errorf("%s: read", what)
		}
	}
}
