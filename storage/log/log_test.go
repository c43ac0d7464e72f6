package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// wal is a Source: log entries by index, of which a prefix may be cut.
type wal struct {
	mu      sync.Mutex
	entries map[uint64][]byte
	first   uint64
	last    uint64
	reads   int
}

func newWAL() *wal { return &wal{entries: make(map[uint64][]byte), first: 1} }

func (w *wal) append(data []byte) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	w.entries[w.last] = data
	return w.last
}

func (w *wal) cut(before uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ; w.first < before; w.first++ {
		delete(w.entries, w.first)
	}
}

func (w *wal) Data(index uint64) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if data, ok := w.entries[index]; ok {
		return data, nil
	}
	return nil, errors.New("log not found")
}

// batch makes n records whose values say where they come from.
func batch(label string, n int, ts int64) []byte {
	var b record.Builder
	for i := range n {
		b.Append(&record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%s/%d", label, i), Timestamp: ts + int64(i)})
	}
	return b.Finish(nil)
}

// fixture is a log with its WAL, written as the state machine does.
type fixture struct {
	t   testing.TB
	fs  vfs.FS
	wal *wal
	log *Log
}

const dir = "data/log"

func open(t testing.TB, fs vfs.FS, w *wal, cache int64, m *Manifest) *fixture {
	t.Helper()
	l, err := Open(fs, dir, Options{Cache: NewCache(cache), Source: w}, m)
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, fs, w, l}
}

func newFixture(t testing.TB, cache int64) *fixture {
	return open(t, vfs.NewMem(), newWAL(), cache, &Manifest{})
}

func (f *fixture) create(id uint64) *Partition {
	f.t.Helper()
	p, err := f.log.Create(id, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

// publish appends an entry that holds some bytes of ours and one batch, which
// goes to all the partitions.
func (f *fixture) publish(b []byte, parts ...*Partition) {
	data := append([]byte("entry:"), b...)
	index := f.wal.append(data)
	link(f.log, index, data, parts...)
}

func link(l *Log, index uint64, data []byte, parts ...*Partition) {
	body := l.NewBody(index, 3, data)
	b := data[6:]
	for _, p := range parts {
		p.Link(p.End(), body, 6, len(b), record.LastOffsetDelta(b), record.MaxTimestamp(b))
	}
}

// seal runs a seal command through to its manifest.
func (f *fixture) seal() *Manifest {
	f.t.Helper()
	plan := f.log.Capture(f.wal.append([]byte("seal")))
	if err := plan.Write(); err != nil {
		f.t.Fatal(err)
	}
	if err := f.log.Install(plan); err != nil {
		f.t.Fatal(err)
	}
	m, err := plan.Manifest()
	if err != nil {
		f.t.Fatal(err)
	}
	plan.Release()
	return m
}

type rec struct {
	offset int64
	value  string
}

// scan reads everything from offset on with a cursor.
func scan(t testing.TB, p *Partition, from int64) []rec {
	t.Helper()
	c := p.Cursor()
	c.SeekTo(from)
	var out []rec
	for {
		v, err := c.Next()
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			return out
		}
		out = append(out, rec{v.Offset, string(v.Value)})
	}
}

// fetch reads everything from offset on with Read, as a Kafka client does.
func fetch(t testing.TB, p *Partition, from int64, maxBytes int) []rec {
	t.Helper()
	var out []rec
	for from < p.End() {
		raw, err := p.Read(from, maxBytes, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) == 0 {
			return out
		}
		for len(raw) > 0 {
			b, rest, err := record.Split(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := record.CheckCRC(b); err != nil {
				t.Fatal(err)
			}
			if record.LeaderEpoch(b) != 3 {
				t.Fatalf("leader epoch %d", record.LeaderEpoch(b))
			}
			var it record.Iter
			if err := it.Reset(b, nil); err != nil {
				t.Fatal(err)
			}
			for it.SkipTo(from); it.Next(); {
				out = append(out, rec{it.View().Offset, string(it.View().Value)})
			}
			from = record.LastOffset(b) + 1
			raw = rest
		}
	}
	return out
}

func equal(t testing.TB, got, want []rec) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d\ngot  %v\nwant %v", len(got), len(want), got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("record %d: %v, want %v", i, got[i], want[i])
		}
	}
}

func numbered(label string, n int, base int64) []rec {
	var out []rec
	for i := range n {
		out = append(out, rec{base + int64(i), fmt.Sprintf("%s/%d", label, i)})
	}
	return out
}

