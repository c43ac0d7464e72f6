package placement

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// limited changes what NoLimits returns.
func limited(change func(*kernel.Limits)) *kernel.Limits {
	l := kernel.NoLimits()
	change(&l)
	return &l
}

// limitedQueue is queue with limits.
func limitedQueue(t testing.TB, g *Group, n byte, l *kernel.Limits) (PartitionID, GroupID) {
	t.Helper()
	ids, err := g.CreatePartitions(soon(t), topicN(n), []PartitionSpec{{Retention: kernel.RetainDay}}, 1)
	must(t, err)
	return ids[0], group(t, g, GroupSpec{
		Address: kernel.QueueAddress("/", fmt.Sprint("q", n)), Topic: topicN(n), Owner: true, FromStart: true, Limits: l,
	})
}

// readySoon waits until a group has n records ready.
func readySoon(t testing.TB, g *Group, id GroupID, n int64) {
	t.Helper()
	var ready int64
	if !comesTrue(func() bool { ready, _, _, _, _ = g.Stats(id); return ready == n }) {
		t.Fatalf("%d ready, want %d", ready, n)
	}
}

// sealsDone waits until no seal is under way: publishes are refused when those are behind.
func sealsDone(t testing.TB, g *Group) {
	t.Helper()
	for ctx := soon(t); g.sealer.waiting.Load() != 0; {
		must(t, g.Put(ctx, nil))
	}
}

// comesTrue waits for a condition, at most a minute.
func comesTrue(ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func take(t testing.TB, m *Member, n int) (list []uint64) {
	t.Helper()
	must(t, m.Acquire(n, func(batch []kernel.Delivery, _ int64) {
		for _, d := range batch {
			list = append(list, numberOf(d.Record))
		}
	}))
	return list
}

// TestMessageTTL: records of a queue with a time to live go without a consumer,
// when their time comes, and not before.
func TestMessageTTL(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		part, id := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) { l.MessageTTL = 300 * time.Millisecond }))
		begin := time.Now()
		publish(t, g, g.Targets(part), 0, 10)
		if ready, _, _ := g.Count(id); ready != 10 && time.Since(begin) < 290*time.Millisecond {
			t.Fatalf("%d ready at once", ready)
		}
		readySoon(t, g, id, 0)
		if d := time.Since(begin); d < 290*time.Millisecond {
			t.Errorf("they went after %v", d)
		}
		if n := g.Metrics().Expired.Load(); n != 10 {
			t.Errorf("%d expired", n)
		}
	})
}

// TestMessageTTLIsKept: a record that comes back does not get a new time. One whose
// time has come meanwhile goes, although a member waits for it.
func TestMessageTTLIsKept(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(2)
		publish(t, g, g.Targets(parts...), 0, 1)
		s.wait(t, 1)
		const ttl = 50 * time.Millisecond
		must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) { l.MessageTTL = ttl }), 2))
		came := time.Now() // and before
		comesTrue(func() bool { return time.Since(came) > 2*ttl })
		m.Settle(kernel.Release, 0, 0, 0)
		if !comesTrue(func() bool { return g.Metrics().Expired.Load() > 0 }) {
			t.Error("it did not expire")
		}
		if n := len(s.wait(t, 1)); n != 1 {
			t.Errorf("handed out %d times", n)
		}
	})
}

// TestHeldRecordsDoNotExpire: what a member holds is its own.
func TestHeldRecordsDoNotExpire(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
		publish(t, g, g.Targets(parts...), 0, 2)
		if got := take(t, m, 1); !slices.Equal(got, []uint64{0}) {
			t.Fatalf("got %v", got)
		}
		must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) { l.MessageTTL = 50 * time.Millisecond }), 2))
		readySoon(t, g, id, 0)
		if _, held, _ := g.Count(id); held != 1 || g.Metrics().Expired.Load() != 1 {
			t.Errorf("%d held, %d expired", held, g.Metrics().Expired.Load())
		}
	})
}

