package mqtt

import "github.com/trivium-mq/trivium/protocols/mqtt/wire"

// auth answers AUTH after CONNACK. Enhanced authentication is not supported:
// a CONNECT that asks for it gets 0x8C, so no conforming client sends AUTH.
func (c *conn) auth(body []byte) error {
	if c.version != wire.V5 {
		return fault(wire.ProtocolError, "AUTH in MQTT 3.1.1")
	}
	if _, err := wire.ParseAuth(body); err != nil {
		return err
	}
	return fault(wire.ProtocolError, "AUTH without an authentication method")
}
