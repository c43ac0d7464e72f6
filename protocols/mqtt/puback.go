package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// ackRun is how many acknowledgements go by before credit is granted again
// within one read.
const ackRun = 64

// puback settles a delivery: accepted, or with an error code refused for good.
// Runs of them become one settlement each.
func (c *conn) puback(body []byte) error {
	id, code, err := wire.ParseAck(wire.Puback, c.version, body)
	if err != nil {
		return err
	}
	s := &c.out
	s.mu.Lock()
	var d slot
	if e := s.win.get(id); e != nil && e.qos == 1 {
		s.win.begun(e)
		d, _ = s.win.free(id)
		if d.feed.member != nil {
			s.gather(d.feed, code >= wire.UnspecifiedError, d.partition, d.offset)
		}
	}
	s.mu.Unlock()
	if d.id != 0 { // else of an earlier connection, or twice
		c.freed()
	}
	return nil
}

// gather adds a settlement to the present run, or begins a new one. mu is held since
// the window has let go of the delivery: Holding sees it here or there.
func (s *sender) gather(f *feed, refuse bool, partition int32, offset int64) {
	if !s.acked.extend(f, refuse, partition, offset) {
		s.settleRun()
		s.acked = settlement{feed: f, refuse: refuse, partition: partition, first: offset, last: offset}
	}
}

// settleRun hands the gathered run of acknowledgements to its member.
func (c *conn) settleRun() {
	c.out.mu.Lock()
	c.out.settleRun()
	c.out.mu.Unlock()
}

// settleRun is conn.settleRun with mu held.
func (s *sender) settleRun() {
	r := &s.acked
	if r.feed == nil {
		return
	}
	outcome := kernel.Accept
	if r.refuse {
		outcome = kernel.Refuse
	}
	r.feed.member.Settle(outcome, r.partition, r.first, r.last)
	*r = settlement{}
}