func TestHeadThenSegment(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(7)
	var want []rec
	for i := range 300 {
		label := fmt.Sprint("b", i)
		f.publish(batch(label, 1+i%5, int64(1000*i)), p)
		want = append(want, numbered(label, 1+i%5, p.End()-int64(1+i%5))...)
	}
	check := func() {
		t.Helper()
		equal(t, scan(t, p, 0), want)
		equal(t, fetch(t, p, 0, 1<<20), want)
		equal(t, fetch(t, p, 0, 1), want)
		for _, from := range []int64{1, 17, 300, p.End() - 1, p.End()} {
			equal(t, scan(t, p, from), want[from:])
			equal(t, fetch(t, p, from, 700), want[from:])
		}
	}
	check()
	if f.log.HeadBytes() == 0 {
		t.Fatal("no head bytes")
	}
	f.seal()
	if f.log.HeadBytes() != 0 || f.log.OldestNeededIndex() != f.wal.last+1 {
		t.Fatalf("head %d bytes, oldest needed %d of %d", f.log.HeadBytes(), f.log.OldestNeededIndex(), f.wal.last)
	}
	f.wal.cut(f.log.OldestNeededIndex())
	check()
	f.publish(batch("tail", 2, 1), p)
	want = append(want, numbered("tail", 2, p.End()-2)...)
	check()
}

func TestOutOfRangeAndDrop(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 4, 0), p)
	p.Trim(2)
	for _, off := range []int64{-1, 1, 5} {
		if _, err := p.Read(off, 100, nil); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("offset %d: %v", off, err)
		}
	}
	if out, err := p.Read(4, 100, []byte("x")); err != nil || string(out) != "x" {
		t.Errorf("at the end: %q %v", out, err)
	}
	equal(t, scan(t, p, 0), numbered("a", 4, 0)[2:])
	c := p.Cursor()
	f.log.Drop(1)
	if _, err := p.Read(3, 100, nil); !errors.Is(err, ErrDropped) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Next(); !errors.Is(err, ErrDropped) {
		t.Errorf("next: %v", err)
	}
	if f.log.Partition(1) != nil || f.log.HeadBytes() != 0 || f.log.cache.Bytes() != 0 {
		t.Errorf("dropped partition left %d head bytes, %d cached", f.log.HeadBytes(), f.log.cache.Bytes())
	}
}

