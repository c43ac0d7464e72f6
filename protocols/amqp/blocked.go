package amqp

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// While the node is short of disk or memory, publishes wait: a client that has
// published and can understand is told with connection.blocked, once until the
// node is short of nothing. What it publishes regardless is held, unconfirmed, in
// a bounded list, so that its acknowledgements are still read. Once the list is
// full, a client that consumes nothing is not read any more, and one that does is
// closed.
//
// The fields of blocked belong to the reader, but for the atomics and told.
type blocked struct {
	link      link // set before the first publish and not changed
	published bool // the client has published, and the watcher knows
	list      []heldPublish
	bytes     int  // in list, and booked in the server's budget
	leaving   bool // connection.close has come, and is answered when the list is empty
	patience  *time.Timer

	overdue   atomic.Bool   // it has waited long enough for the end of the alarm
	publisher atomic.Bool   // published, for the watcher
	alarm     atomic.Bool   // an alarm is on, as of the last that the watcher knows; set under out.mu
	holding   atomic.Bool   // the list is not empty
	relief    atomic.Bool   // the reader should look at the alarms, and at what was declined
	wake      chan struct{} // the same for a reader that does not read; capacity 1
	told      bool          // connection.blocked is out; guarded by out.mu
}

// heldPublish is a whole publish that waits, with copies of its parts.
type heldPublish struct {
	ch       *channel
	pub      publisher
	confirms *confirms
	method   wire.BasicPublish
	reply    []byte // in the place of its reply_to, nil = that stays
	header   []byte
	body     []byte
}

// errPressed says that the node does not take a publish for now: nothing has
// happened.
var errPressed = &kernel.Error{Code: kernel.CodePressure, Detail: "the node is short of something"}

// watchAlarms has the connection told of alarms from now on.
func (c *conn) watchAlarms() {
	c.blocked.link = c.link // which the reader forgets at the end
	c.link.WatchAlarms(func() {
		c.tellBlocked()
		if c.blocked.holding.Load() && !c.blocked.link.Alarms().Any() {
			c.relieveSoon()
		}
	})
}

// pressed reports whether a publish has to wait. The first publish makes the
// client one that is told of alarms.
func (c *conn) pressed() bool {
	b := &c.blocked
	if !b.published {
		b.published = true
		b.publisher.Store(true)
		c.tellBlocked()
	}
	return len(b.list) > 0 || b.alarm.Load()
}

// tellBlocked notes whether an alarm is on, and sends connection.blocked or unblocked,
// if that is news to a client that is told. Any goroutine.
func (c *conn) tellBlocked() {
	b := &c.blocked
	o := c.out
	o.mu.Lock()
	before := len(o.buf)
	alarms := b.link.Alarms() // under the mutex: who comes later sees no less
	on := alarms.Any()
	b.alarm.Store(on)
	if on != b.told && c.blockNote && b.publisher.Load() && !o.closing && !o.ended {
		b.told = on
		if on {
			o.buf = wire.AppendMethod(o.buf, 0, &wire.ConnectionBlocked{Reason: "low on " + alarms.Short()})
		} else {
			o.buf = wire.AppendMethod(o.buf, 0, &wire.ConnectionUnblocked{})
		}
	}
	o.done(before)
}

// relieveSoon makes the reader, wherever it waits, look at the alarms. Any
// goroutine.
func (c *conn) relieveSoon() {
	c.out.mu.Lock()
	c.blocked.relief.Store(true)
	if !c.closing.Load() {
		c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	c.out.mu.Unlock()
	c.unpark()
}

// unpark wakes a reader that does not read because its list is full.
func (c *conn) unpark() {
	select {
	case c.blocked.wake <- struct{}{}:
	default:
	}
}

// hold keeps a publish until the alarms are over. It waits, without reading, when
// the list is full; a client that consumes is closed then, because its
// acknowledgements, which would free memory and disk, are behind what it
// publishes.
func (c *conn) hold(h heldPublish) error {
	b := &c.blocked
	size := len(h.body) + len(h.header) + heldOverhead
	fits := len(b.list) == 0 || b.bytes+size <= c.srv.cfg.BlockedBuffer
	if fits = fits && c.srv.in.Take(size, 0, nil); !fits {
		// While no node serves, nothing that it settles would free anything.
		if !b.link.Alarms().Leader.On && c.holdsDeliveries() {
			return faultf(wire.ResourceError, "the node is low on %s and the client publishes on regardless", b.link.Alarms().Short())
		}
		c.srv.in.Add(size) // it is here already; the client sends no more
	}
	b.bytes += size
	b.list = append(b.list, h)
	b.holding.Store(true)
	switch {
	case !b.link.Alarms().Any(): // just over: nobody else looks
		return c.relieve()
	case !fits:
		return c.park()
	}
	return nil
}

// heldOverhead is what a held publish costs beside its bytes.
const heldOverhead = 512

// park waits, without reading, until the alarms are over or the connection ends:
// what the client sends stays with it, and its heartbeats do not count.
func (c *conn) park() error {
	c.flush()
	for !c.closing.Load() && !c.gone.Load() {
		if !c.blocked.link.Alarms().Any() {
			return c.relieve()
		}
		<-c.blocked.wake
	}
	return nil
}

// holdsDeliveries reports whether the client consumes or has something to settle.
func (c *conn) holdsDeliveries() bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.consuming > 0 {
		return true
	}
	for _, ch := range c.channels {
		if ch.unacked.len() > 0 {
			return true
		}
	}
	return false
}

