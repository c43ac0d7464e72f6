package placement

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

func code(t *testing.T, err error, want kernel.Code) {
	t.Helper()
	if err == nil || kernel.CodeOf(err) != want {
		t.Fatalf("got %v, want code %d", err, want)
	}
}

func TestMembersShare(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 3, kernel.RetainDay)
		a, b := newSink(), newSink()
		ma, mb := join(t, g, id, kernel.MemberOptions{}, a), join(t, g, id, kernel.MemberOptions{}, b)
		ma.Credit(1000)
		mb.Credit(1000)
		for i, p := range parts {
			publish(t, g, g.Targets(p), uint64(i)*100, uint64(i)*100+100)
		}
		total := func() int {
			a.mu.Lock()
			defer a.mu.Unlock()
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(a.list) + len(b.list)
		}
		for total() < 300 {
			select {
			case <-a.changed:
			case <-b.changed:
			case <-soon(t).Done():
				t.Fatalf("%d of 300 records came", total())
			}
		}
		if len(a.list) < 100 || len(b.list) < 100 {
			t.Errorf("uneven: %d and %d", len(a.list), len(b.list))
		}
		seen := map[uint64]bool{}
		for _, d := range append(a.list, b.list...) {
			if seen[d.number] || d.partition != int32(d.number/100) || d.offset != int64(d.number%100) {
				t.Fatalf("delivery %+v", d)
			}
			seen[d.number] = true
		}
		if _, _, members, _, _ := g.Stats(id); members != 2 {
			t.Errorf("%d members", members)
		}
		if left := ma.Leave(); left != 1 {
			t.Errorf("%d members left", left)
		}
		b.until(t, func() bool { return len(b.list) == 300 }) // what a held goes to b
		if left := mb.Leave(); left != 0 {
			t.Errorf("%d members left", left)
		}
	})
}

func TestExclusive(t *testing.T) {
	g := volatileGroup(t, Limits{})
	_, id := queue(t, g, 1, 1, kernel.RetainUsed)
	m := join(t, g, id, kernel.MemberOptions{Exclusive: true}, newSink())
	_, err := g.Join(id, kernel.MemberOptions{}, newSink())
	code(t, err, kernel.CodeAccessRefused)
	join(t, g, id, kernel.MemberOptions{Pull: true}, nil).Leave()
	m.Leave()
	m = join(t, g, id, kernel.MemberOptions{}, newSink())
	_, err = g.Join(id, kernel.MemberOptions{Exclusive: true}, newSink())
	code(t, err, kernel.CodeAccessRefused)
	m.Leave()
	_, err = g.Join(99, kernel.MemberOptions{}, newSink())
	code(t, err, kernel.CodeNotFound)
}

func TestAcquire(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
		take := func(n int) (list []got, ready int64) {
			t.Helper()
			err := m.Acquire(n, func(batch []kernel.Delivery, r int64) {
				for _, d := range batch {
					list = append(list, got{number: numberOf(d.Record), offset: d.Offset, redelivered: d.Redelivered})
				}
				ready = r
			})
			if err != nil {
				t.Fatal(err)
			}
			return list, ready
		}
		if list, ready := take(5); len(list) != 0 || ready != 0 {
			t.Fatalf("of nothing: %v, %d", list, ready)
		}
		publish(t, g, g.Targets(parts...), 0, 5)
		list, ready := take(2)
		if len(list) != 2 || list[1].number != 1 || ready != 3 {
			t.Fatalf("%+v, %d ready", list, ready)
		}
		m.Settle(kernel.Accept, 0, 0, 0)
		m.Settle(kernel.Release, 0, 1, 1)
		list, ready = take(10)
		if len(list) == 1 { // the others wait for a reservation: that is no reason to wait
			var more []got
			more, ready = take(10)
			list = append(list, more...)
		}
		if len(list) != 4 || list[0].number != 1 || !list[0].redelivered || list[1].redelivered || ready != 0 {
			t.Fatalf("%+v, %d ready", list, ready)
		}
		if _, _, members, _, _ := g.Stats(id); members != 0 {
			t.Errorf("a pull member counts")
		}
		m.Leave()
	})
}

