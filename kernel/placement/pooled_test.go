package placement

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// pooled is a member under a pool whose records are settled by the test.
type pooled struct {
	*sink
	m    *Member
	pool *kernel.Pool
}

func joinPool(t *testing.T, g *Group, n byte, records uint64, pool *kernel.Pool, credit int) (*pooled, *TargetSet) {
	t.Helper()
	parts, id := queue(t, g, n, 1, kernel.RetainDay)
	set := g.Targets(parts[0])
	if records > 0 {
		publish(t, g, set, 0, records)
	}
	p := &pooled{sink: newSink(), pool: pool}
	p.m = join(t, g, id, kernel.MemberOptions{Pool: pool}, p.sink)
	p.m.Credit(credit)
	return p, set
}

// settle settles the record at an offset.
func (p *pooled) settle(offset int64) {
	p.m.Settle(kernel.Accept, 0, offset, offset)
	p.pool.Put(1)
}

func (p *pooled) exactly(t *testing.T, n int) {
	t.Helper()
	p.wait(t, n)
	settleDown(p.m)
	if got := len(p.wait(t, 0)); got != n {
		t.Errorf("it has got %d records, want %d", got, n)
	}
}

// together waits for n records of all members.
func together(t *testing.T, n int, members ...*pooled) {
	t.Helper()
	for _, p := range members {
		settleDown(p.m)
	}
	ctx, got := soon(t), 0
	for {
		got = 0
		for _, p := range members {
			got += len(p.wait(t, 0))
		}
		if got >= n {
			break
		}
		select {
		case <-members[0].changed:
		case <-members[1].changed:
		case <-ctx.Done():
			t.Fatalf("they have got %d records, want %d", got, n)
		}
	}
	if got != n {
		t.Errorf("they have got %d records, want %d", got, n)
	}
}

// TestPoolIsExact: members under a pool hold as much as it has and no more, and
// one with nothing to hand out keeps none of it from the others. (Whose turn is
// next is another matter, see TestPoolTurns.)
func TestPoolIsExact(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		pool := kernel.NewPool(3)
		idle, set := joinPool(t, g, 1, 0, pool, 100)
		busy, _ := joinPool(t, g, 2, 20, pool, 5)
		busy.exactly(t, 3)
		busy.settle(0)
		busy.exactly(t, 4)
		publish(t, g, set, 0, 1)
		idle.exactly(t, 0)
		busy.settle(1)
		together(t, 5, busy, idle)
		busy.settle(2)
		idle.exactly(t, 1)
		idle.settle(0)
		busy.exactly(t, 5) // its credit is used up
		pool.SetLimit(1)
		busy.m.Credit(5)
		busy.exactly(t, 5)
		pool.SetLimit(4)
		busy.exactly(t, 7)
		busy.m.Credit(-5)
		settleDown(busy.m)
		pool.SetLimit(0)
		busy.exactly(t, 7)
		busy.m.Leave()
	})
}

// TestPoolTurns: with one unit, two full queues are served in turn. (Of durable
// ones each may have to wait for its log meanwhile; then the other goes first.)
func TestPoolTurns(t *testing.T) {
	g := volatileGroup(t, Limits{})
	pool := kernel.NewPool(1)
	pool.Add(1)
	a, _ := joinPool(t, g, 1, 10, pool, 10)
	settleDown(a.m)
	b, _ := joinPool(t, g, 2, 10, pool, 10)
	settleDown(b.m)
	pool.Put(1)
	for i := range 10 {
		for _, p := range []*pooled{a, b} {
			p.exactly(t, i+1)
			p.settle(int64(i))
		}
	}
}

// TestPoolLater: a member that holds records already comes under a pool.
func TestPoolLater(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		a, _ := joinPool(t, g, 1, 10, nil, 4)
		a.exactly(t, 4)
		pool := kernel.NewPool(5)
		a.pool = pool
		a.m.Pool(pool, func() int { return 4 })
		a.m.Credit(6)
		a.exactly(t, 5)
		a.settle(0)
		a.exactly(t, 6)
	})
}

// TestPoolGoesOn: a member that leaves, is stopped or loses its group with its
// turn ahead does not keep the others waiting.
func TestPoolGoesOn(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		pool := kernel.NewPool(1)
		pool.Add(1)
		var gone []*pooled
		for n := byte(1); n <= 3; n++ {
			p, _ := joinPool(t, g, n, 1, pool, 1)
			settleDown(p.m)
			gone = append(gone, p)
		}
		last, _ := joinPool(t, g, 4, 2, pool, 2)
		settleDown(last.m)
		gone[0].m.Leave()
		gone[1].m.Stop()
		if err := g.DropTopic(soon(t), topicN(3), 9); err != nil {
			t.Fatal(err)
		}
		gone[2].waitEnded(t)
		pool.Put(1)
		last.exactly(t, 1)
	})
}

// TestPoolUnderLoad: however many groups deliver at once, the limit holds and
// everything arrives.
func TestPoolUnderLoad(t *testing.T) {
	const queues, each, limit = 4, 500, 7
	both(t, func(t *testing.T, g *Group) {
		pool := kernel.NewPool(limit)
		var out, most atomic.Int64
		var wg sync.WaitGroup
		todo := make(chan func(), queues*each)
		for n := byte(1); n <= queues; n++ {
			parts, id := queue(t, g, n, 1, kernel.RetainDay)
			s := newSink()
			m := join(t, g, id, kernel.MemberOptions{Pool: pool}, s)
			s.each = func(d kernel.Delivery) {
				if held := out.Add(1); held > most.Load() {
					most.Store(held)
				}
				if d.Redelivered {
					t.Error("something was handed out twice")
				}
				offset := d.Offset
				todo <- func() {
					m.Settle(kernel.Accept, 0, offset, offset)
					out.Add(-1)
					pool.Put(1)
				}
			}
			m.Credit(each)
			wg.Go(func() {
				publish(t, g, g.Targets(parts[0]), 0, each)
				s.wait(t, each)
			})
		}
		done := make(chan struct{})
		go func() {
			for settle := range todo {
				settle()
			}
			close(done)
		}()
		wg.Wait()
		close(todo)
		<-done
		if most.Load() > limit {
			t.Errorf("%d were held at once, the limit is %d", most.Load(), limit)
		}
	})
}
