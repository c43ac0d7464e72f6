package placement

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func TestRestart(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 100)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(10)
	s.wait(t, 10)
	m.Settle(kernel.Accept, 0, 0, 3)
	m.Settle(kernel.Accept, 0, 6, 6)
	must(t, g.Put(soon(t), []KV{{Key: []byte("a"), Value: []byte("1")}, {Key: []byte("b"), Value: []byte{}}}))
	n.close(g)
	if s.waitEnded(t) == nil {
		t.Fatal("the consumer was not told")
	}
	code(t, g.Append(g.Targets(parts...), numbered(1), nil, 0), kernel.CodeUnavailable)
	_, err := g.Join(id, kernel.MemberOptions{}, s)
	code(t, err, kernel.CodeUnavailable)
	m.Leave()

	g = n.open()
	defer n.close(g)
	if ready, _, _, _, _ := g.Stats(id); ready != 95 {
		t.Fatalf("%d ready", ready)
	}
	s = newSink()
	m = join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(1000)
	want := []uint64{4, 5, 7, 8, 9, 10, 11}
	for i, d := range s.wait(t, 95)[:len(want)] {
		if d.number != want[i] || !d.redelivered && d.number < 10 {
			t.Fatalf("delivery %d: %+v", i, d)
		}
	}
	if last := s.list[94]; last.number != 99 || last.redelivered {
		t.Fatalf("a record that nobody can have seen: %+v", last)
	}
	m.Leave()
	for key, want := range map[string][]byte{"a": []byte("1"), "b": {}, "c": nil} {
		if v, err := g.Get([]byte(key)); err != nil || !bytes.Equal(v, want) || (v == nil) != (want == nil) {
			t.Fatalf("key %s: %q, %v", key, v, err)
		}
	}
}

// TestRestartMarks: after a crash exactly what a consumer got is redelivered, and
// after a clean end too, whatever was reserved.
func TestRestartMarks(t *testing.T) {
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 10)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(3)
	s.wait(t, 3)
	image := fs.CrashClone(nil)
	n.close(g)
	marks(t, newNode(t, image, "data"), id, 3, 10)

	// A consumer that could get much more, and leaves.
	g = n.open()
	s = newSink()
	m = join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(1000)
	s.wait(t, 10)
	m.Settle(kernel.Accept, 0, 0, 9)
	s.each = func(d kernel.Delivery) { m.Settle(kernel.Accept, 0, d.Offset, d.Offset) }
	for i := range uint64(100) { // one after the other: hand-outs wait, until they do not any more
		publish(t, g, g.Targets(parts...), 10+i, 11+i)
		s.wait(t, 11+int(i))
	}
	m.Leave()
	publish(t, g, g.Targets(parts...), 110, 120)
	n.close(g)
	marks(t, n, id, 0, 10)
}

// marks opens a node's group again and takes what a share group has left: the
// first are redelivered, no others are.
func marks(t *testing.T, n *node, id GroupID, redelivered, all int) {
	t.Helper()
	g := n.open()
	defer n.close(g)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	defer m.Leave()
	m.Credit(1000)
	for i, d := range s.wait(t, all) {
		if d.redelivered != (i < redelivered) {
			t.Errorf("delivery %d of %d: %+v, want %d marked", i, all, d, redelivered)
		}
	}
}

// TestSealUnderLoad makes many checkpoints while records come and go, and
// opens the group again from the last.
func TestSealUnderLoad(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes = 64 << 10
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	s.each = func(d kernel.Delivery) {
		if d.Offset%10 != 0 { // each tenth stays held
			m.Settle(kernel.Accept, 0, d.Offset, d.Offset)
		}
	}
	m.Credit(1 << 20)
	records := 0
	for ctx := soon(t); g.Metrics().Checkpoints.Load() < 3; records += 1000 {
		if ctx.Err() != nil {
			t.Fatalf("%d checkpoints", g.Metrics().Checkpoints.Load())
		}
		publish(t, g, g.Targets(parts...), uint64(records), uint64(records+1000))
	}
	for i, d := range s.wait(t, records) {
		if d.number != uint64(i) {
			t.Fatalf("delivery %d: %+v", i, d)
		}
	}
	n.close(g)

	g = n.open()
	defer n.close(g)
	if ready, _, _, _, _ := g.Stats(id); ready != int64(records/10) {
		t.Fatalf("%d ready", ready)
	}
	s = newSink()
	m = join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(1 << 20)
	for i, d := range s.wait(t, records/10) {
		if d.number != uint64(10*i) || !d.redelivered {
			t.Fatalf("delivery %d: %+v", i, d)
		}
	}
	m.Leave()
	p, err := g.Partition(parts[0])
	must(t, err)
	if start, end := p.Bounds(); start != 0 || end != int64(records) {
		t.Fatalf("%d to %d", start, end)
	}
}

