package broker

import (
	"container/heap"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// expirer deletes queues that have not been used for the time that they are
// allowed to be: one timer for all of them. A queue is used while it has
// consumers; a record taken out of it or, unless it is a quorum queue, a
// declaration makes its time begin anew, and so does a start of the node.
type expirer struct {
	b *Broker

	mu      sync.Mutex // comes after tenant.mu
	started bool
	waiting expiryHeap
	armed   time.Duration // what the timer is set to
	stop    func()        // the timer, nil = there is none
}

// expiryEntry is a group's part of it. Times are those of Broker.uptime, which no
// setting of the clock moves.
type expiryEntry struct {
	after atomic.Int64 // how long it may be unused, 0 = for ever; set with tenant.mu held
	used  atomic.Int64 // the last use

	// expirer.mu guards what follows.
	at    time.Duration // when to look
	place int           // in the heap, from 1; 0 = it is not there
	t     *tenant
	g     *group
}

// uptime is how long the node has been up.
func (b *Broker) uptime() time.Duration { return b.now().Sub(b.started) }

// touch notes a use.
func (e *expiryEntry) touch(b *Broker) {
	if e.after.Load() > 0 {
		e.used.Store(int64(b.uptime()))
	}
}

// expireAfter says how long a group may be unused, 0 = for ever, from now on.
// tenant.mu is held.
func (t *tenant) expireAfter(g *group, d time.Duration) {
	e := &g.expiry
	if d <= 0 && e.after.Load() == 0 {
		return
	}
	e.after.Store(int64(max(d, 0)))
	e.touch(t.b)
	t.b.expiry.plan(t, g)
}

// unused is called when a group may have lost its last consumer. tenant.mu is
// held.
func (t *tenant) unused(g *group) {
	if g.expiry.after.Load() > 0 && !g.read() && t.groups[g.spec.Address] == g {
		g.expiry.touch(t.b)
		t.b.expiry.plan(t, g)
	}
}

// read reports whether a group has consumers. tenant.mu is held.
func (g *group) read() bool { return g.members > 0 || g.holds > 0 }

// plan looks at a group when its time is over. tenant.mu is held.
func (x *expirer) plan(t *tenant, g *group) {
	e := &g.expiry
	x.mu.Lock()
	defer x.mu.Unlock()
	e.t, e.g = t, g
	e.at = e.due()
	switch {
	case e.after.Load() == 0 && e.place > 0:
		heap.Remove(&x.waiting, e.place-1)
	case e.after.Load() == 0:
	case e.place > 0:
		heap.Fix(&x.waiting, e.place-1)
	default:
		heap.Push(&x.waiting, e)
	}
	x.arm()
}

// due is when a group will have been unused for its time.
func (e *expiryEntry) due() time.Duration {
	used, after := e.used.Load(), e.after.Load()
	if after > math.MaxInt64-used {
		return math.MaxInt64
	}
	return time.Duration(used + after)
}

// start begins the time of all queues: now they can be used again.
func (x *expirer) start(b *Broker) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.b, x.started = b, true
	now := b.uptime()
	for _, e := range x.waiting {
		e.used.Store(int64(now))
		e.at = e.due()
	}
	heap.Init(&x.waiting)
	x.arm()
}

// arm sets the timer to the first of those that wait. x.mu is held.
func (x *expirer) arm() {
	if !x.started || x.stop != nil && len(x.waiting) > 0 && x.waiting[0].at == x.armed {
		return
	}
	if x.stop != nil {
		x.stop()
		x.stop = nil
	}
	if len(x.waiting) > 0 {
		x.armed = x.waiting[0].at
		x.stop = x.b.after(x.armed-x.b.uptime(), x.fire)
	}
}

// fire deletes what has not been used for its time.
func (x *expirer) fire() {
	x.mu.Lock()
	now := x.b.uptime()
	var due []*expiryEntry
	for len(x.waiting) > 0 && x.waiting[0].at <= now {
		due = append(due, heap.Pop(&x.waiting).(*expiryEntry))
	}
	x.stop = nil
	x.arm()
	x.mu.Unlock()
	var wg sync.WaitGroup
	slots := make(chan struct{}, sessionWidth)
	for _, e := range due {
		if !e.t.overdue(e.g) {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			e.t.expire(e.g)
			<-slots
		})
	}
	wg.Wait()
}

// overdue reports whether a group has not been used for its time. If it has been,
// it will be looked at again.
func (t *tenant) overdue(g *group) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &g.expiry
	if e.after.Load() == 0 || g.read() || t.groups[g.spec.Address] != g {
		return false // or it has consumers: see unused
	}
	if t.b.uptime() < e.due() {
		t.b.expiry.plan(t, g)
		return false
	}
	return true
}

// expire deletes a queue unless it has been used meanwhile.
func (t *tenant) expire(g *group) {
	t.mu.Lock()
	addr, id := g.spec.Address, g.spec.Topic
	t.mu.Unlock()
	defer t.lockTopicFor(addr.Kind == kernel.Filter, addr.Topic)()
	topic, ok := t.table.Load().TopicByID(id)
	if !ok || !t.overdue(g) {
		return
	}
	if topic.Queue != nil && addr.IsOwn() {
		t.leftover(topic.Name)
	}
	if err := t.dropQueue(topic, g); err != nil && t.b.ctx.Err() == nil {
		t.b.log.Error().Err(err).Stringer("group", addr).Msg("an expired queue could not be deleted")
		t.mu.Lock()
		t.unused(g) // once more when as much time has passed
		t.mu.Unlock()
	}
}

// expiryHeap has the entry to be looked at first at its top.
type expiryHeap []*expiryEntry

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h expiryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (h *expiryHeap) Push(v any) {
	e := v.(*expiryEntry)
	*h = append(*h, e)
	e.place = len(*h)
}

// Pop implements heap.Interface.
func (h *expiryHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = slices.Delete(*h, last, last+1)
	e.place = 0
	return e
}
