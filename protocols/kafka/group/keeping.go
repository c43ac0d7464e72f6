package group

import (
	"container/heap"
	"context"
	"time"
)

// Store keeps memberships for the coordinators that follow this one: who is in which office,
// and that nothing is kept in the name of an earlier one, is its to know. Its methods block until ctx ends at
// most, and are safe for concurrent use.
type Store interface {
	// Load returns what is kept of a group, nil if that is nothing. NotCoordinator: another
	// node coordinates it, or has after that tenure began; NotAvailable: nobody can tell now.
	Load(ctx context.Context, tenure uint64, key Key) ([]byte, Error)
	// Keep keeps a membership, or removes it (nil). After another error than NotCoordinator
	// it may be kept, and Load says what is.
	Keep(ctx context.Context, tenure uint64, key Key, value []byte) Error
	// Unreadable is told of a membership that is not taken for what it is.
	Unreadable(key Key, err error)
}

const (
	// storePatience bounds one call of a Store; storePlaces how many there are at a time.
	storePatience = 10 * time.Second
	storePlaces   = 64
	// removeAgain is how long after a failure it is tried again to remove a membership.
	removeAgain = time.Second
)

// saving is a membership that is to be kept, nil to be removed, and who waits for that.
type saving struct {
	value []byte
	then  []kept
}

// load is a membership that is being loaded.
type load struct {
	done chan struct{}
	err  Error // once done
	void bool  // another node has the group, or this one in another tenure
}

// Begin begins a tenure: what the groups have come to is to be loaded anew. Those who
// wait are answered with NotCoordinator.
func (c *Coordinator) Begin(tenure uint64) {
	c.mu.Lock()
	out := c.leave(func(Key) bool { return false })
	c.tenure = tenure
	c.mu.Unlock()
	send(out)
}

// Keep forgets the groups that another node coordinates, and answers those of their members
// that wait with NotCoordinator.
func (c *Coordinator) Keep(ours func(Key) bool) {
	c.mu.Lock()
	out := c.leave(ours)
	c.mu.Unlock()
	send(out)
}

// leave forgets groups that are not ours, and what is known of them. The caller holds mu.
func (c *Coordinator) leave(ours func(Key) bool) (out []func()) {
	for key := range c.absent {
		if !ours(key) {
			delete(c.absent, key)
		}
	}
	for key, l := range c.loads {
		if !ours(key) {
			l.void = true
			delete(c.loads, key)
		}
	}
	for key, e := range c.groups {
		if !ours(key) {
			out = append(out, c.forget(e, NotCoordinator)...)
		}
	}
	return out
}

// forget forgets a group. All who wait for something are answered with why. The caller
// holds mu.
func (c *Coordinator) forget(e *entry, why Error) (out []func()) {
	c.drop(e)
	e.close(why)
	then := e.keep
	for _, s := range []*saving{e.now, e.next} {
		if s != nil {
			then = append(then, s.then...)
		}
	}
	for _, k := range then {
		k(why, time.Now())
	}
	out, e.out, e.keep, e.now, e.next = e.out, nil, nil, nil, nil
	return out
}

// drop takes a group out. The caller holds mu.
func (c *Coordinator) drop(e *entry) {
	e.gone = true
	c.bytes -= e.counted
	delete(c.groups, e.key)
	if e.index >= 0 {
		heap.Remove(&c.timers, e.index)
	}
}

// known reports whether all that is kept of a group is here. The caller holds mu.
func (c *Coordinator) known(key Key) bool {
	if _, ok := c.groups[key]; ok || c.store == nil {
		return true
	}
	_, none := c.absent[key]
	return none
}

// none notes that nothing is kept of a group. The caller holds mu.
func (c *Coordinator) none(key Key) {
	if c.store == nil {
		return
	}
	if len(c.absent) >= 2*c.limits.Groups {
		clear(c.absent)
	}
	c.absent[key] = struct{}{}
}

// Load waits until all is here that was kept of a group. What is asked about a group
// before is answered with NotAvailable, as it is if that cannot be told, or until ctx ends; NotCoordinator.
func (c *Coordinator) Load(ctx context.Context, key Key) Error {
	c.mu.Lock()
	if c.closed || c.known(key) || !validName(key.Group) {
		c.mu.Unlock()
		return OK // or whoever asks is told
	}
	l := c.loads[key]
	if l == nil {
		l = &load{done: make(chan struct{})}
		c.loads[key] = l
		tenure := c.tenure
		c.work.Go(func() { c.load(l, tenure, key) })
	}
	c.mu.Unlock()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return NotAvailable
	}
}

