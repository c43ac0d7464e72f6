package forward

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// wconsumer holds what it is handed until it settles that.
type wconsumer struct {
	*wplace
	c        *wclient
	m        edge.Member
	prefetch int // of the member, 0 = it is pulled
	under    *wpool
	wake     chan struct{} // capacity 1

	mu    sync.Mutex
	held  []int64 // with those of hosts before, which may be there twice
	ended error
	large bool // it admits nothing large
	took  int  // credit taken back
	n     int  // deliveries
}

// wpool is a pool as the client counts it.
type wpool struct {
	edge.Pool
	mu    sync.Mutex
	limit int
	held  int
}

func (p *wpool) take(c *wconsumer, n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held += n; p.held > p.limit {
		c.c.w.truth.Failf("%s holds %d records with others, and may hold %d", c.tag, p.held, p.limit)
	}
}

// Deliver implements kernel.Consumer.
func (k *wconsumer) Deliver(batch []kernel.Delivery) {
	for i := range batch {
		k.c.w.truth.delivered(k.wplace, &batch[i])
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range batch {
		k.held = append(k.held, batch[i].Offset)
		k.c.w.trace("%s is handed %d", k.tag, batch[i].Offset)
	}
	k.n += len(batch)
	if k.prefetch > 0 && len(k.held)+k.took > k.prefetch {
		k.c.w.truth.Failf("%s holds %d records, and may hold %d", k.tag, len(k.held), k.prefetch-k.took)
	}
	if k.ended != nil {
		k.c.w.truth.Failf("%s is handed something after its end", k.tag)
	}
	k.under.take(k, len(batch))
	k.note()
}

func (k *wconsumer) note() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Ended implements kernel.Consumer.
func (k *wconsumer) Ended(reason error) {
	k.c.w.truth.leaves(k.wplace)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = reason
	k.note()
}

// admitting is a consumer that has a say.
type admitting struct{ *wconsumer }

// Admit implements kernel.Admitter.
func (k admitting) Admit(records, _ int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.large {
		return true
	}
	if k.prefetch > 0 {
		n := k.prefetch - len(k.held) - k.took
		k.took += n
		k.m.Credit(-n)
	}
	k.note()
	return false
}

// join joins a queue; false if that is refused because somebody else excludes others.
func (c *wclient) join(queue string, prefetch int, under *wpool, opt kernel.MemberOptions) (*wconsumer, bool) {
	opt.Tag = fmt.Sprintf("%s-%d", c.id, c.w.number())
	opt.Pull = prefetch == 0
	k := &wconsumer{
		wplace: &wplace{tag: opt.Tag, queue: queue, exclusive: opt.Exclusive}, c: c, prefetch: prefetch, under: under, wake: make(chan struct{}, 1),
	}
	c.w.truth.member(k.wplace)
	c.does("joins %s", queue)
	addr, err := c.conn.Address(queue)
	if !c.must(err) {
		return nil, false
	}
	var to kernel.Consumer = k
	if prefetch > 0 && c.rnd.IntN(3) == 0 {
		to = admitting{k}
	}
	var pool edge.Pool
	if under != nil {
		pool = under.Pool
	}
	m, err := c.conn.Join(context.Background(), addr, opt, pool, to)
	if err != nil && queue == "lock" && kernel.CodeOf(err) == kernel.CodeAccessRefused {
		return nil, false // somebody else excludes others
	}
	if !c.must(err) {
		return nil, false
	}
	c.w.truth.grants(k.wplace)
	k.mu.Lock()
	k.m = m
	k.mu.Unlock()
	m.Credit(prefetch)
	return k, true
}

// consumes is the life of a connection that consumes from queues.
func (w *world) consumes(name string, queues ...string) {
	w.client(name, func(c *wclient) {
		for c.going() {
			c.connect(-1)
			c.consume(queues)
			c.close()
		}
	})
}

// consume consumes until the connection is to be closed.
func (c *wclient) consume(queues []string) {
	var list []*wconsumer
	var under *wpool
	if c.rnd.IntN(3) == 0 {
		limit := 1 + c.rnd.IntN(10)
		under = &wpool{Pool: c.conn.NewPool(limit), limit: limit}
	}
	for _, q := range queues {
		prefetch := 1 + c.rnd.IntN(15)
		at := under
		if c.rnd.IntN(6) == 0 {
			prefetch, at = 0, nil // it is pulled
		}
		k, ok := c.join(q, prefetch, at, kernel.MemberOptions{})
		if !ok {
			return
		}
		list = append(list, k)
	}
	for c.going() && c.rnd.IntN(100) > 0 {
		for _, k := range list {
			c.turn(k)
		}
		c.does("has a pause")
		c.pause(20 * time.Millisecond)
	}
	for _, k := range list {
		if c.rnd.IntN(2) == 0 {
			c.leave(k, c.rnd.IntN(2) == 0)
		} else {
			c.w.truth.leaves(k.wplace)
		}
	}
}

// turn settles something of what a member holds.
func (c *wclient) turn(k *wconsumer) {
	if k.prefetch == 0 {
		c.pull(k)
	}
	k.mu.Lock()
	k.large = c.rnd.IntN(4) == 0
	if k.took > 0 && !k.large {
		k.m.Credit(k.took)
		k.took = 0
	}
	k.mu.Unlock()
	for range c.rnd.IntN(6) {
		if !c.settle(k) {
			return
		}
	}
}

// settle settles some records in a row.
func (c *wclient) settle(k *wconsumer) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.held) == 0 || k.ended != nil {
		return false
	}
	i := c.rnd.IntN(len(k.held))
	if c.rnd.IntN(2) == 0 {
		i = 0
	}
	n := 1
	for i+n < len(k.held) && k.held[i+n] == k.held[i]+int64(n) && c.rnd.IntN(3) > 0 {
		n++
	}
	first := k.held[i]
	k.held = slices.Delete(k.held, i, i+n)
	o := kernel.Accept
	switch c.rnd.IntN(10) {
	case 0:
		o = kernel.Refuse
	case 1, 2:
		o = kernel.Release
	}
	k.m.Settle(o, 0, first, first+int64(n)-1)
	if k.under != nil {
		k.under.mu.Lock()
		k.under.held -= n
		k.under.mu.Unlock()
		k.under.Put(n)
	}
	if k.prefetch > 0 {
		k.m.Credit(n)
	}
	return true
}

