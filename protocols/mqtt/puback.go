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
	d, ok := s.win.free(id)
	s.mu.Unlock()
	if !ok {
		return nil // of an earlier connection, or twice
	}
	if c.acked++; c.acked >= ackRun {
		c.acked = 0
		c.settleRun()
		c.replenish()
	}
	if d.feed.member == nil {
		return nil
	}
	refuse := code >= wire.UnspecifiedError
	if !c.settling.extend(d.feed, refuse, d.partition, d.offset) {
		c.settleRun()
		c.settling = settlement{feed: d.feed, refuse: refuse, partition: d.partition, first: d.offset, last: d.offset}
	}
	return nil
}

// settleRun hands the gathered run of acknowledgements to its member.
func (c *conn) settleRun() {
	r := &c.settling
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