// TestRetentionUsed: what is settled goes, and not before.
func TestRetentionUsed(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
		other := group(t, g, GroupSpec{Address: kernel.GroupAddress{Tenant: "/", Group: "o", Topic: "q1"}, Topic: topicN(1), Owner: true, FromStart: true})
		publish(t, g, g.Targets(parts...), 0, 2000)
		take := func(id GroupID) {
			s := newSink()
			m := join(t, g, id, kernel.MemberOptions{}, s)
			m.Credit(2000)
			s.wait(t, 2000)
			m.Settle(kernel.Accept, 0, 0, 1989)
			m.Leave()
		}
		p, err := g.Partition(parts[0])
		must(t, err)
		moved := make(chan struct{}, 1)
		defer p.Watch(2000, moved)()
		take(id)
		g.tick()
		if start, _ := p.Bounds(); start != 0 {
			t.Fatalf("records went before the other group had them: %d", start)
		}
		take(other)
		select {
		case <-moved:
		case <-soon(t).Done():
			t.Fatal("nothing was deleted")
		}
		if start, end := p.Bounds(); start != 1990 || end != 2000 {
			t.Fatalf("%d to %d", start, end)
		}
	})
}

// TestRetentionAge: what is settled stays for its time; what is not, stays.
func TestRetentionAge(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	var ms atomic.Int64
	ms.Store(1_700_000_000_000)
	n.now = func() time.Time { return time.UnixMilli(ms.Load()) }
	g := n.open()
	defer n.close(g)
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	free, err := g.CreatePartitions(soon(t), topicN(2), []PartitionSpec{{Retention: kernel.Retention{Age: time.Hour}}}, 1)
	must(t, err)
	for i := range uint64(10) {
		publish(t, g, g.Targets(parts[0], free[0]), i*10, i*10+10)
		ms.Add(6 * time.Hour.Milliseconds())
	}
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(100)
	s.wait(t, 100)
	wait := func(part PartitionID, want int64) {
		t.Helper()
		p, err := g.Partition(part)
		must(t, err)
		moved := make(chan struct{}, 1)
		for {
			cancel := p.Watch(100, moved)
			g.tick()
			if start, _ := p.Bounds(); start == want {
				cancel()
				return
			}
			select {
			case <-moved:
			case <-soon(t).Done():
				start, _ := p.Bounds()
				t.Fatalf("starts at %d, want %d", start, want)
			}
			cancel()
		}
	}
	wait(free[0], 100) // no group, all older than an hour
	p, err := g.Partition(parts[0])
	must(t, err)
	if start, _ := p.Bounds(); start != 0 {
		t.Fatalf("unsettled records went: %d", start)
	}
	m.Settle(kernel.Accept, 0, 0, 99)
	m.Leave()
	wait(parts[0], 60) // the last 24 hours were 4 rounds ago
}

func TestVolatileIsBounded(t *testing.T) {
	g := volatileGroup(t, Limits{VolatilePartitionBytes: 64 << 10, VolatileBytes: 128 << 10})
	fill := func(set *TargetSet, a *answers, from uint64) uint64 {
		for n := from; ; n++ {
			r := numbered(n)
			r.Key = make([]byte, 1000)
			if err := g.Append(set, r, a, n); err != nil {
				code(t, err, kernel.CodeLimit)
				return n - from
			}
			a.wait(t, int(n)+1)
			if n > 10000 {
				t.Fatal("no end of it")
			}
		}
	}
	a := newAnswers()
	var parts [3][]PartitionID
	var ids [3]GroupID
	for i := range parts {
		parts[i], ids[i] = queue(t, g, byte(i), 1, kernel.RetainUsed)
	}
	n := fill(g.Targets(parts[0]...), a, 0)
	if n < 60 || n > 70 {
		t.Fatalf("%d records of 1 KB in a queue of 64 KiB", n)
	}
	n += fill(g.Targets(parts[1]...), a, n)
	if more := fill(g.Targets(parts[2]...), a, n); n+more < 100 || n+more > 135 {
		t.Fatalf("%d records of 1 KB in 128 KiB", n+more)
	}
	for i := range parts[:2] { // memory comes back
		s := newSink()
		m := join(t, g, ids[i], kernel.MemberOptions{}, s)
		m.Credit(1000)
		ready, held, _, _, _ := g.Stats(ids[i])
		s.wait(t, int(ready+held))
		m.Settle(kernel.Accept, 0, 0, 1000)
		m.Leave()
	}
	p, err := g.Partition(parts[0][0])
	must(t, err)
	_, end := p.Bounds()
	moved := make(chan struct{}, 1)
	defer p.Watch(end, moved)()
	g.tick()
	<-moved
	waitFor(t, "the memory", func() bool { // which comes back a moment after that
		return g.Append(g.Targets(parts[0]...), numbered(0), nil, 0) == nil
	})
}