func TestStopKeepsWhatIsHeld(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(100)
		publish(t, g, g.Targets(parts...), 0, 10)
		s.wait(t, 10)
		m.Stop()
		publish(t, g, g.Targets(parts...), 10, 20)
		if ready, held, members, _, _ := g.Stats(id); held != 10 || members != 0 || ready != 10 {
			t.Fatalf("%d ready, %d held, %d members", ready, held, members)
		}
		m.Settle(kernel.Accept, 0, 0, 4)
		m.Leave()
		s.mu.Lock()
		n := len(s.list)
		s.mu.Unlock()
		if ready, held, _, _, _ := g.Stats(id); n != 10 || held != 0 || ready != 15 {
			t.Fatalf("%d deliveries, %d ready, %d held", n, ready, held)
		}
	})
}

func TestAutoSettle(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{AutoSettle: true}, s)
		m.Credit(1 << 30)
		publish(t, g, g.Targets(parts...), 0, 50)
		s.wait(t, 50)
		m.Leave()
		if ready, held, _, _, settled := g.Stats(id); ready != 0 || held != 0 || settled != 50 {
			t.Fatalf("%d ready, %d held, %d settled", ready, held, settled)
		}
	})
}

func TestFailedLimit(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
		id := group(t, g, GroupSpec{
			Address: kernel.GroupAddress{Tenant: "/", Group: "limited", Topic: "q1"}, Topic: topicN(1), FromStart: true, FailedLimit: 2,
		})
		publish(t, g, g.Targets(parts...), 0, 1)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		for i := range 3 {
			m.Credit(1)
			list := s.wait(t, i+1)
			if d := list[i]; d.failed != int32(i) || d.acquired != int32(i)+1 {
				t.Fatalf("hand-out %d: %+v", i, d)
			}
			m.Settle(kernel.Release, 0, 0, 0)
		}
		m.Leave()
		if ready, held, _, _, _ := g.Stats(id); ready != 0 || held != 0 || g.Metrics().Dead.Load() != 1 {
			t.Fatalf("%d ready, %d held, %d dead", ready, held, g.Metrics().Dead.Load())
		}
	})
}

func TestExpiry(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		set := g.Targets(parts...)
		a := newAnswers()
		for n := range uint64(10) {
			r := numbered(n)
			at := time.Now().Add(time.Hour)
			if n%2 == 0 {
				at = time.Now().Add(-time.Minute)
			}
			r.Headers = []kernel.Header{{Key: kernel.HeaderExpiresAt, Value: strconv.AppendInt(nil, at.UnixMilli(), 10)}}
			if err := g.Append(set, r, a, n); err != nil {
				t.Fatal(err)
			}
		}
		a.wait(t, 10)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(5) // the credit spent on expired records comes back
		for i, d := range s.wait(t, 5) {
			if d.number != uint64(2*i+1) {
				t.Fatalf("delivery %d: %+v", i, d)
			}
		}
		m.Settle(kernel.Accept, 0, 0, 9)
		m.Leave()
		if ready, _, _, _, _ := g.Stats(id); ready != 0 || g.Metrics().Expired.Load() != 5 {
			t.Fatalf("%d ready, %d expired", ready, g.Metrics().Expired.Load())
		}
	})
}

func TestPurge(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 2, kernel.RetainDay)
		publish(t, g, g.Targets(parts[0]), 0, 30)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(10)
		s.wait(t, 10)
		publish(t, g, g.Targets(parts[1]), 30, 50)
		n, err := g.Purge(soon(t), id)
		if err != nil || n != 40 {
			t.Fatalf("purged %d, %v", n, err)
		}
		if ready, held, _, _, _ := g.Stats(id); ready != 0 || held != 10 {
			t.Fatalf("%d ready, %d held", ready, held)
		}
		m.Leave() // gives its ten back
		if n, err := g.Purge(soon(t), id); err != nil || n != 10 {
			t.Fatalf("purged %d, %v", n, err)
		}
		_, err = g.Purge(soon(t), 99)
		code(t, err, kernel.CodeNotFound)
		p, err := g.Partition(parts[0])
		if err != nil {
			t.Fatal(err)
		}
		if start, end := p.Bounds(); start != 0 || end != 30 {
			t.Fatalf("the records have gone: %d to %d", start, end)
		}
	})
}

