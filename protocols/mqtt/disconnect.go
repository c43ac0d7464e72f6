package mqtt

import (
	"io"

	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// disconnect handles DISCONNECT: a normal one discards the will; one of
// version 5 may change how long the session is kept, but not from nothing to
// something (3.14.2.2.2).
func (c *conn) disconnect(body []byte) error {
	d, err := wire.ParseDisconnect(c.version, body)
	if err != nil {
		return err
	}
	if d.HasExpiry {
		if c.expiry == 0 && d.SessionExpiry != 0 {
			return fault(wire.ProtocolError, "session expiry raised from 0")
		}
		c.expiry = seconds(d.SessionExpiry)
	}
	if d.Code == wire.Success {
		c.leaving = true
	}
	return io.EOF
}