func TestTooLarge(t *testing.T) {
	g := volatileGroup(t, Limits{RecordBytes: 1000})
	parts, _ := queue(t, g, 1, 1, kernel.RetainUsed)
	set := g.Targets(parts...)
	code(t, g.Append(set, &kernel.Record{Value: make([]byte, 1001)}, nil, 0), kernel.CodeTooLarge)
	code(t, g.AppendBatch(parts[0], make([]byte, 1001), nil, 0), kernel.CodeTooLarge)
	publish(t, g, set, 0, 1)
}

func TestProducer(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes = 200 // a checkpoint every few entries
	g := n.open()
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	send := func(epoch int16, seq int32, count int) kernel.Result {
		t.Helper()
		var b record.Builder
		b.SetProducer(42, epoch, seq)
		for range count {
			b.Append(numbered(uint64(seq)))
		}
		a := newAnswers()
		must(t, g.AppendBatch(parts[0], b.Bytes(), a, 1))
		return a.wait(t, 1)[1]
	}
	ok := func(epoch int16, seq int32, count int, want int64) {
		t.Helper()
		if res := send(epoch, seq, count); res.Err != nil || res.Offset != want {
			t.Fatalf("epoch %d, sequence %d: %+v, want offset %d", epoch, seq, res, want)
		}
	}
	ok(0, 0, 2, 0)
	ok(0, 2, 3, 2)
	ok(0, 0, 2, 0) // again
	ok(0, 2, 3, 2)
	code(t, send(0, 6, 1).Err, kernel.CodeSequenceGap)
	ok(1, 0, 1, 5)
	code(t, send(0, 5, 1).Err, kernel.CodeFenced)
	code(t, send(2, 7, 1).Err, kernel.CodeSequenceGap)
	n.close(g)
	g = n.open()
	defer n.close(g)
	ok(1, 0, 1, 5)
	ok(1, 1, 1, 6)
}

// TestCloseWhilePublishing: every publish that was accepted is answered once.
func TestCloseWhilePublishing(t *testing.T) {
	for round := range 6 {
		var g *Group
		n := newNode(t, vfs.NewMem(), "data")
		n.limits.InFlightBytes = 64 << 10
		if round%2 == 0 {
			g = n.open()
		} else {
			g = volatileGroup(t, n.limits)
		}
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		m := join(t, g, id, kernel.MemberOptions{}, newSink())
		m.Credit(1 << 30)
		a := newAnswers()
		var accepted atomic.Int64
		var wg sync.WaitGroup
		begun := make(chan struct{}, 4)
		for p := range uint64(4) {
			wg.Go(func() {
				set := g.Targets(parts...)
				for k := uint64(0); ; k++ {
					if k == 100 {
						begun <- struct{}{}
					}
					if g.Wait(nil) != nil || g.Append(set, numbered(k), a, p<<32|k) != nil {
						return
					}
					accepted.Add(1)
				}
			})
		}
		for range 4 {
			<-begun
		}
		if round%2 == 0 {
			n.close(g)
		} else {
			g.Close()
		}
		wg.Wait()
		res := a.wait(t, int(accepted.Load()))
		if len(res) != int(accepted.Load()) {
			t.Fatalf("%d publishes were accepted, %d answered", accepted.Load(), len(res))
		}
		g.Close()
		m.Leave()
		code(t, m.Acquire(1, nil), kernel.CodeUnavailable)
		code(t, g.Ready(), kernel.CodeUnavailable)
	}
}

// TestDamage: records that are lost to the disk are skipped in the end, after
// the disk had its chances, and their neighbours are handed out.
func TestDamage(t *testing.T) {
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	n.limits.SealBytes = 8 << 10
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	count := uint64(0)
	for g.Metrics().Checkpoints.Load() < 2 {
		publish(t, g, g.Targets(parts...), count, count+10)
		count += 10
	}
	n.close(g)
	names, err := fs.List("data/p1/segments")
	must(t, err)
	f, err := fs.OpenFile("data/p1/segments/" + names[0])
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], 200)
	must(t, err)
	b[0]++
	_, err = f.WriteAt(b[:], 200)
	must(t, err)
	must(t, f.Close())

	g = n.open()
	defer n.close(g)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(int(count))
	for g.Metrics().Lost.Load() == 0 { // each tick is a try
		g.tick()
		g.machine.share(id).topic.shard.call(func() {})
	}
	s.until(t, func() bool { return uint64(len(s.list))+g.Metrics().Lost.Load() >= count })
	lost := g.Metrics().Lost.Load()
	if lost == 0 || lost > 20 || uint64(len(s.list))+lost != count {
		t.Fatalf("%d of %d handed out, %d lost", len(s.list), count, lost)
	}
	m.Settle(kernel.Accept, 0, 0, int64(count))
	m.Leave()
	if ready, held, _ := g.Count(id); ready != 0 || held != 0 {
		t.Fatalf("%d ready, %d held", ready, held)
	}
}