func TestDropWhileDelivering(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		for i := range byte(5) {
			parts, id := queue(t, g, 1+i, 1, kernel.RetainDay)
			set := g.Targets(parts...)
			s := newSink()
			m := join(t, g, id, kernel.MemberOptions{}, s)
			m.Credit(1 << 20)
			a := newAnswers()
			for n := range uint64(2000) {
				if err := g.Append(set, numbered(n), a, n); err != nil {
					t.Fatal(err)
				}
				if n == 1000 {
					var err error
					if i%2 == 0 {
						err = g.DropTopic(soon(t), topicN(1+i), 2)
					} else {
						err = g.DropGroup(soon(t), id, 2)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, res := range a.wait(t, 2000) { // late publishes are acknowledged
				if res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			code(t, s.waitEnded(t), kernel.CodeDropped)
			m.Settle(kernel.Accept, 0, 0, 100)
			m.Credit(1)
			m.Leave()
			if _, err := g.Join(id, kernel.MemberOptions{}, s); kernel.CodeOf(err) != kernel.CodeNotFound {
				t.Fatalf("join of a dropped group: %v", err)
			}
		}
	})
}

func TestGroupStartsAtEnd(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
		publish(t, g, g.Targets(parts...), 0, 10)
		spec := GroupSpec{Address: kernel.GroupAddress{Tenant: "/", Group: "late", Topic: "q1"}, Topic: topicN(1)}
		id := group(t, g, spec)
		if again := group(t, g, spec); again != id {
			t.Fatalf("made twice: %d and %d", id, again)
		}
		publish(t, g, g.Targets(parts...), 10, 20)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(100)
		if d := s.wait(t, 10)[0]; d.number != 10 {
			t.Fatalf("first delivery: %+v", d)
		}
		m.Leave()
		spec.Topic = topicN(77)
		_, err := g.CreateGroup(soon(t), spec, 1)
		code(t, err, kernel.CodeNotFound)
	})
}

// TestBatchFromOutside stores a ready batch with a hole in it and a marker
// behind it, which no member sees.
func TestBatchFromOutside(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		a := newAnswers()
		var b record.Builder
		b.Append(numbered(0))
		b.Append(numbered(1))
		b.SetLastOffsetDelta(4) // 2, 3 and 4 were compacted away
		must(t, g.AppendBatch(parts[0], b.Bytes(), a, 1))
		b.Reset()
		b.SetAttributes(record.AttrControl)
		b.Append(numbered(99))
		must(t, g.AppendBatch(parts[0], b.Bytes(), a, 2))
		must(t, g.Append(g.Targets(parts...), numbered(6), a, 3))
		res := a.wait(t, 3)
		if res[1].Offset != 0 || res[2].Offset != 5 || res[3].Offset != 6 {
			t.Fatalf("%+v", res)
		}
		code(t, g.AppendBatch(parts[0], []byte("nonsense"), a, 4), kernel.CodeCorrupt)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(3)
		list := s.wait(t, 3)
		if len(list) != 3 || list[1].number != 1 || list[2].number != 6 || list[2].offset != 6 {
			t.Fatalf("%+v", list)
		}
		m.Settle(kernel.Accept, 0, 0, 6)
		m.Leave()
		if ready, held, _, _, _ := g.Stats(id); ready != 0 || held != 0 {
			t.Fatalf("%d ready, %d held", ready, held)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReaders(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
		p, err := g.Partition(parts[0])
		must(t, err)
		_, err = g.Partition(99)
		code(t, err, kernel.CodeNotFound)
		ready := make(chan struct{}, 1)
		cancel := p.Watch(0, ready)
		publish(t, g, g.Targets(parts...), 0, 10)
		<-ready
		cancel()
		if start, end := p.Bounds(); start != 0 || end != 10 {
			t.Fatalf("%d to %d", start, end)
		}
		data, err := p.Read(3, 1<<20, nil)
		must(t, err)
		var numbers []uint64
		for len(data) > 0 {
			batch, rest, err := record.Split(data)
			must(t, err)
			var it record.Iter
			must(t, it.Reset(batch, nil))
			for it.Next() {
				if it.View().Offset != int64(numberOf(it.View())) {
					t.Fatalf("offset %d has record %d", it.View().Offset, numberOf(it.View()))
				}
				numbers = append(numbers, numberOf(it.View()))
			}
			data = rest
		}
		if n := len(numbers); n < 7 || numbers[n-1] != 9 {
			t.Fatalf("read %v", numbers)
		}
		if off, ts, err := p.TimeOffset(1004); off != 4 || ts != 1004 || err != nil {
			t.Fatalf("time 1004 is at %d, %d, %v", off, ts, err)
		}
		if off, ts, err := p.TimeOffset(5000); off != 10 || ts != -1 || err != nil {
			t.Fatal("time 5000 is somewhere")
		}
		_, err = p.Read(11, 1, nil)
		code(t, err, kernel.CodeOutOfRange)
		cancel = p.Watch(10, ready)
		defer cancel()
		must(t, g.DropTopic(soon(t), topicN(1), 2))
		<-ready
		_, err = p.Read(3, 1, nil)
		code(t, err, kernel.CodeDropped)
	})
}