// TestTTLZero: with a time to live of 0 a record goes to a consumer that waits, or
// not at all; and one that comes back has expired.
func TestTTLZero(t *testing.T) {
	for _, own := range []bool{false, true} {
		both(t, func(t *testing.T, g *Group) {
			l := limited(func(l *kernel.Limits) {
				if !own {
					l.MessageTTL = 0
				}
			})
			part, id := limitedQueue(t, g, 1, l)
			send := func(n uint64) {
				a := newAnswers()
				r := numbered(n)
				if own {
					r.Headers = []kernel.Header{{Key: kernel.HeaderExpiresAt, Value: strconv.AppendInt(nil, time.Now().UnixMilli(), 10)}}
				}
				must(t, g.Append(g.Targets(part), r, a, n))
				a.wait(t, 1)
			}
			send(0)
			readySoon(t, g, id, 0)
			s := newSink()
			m := join(t, g, id, kernel.MemberOptions{}, s)
			m.Credit(2)
			send(1)
			send(2)
			send(3) // beyond the credit
			got := s.wait(t, 2)
			if got[0].number != 1 || got[1].number != 2 {
				t.Fatalf("got %+v", got)
			}
			readySoon(t, g, id, 0)
			m.Settle(kernel.Release, 0, 1, 1)
			m.Credit(1)
			send(4)
			if got := s.wait(t, 3); got[2].number != 4 {
				t.Fatalf("got %+v", got)
			}
			if n := g.Metrics().Expired.Load(); n != 3 {
				t.Errorf("%d expired, want 0, 3 and 1", n)
			}
		})
	}
}

// TestOwnExpiryWithoutConsumer: a record's own time counts in a group without
// limits and without members, and only at the head.
func TestOwnExpiryWithoutConsumer(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		a := newAnswers()
		for n, ttl := range []time.Duration{100 * time.Millisecond, time.Hour, 0} {
			r := numbered(uint64(n))
			r.Headers = []kernel.Header{{Key: kernel.HeaderExpiresAt, Value: strconv.AppendInt(nil, time.Now().Add(ttl).UnixMilli(), 10)}}
			must(t, g.Append(g.Targets(parts...), r, a, uint64(n)))
		}
		a.wait(t, 3)
		readySoon(t, g, id, 2) // the third is behind the second
		m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
		if got := take(t, m, 3); !slices.Equal(got, []uint64{1}) {
			t.Fatalf("got %v", got)
		}
	})
}

// TestSetLimits: limits change while records are there, at the higher revision.
func TestSetLimits(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		publish(t, g, g.Targets(parts...), 0, 10)
		must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) { l.MaxLength = 4 }), 7))
		if ready, _, _ := g.Count(id); ready != 4 {
			t.Fatalf("%d ready", ready)
		}
		must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) { l.MaxLength = 1 }), 6))
		if ready, _, _ := g.Count(id); ready != 4 {
			t.Fatalf("%d ready after an older change", ready)
		}
		must(t, g.SetLimits(soon(t), id, kernel.NoLimits(), 8))
		publish(t, g, g.Targets(parts...), 10, 20)
		if ready, _, _ := g.Count(id); ready != 14 {
			t.Fatalf("%d ready without limits", ready)
		}
		must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) { l.MessageTTL = 100 * time.Millisecond }), 9))
		readySoon(t, g, id, 0)
		code(t, g.SetLimits(soon(t), 999, kernel.NoLimits(), 1), kernel.CodeNotFound)
	})
}

// TestDropHead: the oldest ready records make room; held ones do not count.
func TestDropHead(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		part, id := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) { l.MaxLength = 3 }))
		m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
		publish(t, g, g.Targets(part), 0, 2)
		if got := take(t, m, 2); len(got) != 2 {
			t.Fatalf("got %v", got)
		}
		publish(t, g, g.Targets(part), 2, 10)
		if ready, held, _ := g.Count(id); ready != 3 || held != 2 {
			t.Fatalf("%d ready, %d held", ready, held)
		}
		m.Settle(kernel.Release, 0, 0, 1) // the oldest: they go
		if ready, _, _ := g.Count(id); ready != 3 {
			t.Fatalf("%d ready", ready)
		}
		if got := take(t, m, 10); !slices.Equal(got, []uint64{7, 8, 9}) {
			t.Fatalf("got %v", got)
		}
		if n := g.Metrics().Overflowed.Load(); n != 7 {
			t.Errorf("%d dropped", n)
		}
	})
}

