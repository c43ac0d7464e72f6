package mqtt

import "github.com/trivium-mq/trivium/protocols/mqtt/wire"

var pingresp = wire.AppendPingresp(nil)

func (c *conn) ping(body []byte) error {
	if len(body) > 0 {
		return fault(wire.MalformedPacket, "PINGREQ with a body")
	}
	c.out.packet(pingresp)
	return nil
}

// checkControl ends a connection whose client sends without reading the answers.
func (c *conn) checkControl() error {
	s := &c.out
	s.mu.Lock()
	n := s.control
	s.mu.Unlock()
	if n > maxControl {
		return fault(wire.QuotaExceeded, "answers are not read")
	}
	return nil
}
