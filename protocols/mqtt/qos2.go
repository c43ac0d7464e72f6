package mqtt

import (
	"slices"

	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// relRun is how many PUBRELs are handed on together at most.
const relRun = 64

// pubrel ends a QoS 2 publish: PUBCOMP follows when the kernel has committed that
// the identifier may be used again. Runs of them share a commit.
func (c *conn) pubrel(body []byte) error {
	id, _, err := wire.ParseAck(wire.Pubrel, c.version, body)
	if err != nil {
		return err
	}
	if c.released = append(c.released, id); len(c.released) >= relRun {
		c.releaseRun()
	}
	return nil
}

// releaseRun hands the gathered PUBRELs to the kernel. An identifier that is not
// known there belongs to a flow from elsewhere, or has been released (4.3.3).
func (c *conn) releaseRun() {
	ids := c.released
	if len(ids) == 0 {
		return
	}
	c.released = nil
	c.session.Release(ids, func(unknown []uint16, err error) { c.completed(ids, unknown, err) })
}

// completed sends the PUBCOMPs of a run. It may be called by a kernel goroutine.
func (c *conn) completed(ids, unknown []uint16, err error) {
	if err != nil {
		c.end(publishReason(err), "a publish could not be completed", err)
		return
	}
	known := c.acks.completed(ids)
	s := &c.out
	s.mu.Lock()
	defer s.unlock()
	for _, id := range ids {
		code := wire.Success
		if slices.Contains(unknown, id) && !slices.Contains(known, id) {
			code = wire.PacketIDNotFound
		}
		s.ackLocked(wire.Pubcomp, id, code)
	}
}
