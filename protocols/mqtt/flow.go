package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// A QoS 2 delivery to a durable session commits twice: that the record is pinned to
// the session under the packet identifier, before PUBLISH goes out, and that PUBREC
// has come, with the settlement of the record, before PUBREL does. Both are
// gathered by the member; nothing here waits. Where the session ends with its
// connection the flow is kept in the window only.

// stage is how far a slot has come.
type stage uint8

const (
	sent    stage = iota // PUBLISH is out, or will be: waits for PUBACK or PUBREC
	pinning              // QoS 2: PUBLISH waits for the commit
	due                  // of an earlier connection, to be sent again
	taking               // PUBREC has come, PUBREL waits for the commit
	taken                // PUBREL is out: waits for PUBCOMP
)

// pin starts a QoS 2 delivery of a frame under an identifier.
func (s *sender) pin(f *feed, id uint16, fr frame, expires int64) {
	s.holdBack(id, fr, expires)
	e := s.win.at(id)
	f.member.Pin(e.pinID(), e.partition, e.offset)
}

// holdBack keeps a frame until its pin is noted.
func (s *sender) holdBack(id uint16, fr frame, expires int64) {
	e := s.win.at(id)
	e.stage, e.pinned = pinning, true
	if s.pinning == nil {
		s.pinning = make(map[uint16]parked)
	}
	s.pinning[id] = parked{frame: fr, expires: expires}
	s.pinBytes += len(fr.bytes)
}

// Pinned implements kernel.Pinner: the PUBLISH packets go out.
func (f *feed) Pinned(numbers []uint16, err error) {
	now := kernel.Millis()
	s := &f.conn.out
	s.mu.Lock()
	for _, id := range numbers {
		p, ok := s.pinning[id]
		delete(s.pinning, id)
		s.pinBytes -= len(p.bytes)
		e := s.win.get(id)
		switch {
		case !ok || e == nil || e.feed != f || s.closed:
		case err != nil:
			s.win.free(id)
		default:
			e.stage = sent
			s.copyFrame(&p.frame, id, p.expires, now)
		}
	}
	gone := f.gone
	s.unlock()
	if err != nil && !gone {
		f.conn.end(reasonOf(err), "a delivery could not be noted", err)
	}
}

// Taken implements kernel.Pinner: the PUBRELs go out.
func (f *feed) Taken(numbers []uint16, err error) {
	if err != nil {
		f.conn.end(reasonOf(err), "a delivery could not be settled", err)
		return
	}
	s := &f.conn.out
	s.mu.Lock()
	defer s.unlock()
	for _, id := range numbers {
		if e := s.win.get(id); e != nil && e.stage == taking {
			e.stage = taken
			s.ackLocked(wire.Pubrel, id, wire.Success)
		}
	}
}

// pubrec notes that the client has a QoS 2 message, or refuses it.
func (c *conn) pubrec(body []byte) error {
	id, code, err := wire.ParseAck(wire.Pubrec, c.version, body)
	if err != nil {
		return err
	}
	refused := code >= wire.UnspecifiedError
	s := &c.out
	s.mu.Lock()
	e := s.win.get(id)
	if e == nil || e.qos != 2 || e.stage == pinning {
		if !refused { // a flow that the client remembers from elsewhere (4.3.3)
			s.ackLocked(wire.Pubrel, id, wire.PacketIDNotFound)
		}
		s.unlock()
		return nil
	}
	s.win.begun(e) // the client had it before
	d := *e
	switch {
	case d.stage == taken && !refused:
		s.ackLocked(wire.Pubrel, id, wire.Success) // once more
	case d.stage == sent && refused:
		s.win.free(id)
	case d.stage == sent && d.pinned && d.feed.member != nil:
		e.stage = taking
	case d.stage == sent:
		e.stage = taken
		s.ackLocked(wire.Pubrel, id, wire.Success)
	}
	if d.stage == sent && !d.pinned && d.feed.member != nil {
		s.gather(d.feed, refused, d.partition, d.offset)
	}
	s.unlock()
	if d.stage == sent {
		c.took(&d, refused)
	}
	return nil
}

// took settles a delivery whose PUBREC has come.
func (c *conn) took(d *slot, refused bool) {
	m := d.feed.member
	switch {
	case m == nil && d.pinned && refused:
		c.session.Unpin(d.pinID())
	case m == nil, !d.pinned: // fed from memory, or retained, or settled
	case refused:
		m.Refuse(d.pinID(), d.partition, d.offset)
	default:
		m.Take(d.pinID(), d.partition, d.offset)
	}
	if refused {
		c.freed()
	}
}

// pubcomp ends a QoS 2 delivery.
func (c *conn) pubcomp(body []byte) error {
	id, _, err := wire.ParseAck(wire.Pubcomp, c.version, body)
	if err != nil {
		return err
	}
	s := &c.out
	s.mu.Lock()
	var d slot
	if e := s.win.get(id); e != nil && e.stage == taken {
		d, _ = s.win.free(id)
	}
	s.mu.Unlock()
	if d.id == 0 {
		return nil // of an earlier connection, or twice
	}
	switch {
	case !d.pinned:
	case d.feed == nil, d.feed.member == nil:
		c.session.Unpin(d.pinID())
	default:
		d.feed.member.Unpin(d.pinID())
	}
	c.freed()
	return nil
}

// freed notes that a slot is free: every now and then, and at the end of a read,
// credit is granted for those.
func (c *conn) freed() {
	if c.acked++; c.acked >= ackRun {
		c.acked = 0
		c.settleRun()
		c.replenish()
	}
}

func (s *slot) pinID() kernel.PinID { return kernel.PinID{Number: s.id, Count: s.count} }
