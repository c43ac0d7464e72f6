package mqtt

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

const (
	// holdTime is how long a client is not read while nobody serves: until then what it
	// has published, or asked for, waits. After that it is refused, and so is what
	// follows, until somebody serves.
	holdTime = 5 * time.Second
	// holdPoll is the pause before a publish is tried again that was refused although no
	// alarm is on.
	holdPoll = 20 * time.Millisecond
)

// alarmed is told by the kernel when the alarms change.
func (c *conn) alarmed() {
	select {
	case c.relief <- struct{}{}:
	default:
	}
}

// send publishes the record that c.in holds. While nobody serves the client is not read:
// it is tried again.
func (c *conn) send(topic string, m *wire.Message, token uint64) (matched int, err error) {
	matched, err = c.sendNow(topic, m, token)
	if err == nil {
		c.tired = false
		return matched, nil
	}
	if kernel.CodeOf(err) != kernel.CodePressure || !c.holds() {
		return matched, err
	}
	c.flush()
	limit := time.NewTimer(holdTime)
	defer limit.Stop()
	for c.pause(limit.C) {
		matched, err = c.sendNow(topic, m, token)
		if kernel.CodeOf(err) != kernel.CodePressure {
			return matched, err
		}
		if !c.holds() {
			return matched, err
		}
	}
	return matched, err
}

// holds reports whether a publish that was refused is to wait: not for what the node is
// short of, such as disk, and not for long.
func (c *conn) holds() bool {
	a := c.client.Alarms()
	return !c.tired && !a.Disk.On && !a.Memory.On && !a.Replicas.On
}

// pause waits for a change of the alarms; false if the time is over, or the connection
// is. The keep alive does not run meanwhile.
func (c *conn) pause(over <-chan time.Time) bool {
	c.alive = true
	wait := holdPoll
	if c.client.Alarms().Any() {
		wait = 10 * holdPoll // the end of it is told
	}
	poll := time.NewTimer(wait)
	defer poll.Stop()
	select {
	case <-c.relief:
	case <-poll.C:
	case <-over:
		c.tired = true
		return false
	case <-c.ctx.Done():
		return false
	}
	return true
}

// awaitHost waits until somebody serves, as long as a publish does; false if nobody
// does.
func (c *conn) awaitHost() bool {
	if c.client.Linked() {
		return true
	}
	limit := time.NewTimer(holdTime)
	defer limit.Stop()
	for !c.tired && c.pause(limit.C) {
		if c.client.Linked() {
			return true
		}
	}
	return c.client.Linked()
}

// errNobody is what is answered while nobody serves.
var errNobody = kernel.Errorf(kernel.CodePressure, "", "", "no node serves now")

// Holding implements kernel.Holder: what is on its way to the client, or was
// acknowledged by it and not handed on.
func (f *feed) Holding() []kernel.Place {
	s := &f.conn.out
	s.mu.Lock()
	defer s.mu.Unlock()
	var places []kernel.Place
	for i := range s.win.slots {
		if e := &s.win.slots[i]; e.feed == f && e.id != 0 && !e.pinned && (e.stage == sent || e.stage == due) {
			places = append(places, kernel.Place{Partition: e.partition, Offset: e.offset})
		}
	}
	for _, p := range s.win.parked[s.win.parkedHead:] {
		if p.feed == f {
			places = append(places, kernel.Place{Partition: p.partition, Offset: p.offset})
		}
	}
	runs := append(s.settles[:len(s.settles):len(s.settles)], s.acked)
	for _, r := range runs {
		if r.feed != f {
			continue
		}
		for o := r.first; o <= r.last; o++ {
			places = append(places, kernel.Place{Partition: r.partition, Offset: o})
		}
	}
	return places
}

// Lost implements kernel.Holder: what has not gone out is not sent.
func (f *feed) Lost(places []kernel.Place) {
	lost := make(map[kernel.Place]struct{}, len(places))
	for _, p := range places {
		lost[p] = struct{}{}
	}
	is := func(partition int32, offset int64) bool {
		_, ok := lost[kernel.Place{Partition: partition, Offset: offset}]
		return ok
	}
	s := &f.conn.out
	s.mu.Lock()
	defer s.unlock()
	s.win.unparkLost(f, is)
	for id, p := range s.pinning {
		if e := s.win.get(id); e != nil && e.feed == f && e.stage == pinning && is(e.partition, e.offset) {
			delete(s.pinning, id)
			s.pinBytes -= len(p.bytes)
			s.win.free(id)
		}
	}
}

var _ kernel.Holder = (*feed)(nil)