// pull takes some records at once.
func (c *wclient) pull(k *wconsumer) {
	c.does("pulls")
	err := k.m.Acquire(1+c.rnd.IntN(5), func(batch []kernel.Delivery, _ int64) {
		k.Deliver(batch)
	})
	if c.must(err) {
		c.w.truth.count("acquired")
	}
}

// leave ends a membership; stops has it stop first, and settle what it holds.
func (c *wclient) leave(k *wconsumer, stops bool) {
	if stops {
		c.does("stops")
		k.m.Stop()
		k.mu.Lock()
		n := k.n
		k.mu.Unlock()
		for c.settle(k) {
		}
		defer func() {
			if k.n > n {
				c.w.truth.Failf("%s was handed something after Stop", k.tag)
			}
		}()
	}
	c.does("leaves")
	c.w.truth.leaves(k.wplace)
	k.m.Leave()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.under != nil {
		k.under.mu.Lock()
		k.under.held -= len(k.held)
		k.under.mu.Unlock()
		k.under.Put(len(k.held))
	}
	k.held = nil
}

// takeAll takes all that is left of a queue.
func (c *wclient) takeAll(queue string) {
	k, ok := c.join(queue, 1000, nil, kernel.MemberOptions{})
	if !ok {
		return
	}
	for limit := time.After(historyTime); ; {
		c.does("takes all of %s", queue)
		info, err := c.conn.Queue(queue)
		if !c.must(err) {
			return
		}
		k.mu.Lock()
		held := slices.Clone(k.held)
		k.held = k.held[:0]
		k.mu.Unlock()
		if info.Ready == 0 && info.Held == 0 && len(held) == 0 {
			break
		}
		for _, at := range held {
			k.m.Settle(kernel.Accept, 0, at, at)
		}
		k.m.Credit(len(held))
		timer := time.NewTimer(time.Second)
		select {
		case <-k.wake:
		case <-timer.C:
		case <-limit:
			c.w.truth.Failf("%s has %d ready and %d held, which do not come", queue, info.Ready, info.Held)
			return
		}
		timer.Stop()
	}
	c.leave(k, false)
}

// locks is the life of a client that wants a queue for itself.
func (w *world) locks(name, queue string) {
	w.client(name, func(c *wclient) {
		c.connect(-1)
		for c.going() {
			if c.rnd.IntN(10) == 0 {
				c.close()
				c.connect(-1)
			}
			k, ok := c.join(queue, 1+c.rnd.IntN(5), nil, kernel.MemberOptions{Exclusive: true})
			if ok {
				c.keepLock(k)
			}
			c.pause(200 * time.Millisecond)
		}
		c.close()
	})
}

// keepLock acts as long as the member excludes others, or the client likes.
func (c *wclient) keepLock(k *wconsumer) {
	for c.going() && c.rnd.IntN(30) > 0 {
		c.does("acts as the only one at %s", k.queue)
		_, err := c.conn.Queue(k.queue)
		if !c.must(err) {
			return
		}
		k.mu.Lock()
		ended := k.ended
		k.mu.Unlock()
		t := c.w.truth
		t.mu.Lock()
		if by := t.reached[c.id]; ended == nil && by != k.link {
			t.fail("%s is answered by link %d, and does not know that it is over since link %d", k.tag, by.n, k.link.n)
		}
		t.mu.Unlock()
		if ended != nil {
			if kernel.CodeOf(ended) != kernel.CodeFenced {
				t.Failf("%s ends: %v", k.tag, ended)
			}
			t.count("fenced")
			break
		}
		c.turn(k)
		c.pause(50 * time.Millisecond)
	}
	c.leave(k, false)
}
