package mqtt

import "github.com/trivium-mq/trivium/protocols/mqtt/wire"

// exactlyOnce answers the packets of QoS 2 flows. The server starts none and
// accepts none, so they belong to flows that a client remembers from another
// server: each is ended in the way the specification has for an identifier that
// is not known (4.3.3).
func (c *conn) exactlyOnce(pt byte, body []byte) error {
	id, code, err := wire.ParseAck(pt, c.version, body)
	if err != nil {
		return err
	}
	switch {
	case pt == wire.Pubrel:
		c.out.ack(wire.Pubcomp, id, wire.PacketIDNotFound)
	case pt == wire.Pubrec && code < wire.UnspecifiedError:
		c.out.ack(wire.Pubrel, id, wire.PacketIDNotFound)
	}
	return nil
}