// relieve publishes what is held, as long as the node takes it. An error ends the
// connection.
func (c *conn) relieve() error {
	b := &c.blocked
	c.rec.now = time.Now().UnixMilli()
	for len(b.list) > 0 && !c.closing.Load() {
		if c.blocked.link.Alarms().Any() {
			break
		}
		h := &b.list[0]
		err := h.publish()
		if err == error(errPressed) {
			continue // the alarm is on again, or over
		}
		size := len(h.body) + len(h.header) + heldOverhead
		b.bytes -= size
		c.srv.in.Add(-size)
		ch := h.ch
		b.list[0] = heldPublish{}
		b.list = b.list[1:]
		if err == nil {
			continue
		}
		f := asFault(err)
		f.id = wire.IDBasicPublish
		if f.code.Hard() {
			return f
		}
		if c.channels[ch.id] == ch && !ch.closing {
			ch.fail(f)
		}
	}
	if b.leaving && b.overdue.Load() {
		c.nackHeld()
	}
	if len(b.list) == 0 {
		b.list = nil
		b.holding.Store(false)
	}
	c.flush()
	if b.leaving && len(b.list) == 0 {
		return c.leaveInOrder()
	}
	return nil
}

// leaveTime is how long connection.close waits for the end of an alarm where the
// client can be told that what is held is not stored.
const leaveTime = 2 * time.Second

// leaveHolding is for connection.close while publishes are held. As long as the client
// waits they are not lost; but one that has asked for confirms is told with nacks, soon,
// that they are not stored. Others could not be told, as nothing but close-ok may answer
// connection.close: they wait for the end of the alarm.
func (c *conn) leaveHolding() {
	b := &c.blocked
	b.leaving = true
	for i := range b.list {
		if b.list[i].confirms == nil {
			return
		}
	}
	b.patience = time.AfterFunc(leaveTime, func() {
		b.overdue.Store(true)
		c.relieveSoon()
	})
}

// nackHeld gives up all that is held, on channels with confirms.
func (c *conn) nackHeld() {
	b := &c.blocked
	for i := range b.list {
		w := b.list[i].confirms
		w.settled(w.begin(), nacked)
	}
	c.srv.in.Add(-b.bytes)
	b.list, b.bytes = nil, 0
}

func (h *heldPublish) publish() error {
	var p wire.Properties
	if _, _, err := wire.ParseHeader(h.header, &p); err != nil {
		return err // it has been parsed before
	}
	if h.reply != nil {
		p.ReplyTo = h.reply
	}
	return h.ch.publish(h.pub, h.confirms, &h.method, &p, h.body)
}

// forgetHeld drops what is held: the connection ends.
func (c *conn) forgetHeld() {
	b := &c.blocked
	if b.patience != nil {
		b.patience.Stop()
	}
	if n := len(b.list); n > 0 {
		c.log.Warn().Int("messages", n).Stringer("peer", c.nc.RemoteAddr()).Str("user", c.user).
			Msg("AMQP connection ended while its publishes waited for the end of an alarm: they are not stored, and were not confirmed")
	}
	c.srv.in.Add(-b.bytes)
	b.list, b.bytes = nil, 0
	b.holding.Store(false)
}

// held copies what a publish consists of.
func (t *content) held(body []byte) heldPublish {
	h := heldPublish{ch: t.ch, pub: t.ch.pub, confirms: t.ch.confirms, method: t.method}
	h.method.Exchange, h.method.RoutingKey = strings.Clone(t.method.Exchange), strings.Clone(t.method.RoutingKey)
	h.header = append([]byte(nil), t.rawHeader...)
	h.body = append(make([]byte, 0, len(body)), body...)
	return h
}

// relieved is what the reader does when it was woken for the alarms. It puts the
// read deadline right again.
func (c *conn) relieved() error {
	c.blocked.relief.Store(false)
	err := c.failAllDeclined()
	if err == nil {
		err = c.relieve()
	}
	c.out.mu.Lock()
	if !c.closing.Load() && !c.blocked.relief.Load() {
		var at time.Time
		if c.idle > 0 {
			at = time.Now().Add(c.idle + c.idle/8)
		}
		c.nc.SetReadDeadline(at)
	}
	c.out.mu.Unlock()
	c.renewed = time.Now()
	return err
}
