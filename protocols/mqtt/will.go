package mqtt

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// leaveBehind gives the session the will of a CONNECT: the kernel publishes it when
// the connection ends in any way but a normal DISCONNECT, after its delay or with
// the session, whichever ends first, unless the session goes on before (3.1.2.5,
// 3.1.3.2.2). It outlives the node if the session does.
func (c *conn) leaveBehind(m *wire.Will) error {
	if m == nil {
		return nil
	}
	w := &kernel.Will{Topic: m.Topic, Delay: time.Duration(m.Delay) * time.Second, Retain: m.Retain}
	if reservedTopic(w.Topic) {
		return kernel.Errorf(kernel.CodeAccessRefused, "topic", w.Topic, "the name is reserved")
	}
	in := inbound{will: true, now: c.in.now}
	in.begin(m.Payload, m.QoS)
	if m.Retain {
		in.add(kernel.HeaderRetain, value1)
	}
	p := m.Properties()
	if err := in.properties(&p, c.identity.User); err != nil {
		return err
	}
	in.finish(m.Topic)
	w.Record, w.Expiry = in.rec, in.expiry
	err := c.session.SetWill(c.ctx, w)
	if kernel.CodeOf(err) == kernel.CodeInvalidName {
		return fault(wire.TopicNameInvalid, explain(err))
	}
	return err
}

// farewell ends the will before the session is given back: DISCONNECT has asked
// for that.
func (c *conn) farewell() {
	if !c.leaving {
		return
	}
	if err := c.session.DropWill(); err != nil && kernel.CodeOf(err) != kernel.CodeFenced {
		c.server.log.Warn().Err(err).Str("client", c.clientID).Msg("an mqtt will could not be discarded")
	}
}