// TestMaxBytes: payload bytes of ready records, dropped from the oldest on, and
// counted anew after a restart.
func TestMaxBytes(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	part, id := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) { l.MaxBytes = 30 }))
	publish(t, g, g.Targets(part), 0, 10) // 8 bytes each
	if ready, _, _ := g.Count(id); ready != 3 {
		t.Fatalf("%d ready", ready)
	}
	n.close(g)
	g = n.open()
	publish(t, g, g.Targets(part), 10, 11)
	m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
	if got := take(t, m, 10); !slices.Equal(got, []uint64{8, 9, 10}) {
		t.Fatalf("got %v", got)
	}
	m.Leave()
	n.close(g)
}

// TestRejectPublish: exact for a publisher that waits, and the other targets of a
// publish keep it.
func TestRejectPublish(t *testing.T) {
	for name, l := range map[string]*kernel.Limits{
		"count": limited(func(l *kernel.Limits) { l.MaxLength, l.Overflow = 3, kernel.RejectPublish }),
		"bytes": limited(func(l *kernel.Limits) { l.MaxBytes, l.Overflow = 31, kernel.RejectPublish }),
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, g *Group) {
				part, id := limitedQueue(t, g, 1, l)
				others, other := queue(t, g, 2, 1, kernel.RetainDay)
				send := func(n uint64, set *TargetSet) error {
					a := newAnswers()
					must(t, g.Append(set, numbered(n), a, n))
					return a.wait(t, 1)[n].Err
				}
				only := g.Targets(part)
				for n := range uint64(6) {
					if err := send(n, only); (err == nil) != (n < 3) || err != nil && !IsQueueFull(err) {
						t.Fatalf("publish %d: %v", n, err)
					}
				}
				if err := send(6, g.Targets(part, others[0])); !IsQueueFull(err) {
					t.Fatalf("publish to both: %v", err)
				}
				if ready, _, _ := g.Count(other); ready != 1 {
					t.Fatal("the other target has not got it")
				}
				m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
				if got := take(t, m, 10); !slices.Equal(got, []uint64{0, 1, 2}) {
					t.Fatalf("got %v", got)
				}
				g.Count(id)                        // what was taken shows
				for n := uint64(10); n < 14; n++ { // held ones do not count
					if err := send(n, only); (err == nil) != (n < 13) {
						t.Fatalf("publish %d: %v", n, err)
					}
				}
			})
		})
	}
}

// cemetery keeps dead letters.
type cemetery struct {
	mu      sync.Mutex
	letters []string
	refuse  int // so many times they are to be tried again
	// stopped: the group was closed meanwhile. A letter whose copy was there, and not yet the
	// news of that, comes again.
	stopped bool
}

func (c *cemetery) bury(b *Burial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range b.Letters {
		keep := c.refuse > 0
		if keep {
			c.refuse--
		} else {
			c.letters = append(c.letters, fmt.Sprint(numberOf(l.Record), " ", l.Reason))
		}
		b.Done(i, keep)
	}
}

func (c *cemetery) wait(t testing.TB, want ...string) {
	t.Helper()
	var got []string
	if !comesTrue(func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if got = slices.Clone(c.letters); c.stopped {
			got = slices.Compact(got)
		}
		return slices.Equal(got, want)
	}) {
		t.Fatalf("dead letters %q, want %q", got, want)
	}
}

// TestDeadLetters: every way to die has its reason, and what cannot be buried is
// tried again.
func TestDeadLetters(t *testing.T) {
	c := &cemetery{refuse: 1}
	g, err := OpenVolatile(Config{Shards: 2, Logger: zerolog.Nop(), Bury: c.bury})
	must(t, err)
	t.Cleanup(g.Close)
	part, id := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) { l.MaxLength, l.DeadLetter, l.DeliveryLimit = 2, true, 0 }))
	publish(t, g, g.Targets(part), 0, 3)
	c.wait(t, "0 maxlen")
	m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
	if got := take(t, m, 10); len(got) != 2 {
		t.Fatalf("got %v", got)
	}
	m.Settle(kernel.Refuse, 0, 1, 1)
	c.wait(t, "0 maxlen", "1 rejected")
	m.Settle(kernel.Release, 0, 2, 2)
	c.wait(t, "0 maxlen", "1 rejected", "2 delivery_limit")
	must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) { l.MessageTTL, l.DeadLetter = 50*time.Millisecond, true }), 2))
	publish(t, g, g.Targets(part), 3, 4)
	c.wait(t, "0 maxlen", "1 rejected", "2 delivery_limit", "3 expired")
	must(t, g.SetLimits(soon(t), id, *limited(func(l *kernel.Limits) {
		l.MaxLength, l.Overflow, l.DeadLetter = 0, kernel.RejectPublishDeadLetter, true
	}), 3))
	if res := publish(t, g, g.Targets(part), 4, 5); !IsQueueFull(res[4].Err) {
		t.Fatalf("published: %v", res[4].Err)
	}
	c.wait(t, "0 maxlen", "1 rejected", "2 delivery_limit", "3 expired", "4 maxlen")
	readySoon(t, g, id, 0)
}

