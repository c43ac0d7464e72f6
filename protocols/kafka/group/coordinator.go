package group

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits bound what groups may cost. Zero fields have the defaults named.
type Limits struct {
	Groups       int           // groups with members; 0 is 10000
	Members      int           // of one group; 0 is 1000
	GroupBytes   int           // metadata and assignments of one group; 0 is 8 MiB
	TotalBytes   int           // of all groups; 0 is 128 MiB
	MinSession   time.Duration // shortest session timeout; 0 is 6 s, Kafka's
	MaxSession   time.Duration // longest; 0 is 30 min
	InitialDelay time.Duration // how long a new group waits for more members; 0 is 500 ms
}

func (l *Limits) defaults() {
	set(&l.Groups, 10000)
	set(&l.Members, 1000)
	set(&l.GroupBytes, 8<<20)
	set(&l.TotalBytes, 128<<20)
	set(&l.MinSession, 6*time.Second)
	set(&l.MaxSession, 30*time.Minute)
	set(&l.InitialDelay, 500*time.Millisecond)
}

func set[T int | time.Duration](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// maxID bounds a group's name and a member's ids.
const maxID = 255

// Key names a group: each tenant has its own.
type Key struct{ Tenant, Group string }

// Coordinator runs the groups of a node. Its methods are safe for concurrent
// use and, but for Load, do not block; replies are called once each, from within the call or
// from a goroutine of the coordinator, and must not call back.
type Coordinator struct {
	limits Limits
	store  Store          // nil: memberships are here only
	places chan struct{}  // of calls of store
	work   sync.WaitGroup // those calls; Add under mu while open
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	tenure uint64 // of this coordinator, see Begin
	groups map[Key]*entry
	absent map[Key]struct{} // of which nothing is kept
	loads  map[Key]*load
	timers timers
	bytes  int // of all groups
	closed bool
	wake   chan struct{} // the earliest timer has changed
	stop   chan struct{}
	done   chan struct{}
}

// entry is a group with its place in the heap of timers, and with what is kept of it.
type entry struct {
	*group
	key     Key
	at      time.Time
	index   int
	counted int // of the group's size, in the coordinator's books

	gone  bool      // it is forgotten
	kept  bool      // something of it may be kept
	now   *saving   // under way
	next  *saving   // follows it
	again time.Time // when it may be tried again to remove it
}

// NewCoordinator starts a coordinator, which keeps memberships in a store, or, if that is
// nil, nowhere; Close ends it.
func NewCoordinator(limits Limits, store Store) *Coordinator {
	limits.defaults()
	c := &Coordinator{
		limits: limits, store: store, places: make(chan struct{}, storePlaces),
		groups: map[Key]*entry{}, absent: map[Key]struct{}{}, loads: map[Key]*load{},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.run()
	return c
}

// Close answers every member that waits with NotAvailable and stops the
// timers. Idempotent.
func (c *Coordinator) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.closed = true
	close(c.stop)
	c.cancel()
	var out []func()
	for _, e := range c.groups {
		out = append(out, c.forget(e, NotAvailable)...)
	}
	c.mu.Unlock()
	<-c.done
	c.work.Wait()
	send(out)
}

// Empty reports whether nothing is known of any group.
func (c *Coordinator) Empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.groups)+len(c.absent)+len(c.loads) == 0
}

// run is the timers' goroutine.
func (c *Coordinator) run() {
	defer close(c.done)
	for {
		wait := c.tick()
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.wake:
			timer.Stop()
		case <-c.stop:
			timer.Stop()
			return
		}
	}
}

// tick runs the groups that are due and returns how long until the next is.
func (c *Coordinator) tick() time.Duration {
	for {
		c.mu.Lock()
		now := time.Now()
		if c.closed || len(c.timers) == 0 {
			c.mu.Unlock()
			return time.Hour
		}
		e := c.timers[0]
		if wait := e.at.Sub(now); wait > 0 {
			c.mu.Unlock()
			return min(wait, time.Hour)
		}
		e.tick(now)
		out := c.settle(e)
		c.mu.Unlock()
		send(out)
	}
}

// act runs one event of a group, made if it is missing and create is set; it
// returns false if there is no such group. fn sees the group as the zero one
// of its state machine when it is new.
func (c *Coordinator) act(key Key, create bool, fn func(g *group, now time.Time)) Error {
	c.mu.Lock()
	e, ok := c.groups[key]
	switch {
	case c.closed:
		c.mu.Unlock()
		return NotAvailable
	case !c.known(key): // it was, and is somebody else's meanwhile, or is to be loaded again
		c.mu.Unlock()
		return NotAvailable
	case !ok && !create:
		c.mu.Unlock()
		return NotFound
	case !ok && len(c.groups) >= c.limits.Groups:
		c.mu.Unlock()
		return NotAvailable
	case !ok:
		e = c.add(key)
	}
	fn(e.group, time.Now())
	out := c.settle(e)
	c.mu.Unlock()
	send(out)
	return OK
}

// add makes a group. The caller holds mu.
func (c *Coordinator) add(key Key) *entry {
	e := &entry{group: newGroup(&c.limits), key: key, at: never, index: -1}
	c.groups[key] = e
	delete(c.absent, key)
	return e
}