// load loads a membership.
func (c *Coordinator) load(l *load, tenure uint64, key Key) {
	var value []byte
	err := c.called(func(ctx context.Context) (err Error) {
		value, err = c.store.Load(ctx, tenure, key)
		return err
	})
	var m *membership
	if err == OK && value != nil {
		var bad error
		if m, bad = readMembership(value); bad != nil {
			c.store.Unreadable(key, bad)
			m = nil
		}
	}
	c.mu.Lock()
	out, err := c.loaded(l, key, m, value != nil, err)
	c.mu.Unlock()
	l.err = err
	close(l.done)
	send(out)
}

// loaded takes in what was loaded. A membership that cannot be read is removed as that of
// a group without members. The caller holds mu.
func (c *Coordinator) loaded(l *load, key Key, m *membership, there bool, err Error) ([]func(), Error) {
	switch {
	case c.closed:
		return nil, NotAvailable
	case l.void:
		return nil, NotCoordinator
	}
	delete(c.loads, key)
	switch {
	case err != OK:
		return nil, err
	case !there:
		c.none(key)
		return nil, OK
	case len(c.groups) >= c.limits.Groups:
		return nil, NotAvailable
	}
	e := c.add(key)
	if e.kept = true; m != nil {
		e.restore(m, time.Now())
	}
	if c.bytes+e.size > c.limits.TotalBytes {
		c.drop(e)
		return nil, NotAvailable
	}
	return c.settle(e), OK
}

// called calls the store, when it is its turn.
func (c *Coordinator) called(fn func(context.Context) Error) Error {
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-c.ctx.Done():
		return NotAvailable
	}
	ctx, cancel := context.WithTimeout(c.ctx, storePatience)
	defer cancel()
	return fn(ctx)
}

// keepUp has kept of a group what is to be: one after the other, and of what is to follow
// only the last. The caller holds mu.
func (c *Coordinator) keepUp(e *entry, now time.Time) {
	for c.store == nil && len(e.keep) > 0 {
		then := e.keep
		e.keep = nil
		for _, k := range then {
			k(OK, now)
		}
	}
	removes := func(s *saving) bool { return s != nil && s.value == nil }
	switch {
	case len(e.keep) > 0:
		s := &saving{value: e.appendMembership(nil), then: e.keep}
		if e.next != nil {
			s.then = append(e.next.then, s.then...)
		}
		e.next, e.keep = s, nil
	case !e.idle() && removes(e.next):
		e.next = nil
	case e.idle() && e.kept && e.next == nil && !removes(e.now) && !now.Before(e.again):
		e.next = &saving{}
	}
	if e.now == nil && e.next != nil {
		s, tenure := e.next, c.tenure
		e.now, e.next, e.kept = s, nil, true
		c.work.Go(func() { c.save(e, s, tenure) })
	}
}

// save keeps a membership. Of a group of which nobody knows whether it was, all that was here is
// forgotten: whoever asks next has it loaded.
func (c *Coordinator) save(e *entry, s *saving, tenure uint64) {
	err := c.called(func(ctx context.Context) Error { return c.store.Keep(ctx, tenure, e.key, s.value) })
	c.mu.Lock()
	if e.gone || c.closed {
		c.mu.Unlock()
		return // who waits has been told
	}
	now := time.Now()
	e.now = nil
	var out []func()
	switch {
	case err == OK:
		e.kept = s.value != nil
		for _, k := range s.then {
			k(OK, now)
		}
		out = c.settle(e)
	case s.value == nil && err != NotCoordinator:
		e.again = now.Add(removeAgain)
		out = c.settle(e)
	default:
		out = append(e.failed(s, err, now), c.forget(e, err)...)
	}
	c.mu.Unlock()
	send(out)
}

// failed tells those who wait that a membership was not kept.
func (e *entry) failed(s *saving, err Error, now time.Time) (out []func()) {
	for _, k := range s.then {
		k(err, now)
	}
	out, e.out = e.out, nil
	return out
}

func send(out []func()) {
	for _, reply := range out {
		reply()
	}
}