// TestLimitsSurvive: limits and ages are in the checkpoint.
func TestLimitsSurvive(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	var mu sync.Mutex
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes, n.keep = 2<<10, 1
	n.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	g := n.open()
	part, id := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) { l.MessageTTL = time.Hour }))
	publish(t, g, g.Targets(part), 0, 10)
	pass(30 * time.Minute)
	for i := uint64(10); g.Metrics().Checkpoints.Load() < 2; i += 10 {
		publish(t, g, g.Targets(part), i, i+10)
		sealsDone(t, g)
	}
	n.close(g)
	pass(20 * time.Minute)
	g = n.open()
	if l, ok := g.Limits(id); !ok || l.MessageTTL != time.Hour {
		t.Fatalf("limits %+v", l)
	}
	before, _, _ := g.Count(id)
	pass(11 * time.Minute)
	m := join(t, g, id, kernel.MemberOptions{Pull: true}, nil)
	take(t, m, 0)
	if ready, _, _ := g.Count(id); ready != before-10 {
		t.Fatalf("%d of %d ready", ready, before)
	}
	m.Leave()
	n.close(g)
}

// TestClockSteps is row 11 of the faults: a wall clock that is set forward lets
// nothing expire, and one that was set back while the node was down brings
// nothing back.
func TestClockSteps(t *testing.T) {
	now := time.Now()
	stepped := now.Add(time.Hour) // keeps the monotonic reading of now plus an hour
	c := newClock(func() time.Time { return now })
	before := c.wall()
	// A step of the wall clock changes the wall part of a time only: Sub does not
	// see it.
	if d := now.Round(0).Sub(now); d != 0 {
		t.Fatal(d)
	}
	now = now.Add(time.Second)
	if d := c.wall() - before; d != 1000 {
		t.Errorf("a second later it is %d ms later", d)
	}
	c.notBefore(stepped.UnixMilli())
	if c.wall() != stepped.UnixMilli() {
		t.Error("it is behind the log")
	}
	now = now.Add(time.Second)
	if c.wall() != stepped.UnixMilli()+1000 {
		t.Error("it stands still")
	}
}

// TestArrivals: within a step of the truth, whatever happens.
func TestArrivals(t *testing.T) {
	var a arrivals
	const ttl = 10 * time.Second
	a.start(0, 0, ttl)
	step := ttl.Milliseconds() / arrivalSteps
	times := []int64{}
	for now := int64(1); len(times) < 20000; now += int64(len(times) % 7) {
		a.append(now, int64(len(times)))
		times = append(times, now)
	}
	last := times[len(times)-1]
	for off, at := range times {
		if last-at > ttl.Milliseconds() {
			continue
		}
		if got := a.at(int64(off)); got > at || got <= at-step-1 {
			t.Fatalf("record %d came at %d, not %d (step %d)", off, at, got, step)
		}
	}
	for now := last - ttl.Milliseconds(); now <= last; now += 13 {
		below := a.before(now)
		for off := max(0, below-3); off < min(below, int64(len(times))); off++ {
			if times[off] > now+step {
				t.Fatalf("record %d of %d is not before %d", off, times[off], now)
			}
		}
		if below < int64(len(times)) && times[below] <= now-step {
			t.Fatalf("record %d of %d is before %d", below, times[below], now)
		}
	}
	b := a.appendTo(nil)
	var back arrivals
	d := &decoder{b: b}
	if back.decode(d); d.err != nil || len(d.b) > 0 || !slices.Equal(back.marks, a.marks) {
		t.Fatal("it does not come back", d.err)
	}
}
