package mqtt

import (
	"cmp"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// A session that comes back has what it had under way sent again, under the same
// identifiers and in the same order, before anything new (4.4.0-1, 4.6.0-1). QoS 2
// deliveries are the session's pins, also after a crash of the node. QoS 1
// deliveries are left with the session by the connection that ends; after a restart
// of the node they are redelivered by their groups, under new identifiers.

// keep leaves the QoS 1 deliveries that are not acknowledged with the session, and
// all of what is retained.
func (c *conn) keep() {
	s := &c.out
	s.mu.Lock()
	k := &remains{last: s.win.last, count: s.win.count}
	for _, e := range s.win.slots {
		if as, ok := s.win.kept[e.id]; ok && e.id != 0 {
			k.retained = append(k.retained, keptRetained{keptSlot{e, e.feed.filter}, as, e.feed.identifier})
			k.retained[len(k.retained)-1].feed = nil
		} else if e.id != 0 && e.qos == 1 && e.feed.counted() && !e.feed.gone {
			filter := e.feed.filter
			e.feed = nil // lets go of the connection
			k.slots = append(k.slots, keptSlot{e, filter})
		}
	}
	s.mu.Unlock()
	c.session.Keep(k.append(nil))
}

// abandon refuses the QoS 2 deliveries of a session that ends with its connection and
// has not said that it has them: it may, so nobody else gets them (4.8.2-5). What is
// pinned to a session outlives the connection, and is refused when the session ends.
func (c *conn) abandon() {
	s := &c.out
	s.mu.Lock()
	var list []slot
	for _, e := range s.win.slots {
		if e.id != 0 && e.qos == 2 && !e.pinned && e.stage == sent && e.feed.member != nil {
			list = append(list, e)
		}
	}
	defer s.mu.Unlock()
	slices.SortFunc(list, func(a, b slot) int { return cmp.Compare(a.count, b.count) })
	for i := range list {
		s.gather(list[i].feed, true, list[i].partition, list[i].offset)
	}
	s.settleRun()
}

// resume attaches the subscriptions of a session that was there before, and sends
// again what it had under way. A subscription that cannot be attached (its queue has
// been deleted, permission withdrawn) is left out; it stays in the session.
func (c *conn) resume() error {
	pins, err := c.session.Pins(c.ctx)
	if err != nil {
		return err
	}
	for _, sub := range c.session.State().Subscriptions {
		f := newFeed(c, sub)
		m, err := c.session.Attach(c.ctx, broker.SubscribeSpec{Subscription: sub, To: f, Live: f})
		if c.ctx.Err() != nil {
			return errEnded
		}
		if err != nil {
			c.server.log.Warn().Err(err).Str("client", c.clientID).Str("filter", sub.Filter).Msg("mqtt subscription not resumed")
			continue
		}
		c.addFeed(f, m)
	}
	slots, err := c.hold(pins)
	if err != nil {
		return err
	}
	for _, p := range pins {
		if !slices.ContainsFunc(slots, func(d slot) bool { return d.id == p.Number }) {
			slots = append(slots, c.pinned(p))
		}
	}
	slices.SortFunc(slots, func(a, b slot) int { return cmp.Compare(a.count, b.count) })
	s := &c.out
	s.mu.Lock()
	for _, d := range slots {
		s.win.reserve(d)
	}
	s.win.resuming = false
	s.mu.Unlock()
	c.resend()
	s.mu.Lock()
	for _, d := range slots {
		if d.stage == taken {
			s.ackLocked(wire.Pubrel, d.id, wire.Success)
		}
	}
	s.unlock()
	c.replenish()
	return nil
}

// hold gets back the QoS 1 deliveries that the connection before has left, as far as
// nobody else has got them, and those of what is retained.
func (c *conn) hold(pins []sessionPin) (slots []slot, err error) {
	text, err := c.session.Kept()
	if err != nil {
		return nil, err
	}
	k, err := readRemains(text)
	if err != nil {
		c.server.log.Warn().Err(err).Str("client", c.clientID).Msg("what an earlier connection has left cannot be read")
	}
	if err != nil || k == nil {
		return nil, nil
	}
	c.out.mu.Lock()
	c.out.win.last, c.out.win.count = k.last, k.count
	slots = k.hold(c, pins)
	c.out.mu.Unlock()
	byFeed := make(map[*feed][]slot)
	for _, d := range k.slots {
		if f := c.feeds[d.filter]; f != nil && f.counted() {
			byFeed[f] = append(byFeed[f], d.slot)
		}
	}
	for f, list := range byFeed {
		places := make([]kernel.Place, len(list))
		for i, d := range list {
			places[i] = kernel.Place{Partition: d.partition, Offset: d.offset}
		}
		for i, held := range f.member.Hold(places) {
			if d := list[i]; held {
				d.feed, d.stage = f, due
				slots = append(slots, d)
			}
		}
	}
	return slots, nil
}

// pinned returns the slot of a pin. One whose subscription has gone has no message
// to be sent any more: PUBREL ends it, whether the client has the message or not.
func (c *conn) pinned(p sessionPin) slot {
	d := slot{
		feed: c.feeds[p.Filter], id: p.Number, count: p.Count, qos: 2, pinned: true,
		partition: p.Partition, offset: p.Offset, stage: due,
	}
	if p.Taken || p.Filter == "" || d.feed == nil || d.feed.member == nil {
		d.stage = taken
	}
	if d.feed != nil && d.feed.member == nil {
		d.feed = nil
	}
	return d
}

// resend sends again what is due, as far as the window and the backlog allow. Any
// goroutine but the kernel's may call it.
func (c *conn) resend() {
	c.resuming.Lock()
	defer c.resuming.Unlock()
	s := &c.out
	for {
		s.mu.Lock()
		var d slot
		if !s.closed && s.backlog() < s.bound(lowMark) && s.openAgain() {
			d = s.win.nextDue()
		}
		s.unlock()
		if d.id == 0 {
			return
		}
		if d.feed.member == nil {
			if !c.resendRetained(&d) {
				return
			}
			continue
		}
		wait := false
		ok, err := d.feed.member.Read(kernel.Place{Partition: d.partition, Offset: d.offset}, func(v *kernel.View) {
			wait = !s.again(&d, v)
		})
		switch {
		case err != nil: // nobody serves
			s.later(&d)
			return
		case !ok:
			c.lost(&d)
		case wait:
			return
		}
	}
}

// later has a delivery sent again in a while.
func (s *sender) later(d *slot) {
	s.mu.Lock()
	defer s.unlock()
	if e := s.win.get(d.id); e != nil {
		s.win.again(e)
		s.look()
	}
}

// again sends one delivery again, with DUP. It returns false if there is no room for
// it in the total: it is due then, as before.
func (s *sender) again(d *slot, v *kernel.View) bool {
	s.mu.Lock()
	defer s.unlock()
	e := s.win.get(d.id)
	if s.closed || e == nil {
		return true
	}
	s.msg.fromView(v, d.feed.topic, s.version == wire.V5)
	return s.sendAgain(d, e, false)
}

// sendAgain is again for the message in s.msg; e is the delivery in the window. mu is
// held.
func (s *sender) sendAgain(d, e *slot, retain bool) bool {
	m, now := &s.msg, kernel.Millis()
	fr := s.frameOf(d.feed, m)
	fr.QoS, fr.ID, fr.Dup = d.qos, d.id, true
	fr.Retain = fr.Retain || retain
	if s.tooLarge(fr.Size()) || d.qos == 1 && m.expired(now) { // expiry does not end a QoS 2 flow (4.3.3-7)
		s.dropped.Add(1)
		s.skip(d)
		return true
	}
	if !s.book(fr.Size()) {
		s.win.again(e)
		s.want.again = fr.Size()
		s.look()
		return false
	}
	s.append(&fr, m, now)
	return true
}

// lost ends a delivery whose record is not there any more.
func (c *conn) lost(d *slot) {
	s := &c.out
	s.mu.Lock()
	s.skip(d)
	s.unlock()
}

// skip settles a delivery that is not sent again. With QoS 2 the client may have the
// message: PUBREL follows, so that the identifier is free on both sides.
func (s *sender) skip(d *slot) {
	if d.qos == 1 {
		s.win.free(d.id)
		s.settled(d.feed, d.partition, d.offset)
		return
	}
	if d.feed.member == nil {
		s.win.at(d.id).stage = taken
		s.ackLocked(wire.Pubrel, d.id, wire.Success)
		return
	}
	s.win.at(d.id).stage = taking
	d.feed.member.Take(d.pinID(), d.partition, d.offset)
}