func TestListings(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		for i := range byte(3) {
			queue(t, g, i, int(i)+1, kernel.RetainUsed)
		}
		must(t, g.SetRetention(soon(t), topicN(2), kernel.RetainDay, 5))
		must(t, g.SetRetention(soon(t), topicN(2), kernel.RetainWeek, 4)) // overtaken
		topics, groups := g.Topics(), g.Groups()
		if len(topics) != 3 || len(groups) != 3 {
			t.Fatalf("%d topics, %d groups", len(topics), len(groups))
		}
		if tp := topics[2]; tp.ID != topicN(2) || len(tp.Partitions) != 3 || tp.Revision != 5 ||
			tp.Partitions[2].Index != 2 || tp.Partitions[2].Retention != kernel.RetainDay {
			t.Fatalf("%+v", tp)
		}
		must(t, g.SetOwner(soon(t), groups[1].ID, false))
		if gr := g.Groups()[1]; gr.Spec.Owner || gr.Spec.Address != kernel.QueueAddress("/", "q1") {
			t.Fatalf("%+v", gr)
		}
		code(t, g.SetOwner(soon(t), 99, true), kernel.CodeNotFound)
		must(t, g.DropGroup(soon(t), groups[1].ID, 2))
		must(t, g.DropGroup(soon(t), groups[1].ID, 2))
		must(t, g.DropTopic(soon(t), topicN(0), 2))
		must(t, g.DropTopic(soon(t), topicN(0), 2))
		if topics, groups := g.Topics(), g.Groups(); len(topics) != 2 || len(groups) != 1 {
			t.Fatalf("%d topics, %d groups", len(topics), len(groups))
		}
		code(t, g.SetRetention(soon(t), topicN(0), kernel.RetainDay, 9), kernel.CodeNotFound)
	})
}

func TestManySharesOnOneTopic(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, _ := queue(t, g, 1, 1, kernel.RetainUsed)
		sinks := make([]*sink, 50)
		members := make([]*Member, 50)
		for i := range sinks {
			id := group(t, g, GroupSpec{Address: kernel.SessionAddress("/", fmt.Sprint(i), kernel.Plain, "q1"), Topic: topicN(1), Owner: true})
			sinks[i] = newSink()
			members[i] = join(t, g, id, kernel.MemberOptions{}, sinks[i])
			members[i].Credit(1000)
		}
		publish(t, g, g.Targets(parts...), 0, 100)
		for i, s := range sinks {
			for k, d := range s.wait(t, 100) {
				if d.number != uint64(k) {
					t.Fatalf("share %d, delivery %d: %+v", i, k, d)
				}
			}
			members[i].Settle(kernel.Accept, 0, 0, 99)
			members[i].Leave()
		}
	})
}