func TestWatch(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	fired := func(ch chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	ch := make(chan struct{}, 1)
	p.Watch(0, ch)
	if fired(ch) {
		t.Fatal("fired with nothing to read")
	}
	f.publish(batch("a", 3, 0), p)
	if !fired(ch) {
		t.Fatal("append did not fire")
	}
	f.publish(batch("a", 1, 0), p)
	if fired(ch) {
		t.Fatal("fired twice")
	}
	p.Watch(2, ch)
	if !fired(ch) {
		t.Fatal("something to read: not fired at once")
	}
	p.Watch(10, ch)
	f.publish(batch("a", 1, 0), p)
	if fired(ch) {
		t.Fatal("fired before its offset")
	}
	p.Trim(1)
	if !fired(ch) {
		t.Fatal("trim did not fire")
	}
	p.Watch(10, ch)
	p.Unwatch(ch)
	f.publish(batch("a", 20, 0), p)
	if fired(ch) || p.watches != nil {
		t.Fatal("fired after Unwatch")
	}
	p.Watch(100, ch)
	f.log.Drop(1)
	if !fired(ch) {
		t.Fatal("drop did not fire")
	}
	p.Watch(100, ch)
	if !fired(ch) {
		t.Fatal("watch of a dropped partition did not fire")
	}
}

// A batch with many targets is in the segment once, and each run finds it at
// its own offset.
func TestSharedBatch(t *testing.T) {
	f := newFixture(t, 0)
	var parts []*Partition
	for id := range uint64(50) {
		p := f.create(id)
		f.publish(batch("own", int(1+id%3), 0), p)
		parts = append(parts, p)
	}
	big := batch("shared", 500, 0)
	f.publish(big, parts...)
	m := f.seal()
	if size := m.Segments[0].Size; size > int64(len(big))+50*300 {
		t.Fatalf("segment of %d bytes for a batch of %d", size, len(big))
	}
	for id, p := range parts {
		want := append(numbered("own", 1+id%3, 0), numbered("shared", 500, int64(1+id%3))...)
		equal(t, scan(t, p, 0), want)
		equal(t, fetch(t, p, 0, 1<<20), want)
	}
}

// Bodies come back from the WAL, and a cursor with an old snapshot finds its
// place again after seal and cut.
func TestEviction(t *testing.T) {
	f := newFixture(t, 2000)
	p := f.create(1)
	var want []rec
	for i := range 100 {
		label := fmt.Sprint(i)
		f.publish(batch(label, 3, 0), p)
		want = append(want, numbered(label, 3, int64(3*i))...)
	}
	if got := f.log.cache.Bytes(); got > 2000 {
		t.Fatalf("cache holds %d bytes", got)
	}
	equal(t, scan(t, p, 0), want)
	if f.wal.reads == 0 {
		t.Fatal("nothing was evicted")
	}
	c := p.Cursor()
	for range 10 {
		if _, err := c.Next(); err != nil {
			t.Fatal(err)
		}
	}
	f.seal()
	f.wal.cut(f.log.OldestNeededIndex())
	for i := 10; i < len(want); i++ {
		v, err := c.Next()
		if err != nil || v == nil || v.Offset != want[i].offset || string(v.Value) != want[i].value {
			t.Fatalf("record %d: %v, %v", i, v, err)
		}
	}
	if v, err := c.Next(); v != nil || err != nil {
		t.Fatalf("at the end: %v, %v", v, err)
	}
}

func TestVolatile(t *testing.T) {
	l := NewVolatile()
	p, err := l.Create(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := l.Create(2, 0)
	data := append([]byte("entry:"), batch("x", 10, 0)...)
	link(l, 0, data, p, q)
	link(l, 0, data, p)
	if l.Bytes() != int64(2*len(data)) {
		t.Fatalf("%d bytes", l.Bytes())
	}
	c := q.Cursor()
	c.SeekTo(4)
	v, err := c.Next()
	if err != nil || string(v.Value) != "x/4" {
		t.Fatal(v, err)
	}
	p.Trim(10)
	if l.Bytes() != int64(2*len(data)) {
		t.Fatalf("shared body freed: %d bytes", l.Bytes())
	}
	q.Trim(10)
	if l.Bytes() != int64(len(data)) {
		t.Fatalf("%d bytes", l.Bytes())
	}
	if v, err = c.Next(); err != nil || string(v.Value) != "x/5" {
		t.Fatal(v, err) // the cursor holds the batch
	}
	equal(t, scan(t, p, 0), numbered("x", 10, 10))
	l.Drop(1)
	if l.Bytes() != 0 || l.HeadBytes() != 0 {
		t.Fatalf("%d bytes, %d in heads", l.Bytes(), l.HeadBytes())
	}
	l.Drop(2)
	if len(l.parts) != 0 || len(l.dirty) != 0 {
		t.Errorf("%d partitions and %d dirty ones are still known", len(l.parts), len(l.dirty))
	}
}

// Control batches and compaction holes are stepped over.
func TestCursorHoles(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 2, 0), p)
	var b record.Builder
	b.SetAttributes(record.AttrControl | record.AttrTransactional)
	b.SetProducer(1, 0, -1)
	b.Append(&record.Record{Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 0}})
	f.publish(b.Finish(nil), p)
	for range 2 {
		want := numbered("a", 2, 0)
		equal(t, scan(t, p, 0), want)
		c := p.Cursor()
		c.SeekTo(2)
		if v, err := c.Next(); v != nil || err != nil || c.Offset() != 3 {
			t.Fatalf("%v %v, offset %d", v, err, c.Offset())
		}
		f.seal()
	}
	f.publish(batch("z", 1, 0), p)
	equal(t, scan(t, p, 1), []rec{{1, "a/1"}, {3, "z/0"}})
	// A hole between batches.
	data := append([]byte("entry:"), batch("h", 2, 0)...)
	body := f.log.NewBody(f.wal.append(data), 3, data)
	p.Link(100, body, 6, len(data)-6, 1, 0)
	for range 2 {
		equal(t, scan(t, p, 3), []rec{{3, "z/0"}, {100, "h/0"}, {101, "h/1"}})
		equal(t, scan(t, p, 50), []rec{{100, "h/0"}, {101, "h/1"}})
		equal(t, fetch(t, p, 50, 1), []rec{{100, "h/0"}, {101, "h/1"}})
		f.seal()
	}
}

func TestLinkBelowEndPanics(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	f.publish(batch("a", 2, 0), p)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	body := f.log.NewBody(9, 0, make([]byte, 100))
	p.Link(1, body, 0, 100, 0, 0)
}

// reseal gives a changed batch another codec, its length and its CRC.
func reseal(b []byte, codec record.Codec) []byte {
	binary.BigEndian.PutUint16(b[21:], uint16(codec))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
