package mqtt

import (
	"errors"
	"net"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

const (
	// holdTime is how long a client is held up while nobody serves: until then what it
	// has published, or asked for, waits, and what is behind that. After that it is
	// refused, and so is what follows, until somebody serves.
	holdTime = 5 * time.Second
	// holdPoll is how often it is tried again without being told to.
	holdPoll = 20 * time.Millisecond
	// holdAhead is up to how many bytes behind it are read meanwhile, for pings.
	holdAhead = 32 << 10
)

// alarmed is told by the kernel when the alarms change.
func (c *conn) alarmed() {
	c.alarms.Lock()
	c.unserved.Store(c.client.Alarms().Leader.On) // the last to look sees no less than others
	c.alarms.Unlock()
	select {
	case c.relief <- struct{}{}:
	default:
	}
}

// send publishes the record that c.in holds. While nobody serves nothing else of the
// client is handled but pings: it is tried again.
func (c *conn) send(topic string, m *wire.Message, token uint64) (matched int, err error) {
	if matched, err = c.try(topic, m, token); err == nil {
		c.tired = false
		return matched, nil
	}
	if !passes(err) || !c.holds() {
		return matched, err
	}
	c.flush()
	c.in.own() // the buffer is used meanwhile
	limit := time.NewTimer(holdTime)
	defer limit.Stop()
	defer c.heedAgain()
	for passes(err) && c.holds() && c.pause(limit.C) {
		matched, err = c.try(topic, m, token)
	}
	return matched, err
}

// passes reports whether a publish that was refused may be taken in a moment: nothing was
// done. CodeUnavailable is of a node that does not serve any more, or has not said so yet.
func passes(err error) bool {
	code := kernel.CodeOf(err)
	return err != nil && (code == kernel.CodePressure || code == kernel.CodeUnavailable)
}

// try is sendNow, unless nobody serves, or who does waits for others: then a host across
// the network may refuse what it is sent long after.
func (c *conn) try(topic string, m *wire.Message, token uint64) (matched int, err error) {
	if c.unserved.Load() {
		return 0, errNobody
	}
	return c.sendNow(topic, m, token)
}

// holds reports whether a publish that was refused is to wait: not for what the node is
// short of, such as disk, and not for long.
func (c *conn) holds() bool {
	a := c.client.Alarms()
	return !c.tired && !a.Disk.On && !a.Memory.On && !a.Replicas.On
}

// pause waits for a change of the alarms, or for a moment; false if the time is over, or
// the connection is. Pings are answered meanwhile, and the keep alive does not run.
func (c *conn) pause(over <-chan time.Time) bool {
	select {
	case <-c.relief:
		return true
	case <-over:
		c.tired = true
		return false
	case <-c.ctx.Done():
		return false
	default:
	}
	if c.reader.Buffered() < holdAhead {
		return c.heed()
	}
	poll := time.NewTimer(holdPoll)
	defer poll.Stop()
	select {
	case <-c.relief:
	case <-poll.C:
	case <-c.ctx.Done():
	}
	return true
}

// heed reads on for a moment, and answers the pings among what comes; false if the
// client has gone.
func (c *conn) heed() bool {
	if c.net.SetReadDeadline(time.Now().Add(holdPoll)) != nil || c.ended.Load() || c.stopped.Load() {
		return false // see arm
	}
	n, err := c.reader.Fill()
	c.progress += n
	for range c.reader.Pull(wire.Pingreq << 4) {
		c.out.packet(pingresp)
	}
	ne, ok := errors.AsType[net.Error](err)
	return err == nil || ok && ne.Timeout()
}

// heedAgain ends a wait: the keep alive begins anew.
func (c *conn) heedAgain() {
	c.alive, c.renewed = true, time.Time{}
	_ = c.net.SetReadDeadline(time.Time{}) // if it fails the next read does
}

// awaitHost waits until somebody serves, as long as a publish does; false if nobody
// does.
func (c *conn) awaitHost() bool {
	if c.client.Linked() {
		return true
	}
	limit := time.NewTimer(holdTime)
	defer limit.Stop()
	defer c.heedAgain()
	for !c.tired && c.pause(limit.C) {
		if c.client.Linked() {
			return true
		}
	}
	return c.client.Linked()
}

// errNobody is what is answered while nobody serves.
var errNobody error = kernel.Errorf(kernel.CodePressure, "", "", "no node serves now")

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