// settle takes the answers of an event, keeps the books, and sets the group's
// timer; a group without members, of which nothing is kept, is forgotten.
func (c *Coordinator) settle(e *entry) (out []func()) {
	c.keepUp(e, time.Now())
	out, e.out = e.out, nil
	c.bytes += e.size - e.counted
	e.counted = e.size
	if e.idle() && !e.kept {
		c.drop(e)
		c.none(e.key)
		return out
	}
	if e.at = e.group.next(); e.idle() && e.now == nil {
		e.at = e.again
	}
	if e.index < 0 {
		heap.Push(&c.timers, e)
	} else {
		heap.Fix(&c.timers, e.index)
	}
	if e.index == 0 {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return out
}

// Join joins a member; reply is called when the next generation begins, or at
// once.
func (c *Coordinator) Join(tenant string, q Join, reply func(Joined)) {
	refuse := func(err Error) { reply(Joined{Err: err, Generation: -1, Member: q.Member}) }
	switch {
	case !validName(q.Group):
		refuse(InvalidGroupID)
		return
	case len(q.Member) > maxID || len(q.Instance) > maxID:
		refuse(invalidRequest)
		return
	case q.Session < c.limits.MinSession || q.Session > c.limits.MaxSession:
		refuse(InvalidSession)
		return
	}
	// A longer rebalance than the longest session keeps timers in bounds.
	q.Rebalance = min(max(q.Rebalance, 0), c.limits.MaxSession)
	err := c.act(Key{tenant, q.Group}, true, func(g *group, now time.Time) {
		if c.bytes+protocolsSize(q.Protocols) > c.limits.TotalBytes {
			g.out = append(g.out, func() { refuse(NotAvailable) })
			return
		}
		g.join(&q, now, reply)
	})
	if err != OK {
		refuse(err)
	}
}

// Sync asks for the member's assignment; reply is called when it is known.
func (c *Coordinator) Sync(tenant string, q Sync, reply func(Synced)) {
	if !validName(q.Group) {
		reply(Synced{Err: InvalidGroupID})
		return
	}
	size := 0
	for _, a := range q.Assignments {
		size += len(a)
	}
	err := c.act(Key{tenant, q.Group}, false, func(g *group, now time.Time) {
		if c.bytes+size > c.limits.TotalBytes {
			g.out = append(g.out, func() { reply(Synced{Err: NotAvailable}) })
			return
		}
		g.sync(&q, now, reply)
	})
	if err != OK {
		reply(Synced{Err: unknown(err)})
	}
}

// Heartbeat is a member's sign of life.
func (c *Coordinator) Heartbeat(key Key, member, instance string, generation int32) (err Error) {
	if !validName(key.Group) {
		return InvalidGroupID
	}
	if e := c.act(key, false, func(g *group, now time.Time) { err = g.heartbeat(member, instance, generation, now) }); e != OK {
		return unknown(e)
	}
	return err
}

// Leave ends a membership.
func (c *Coordinator) Leave(key Key, member, instance string) (err Error) {
	if !validName(key.Group) {
		return InvalidGroupID
	}
	if e := c.act(key, false, func(g *group, now time.Time) { err = g.leave(member, instance, now) }); e != OK {
		return unknown(e)
	}
	return err
}

// Commit tells whether offsets may be committed in the name of a member;
// generation < 0 and no member is a client outside of the group's protocol.
func (c *Coordinator) Commit(key Key, member, instance string, generation int32) (err Error) {
	if !validName(key.Group) {
		return InvalidGroupID
	}
	e := c.act(key, false, func(g *group, now time.Time) { err = g.commit(member, instance, generation, now) })
	switch {
	case e == NotFound && generation < 0 && member == "":
		return OK
	case e == NotFound && generation >= 0:
		return IllegalGeneration // the group is empty, as after a restart (Kafka's answer)
	case e != OK:
		return unknown(e)
	}
	return err
}

// Description is a group as listings show it.
type Description struct {
	Key
	State                  State
	ProtocolType, Protocol string
	Members                []Member
}

// Describe returns a group that has members; ok is false if it has none.
func (c *Coordinator) Describe(key Key) (d Description, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.groups[key]
	if !ok || e.idle() {
		return Description{Key: key, State: Dead}, false
	}
	return e.describe(), true
}

// List returns the groups of a tenant that have members, by name, without the
// members.
func (c *Coordinator) List(tenant string) []Description {
	c.mu.Lock()
	var list []Description
	for key, e := range c.groups {
		if key.Tenant == tenant && !e.idle() {
			list = append(list, Description{Key: key, State: e.state, ProtocolType: e.protocolType, Protocol: e.protocol})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b Description) int { return cmp.Compare(a.Group, b.Group) })
	return list
}

func (e *entry) describe() Description {
	d := Description{Key: e.key, State: e.state, ProtocolType: e.protocolType}
	if e.state == Stable {
		d.Protocol = e.protocol
	}
	for _, m := range e.members {
		o := Member{ID: m.id, Instance: m.instance, ClientID: m.clientID, ClientHost: m.clientHost}
		if e.state == Stable {
			o.Metadata, o.Assignment = m.metadata(e.protocol), m.assignment
		}
		d.Members = append(d.Members, o)
	}
	return d
}

func validName(name string) bool {
	return name != "" && len(name) <= maxID && utf8.ValidString(name) && strings.IndexByte(name, 0) < 0
}

// unknown is what a member of a group that does not exist is told.
func unknown(err Error) Error {
	if err == NotFound {
		return UnknownMember
	}
	return err
}

// timers is a heap of groups by when they are due.
type timers []*entry

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at.Before(t[j].at) }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i]; t[i].index, t[j].index = i, j }

func (t *timers) Push(x any) {
	e := x.(*entry)
	e.index = len(*t)
	*t = append(*t, e)
}

func (t *timers) Pop() any {
	old := *t
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	e.index = -1
	return e
}
