package amqp

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// publish hands a complete message to the kernel. m, p and body may alias the
// read buffer; the kernel copies what it keeps. It publishes with, and confirms to,
// what the channel had when the message came. errPressed means that nothing has
// happened and that it is to be tried again.
func (ch *channel) publish(pub publisher, confirms *confirms, m *wire.BasicPublish, p *wire.Properties, body []byte) error {
	rec := &ch.c.rec
	if err := rec.build(m, p, body, ch.actsAs(p)); err != nil {
		return ch.checkedFirst(m, err)
	}
	var seq uint64
	if confirms != nil {
		seq = confirms.begin()
	}
	opt := kernel.PublishOptions{Mandatory: m.Mandatory, Keys: rec.keys, Fields: rec, ID: kernel.NewDedupID(rec.id)}
	var matched int
	var err error
	if rec.retain {
		matched, err = pub.RetainAt(m.Exchange, m.RoutingKey, &rec.record, opt, seq)
	} else {
		matched, err = pub.ToExchange(m.Exchange, m.RoutingKey, &rec.record, opt, seq)
	}
	switch {
	case err != nil && kernel.CodeOf(err) == kernel.CodePressure:
		if confirms != nil {
			confirms.undo(seq)
		}
		return errPressed
	case err != nil:
		return ch.publishFailed(confirms, seq, err)
	case matched == 0 && m.Mandatory:
		ch.returnMessage(m, p, body)
		if confirms != nil {
			confirms.settled(seq, acked)
		}
	}
	return nil
}

// impersonator is the tag of users who may publish in the name of others.
const impersonator = "impersonator"

// actsAs is the user that the property user-id may name.
func (ch *channel) actsAs(p *wire.Properties) string {
	if p.Has(wire.HasUserID) && string(p.UserID) != ch.c.user && ch.c.link.HasTag(impersonator) {
		return string(p.UserID)
	}
	return ch.c.user
}

// checkedFirst decides between two faults of one publish: a missing exchange
// is found before a bad property.
func (ch *channel) checkedFirst(m *wire.BasicPublish, err error) error {
	if m.Exchange == kernel.ExchangeDefault {
		return err
	}
	if _, missing := ch.c.link.Exchange(m.Exchange); missing != nil {
		return ch.c.refused(missing)
	}
	return err
}

// publishFailed answers a publish that the kernel did not take. "Not now" and
// "not known" are for the publisher to handle: a nack where it asked to be
// told, else the end of the connection, because a message that silently went
// missing is the worst answer. Anything else is its mistake and closes the
// channel.
func (ch *channel) publishFailed(confirms *confirms, seq uint64, err error) error {
	switch {
	case !passing(err):
		if confirms != nil {
			confirms.undo(seq) // the end of the channel is the answer
		}
		return ch.c.refused(err)
	case confirms == nil:
		return faultf(wire.ResourceError, "the message was not stored: %v", err)
	}
	confirms.settled(seq, nacked)
	return nil
}

// passing reports whether the refusal of a publish is not for a mistake in it.
func passing(err error) bool {
	switch kernel.CodeOf(err) {
	case kernel.CodeUnavailable, kernel.CodeUnknown, kernel.CodeLimit, kernel.CodePressure, kernel.CodeInternal, kernel.CodeDropped:
		return true
	}
	return false
}

// decline notes that the node did not take a publish, which it says some time later
// if it is another one, and has the reader see to it. Any goroutine.
func (ch *channel) decline(err error) {
	if ch.declined.CompareAndSwap(nil, &err) {
		ch.c.relieveSoon()
	}
}

// failDeclined answers a publish that the node did not take, as publishFailed does. An
// error ends the connection.
func (ch *channel) failDeclined() error {
	err := ch.declined.Swap(nil)
	if err == nil || ch.closing {
		return nil
	}
	f := asFault(ch.publishFailed(nil, 0, *err))
	f.id = wire.IDBasicPublish
	if f.code.Hard() {
		return f
	}
	ch.fail(f)
	return nil
}

// failAllDeclined is failDeclined of all channels.
func (c *conn) failAllDeclined() error {
	for _, ch := range c.channels {
		if err := ch.failDeclined(); err != nil {
			return err
		}
	}
	return nil
}

// returnMessage sends a mandatory message back to its publisher.
func (ch *channel) returnMessage(m *wire.BasicPublish, p *wire.Properties, body []byte) {
	o := ch.c.out
	o.mu.Lock()
	before := len(o.buf)
	if !o.closing && !o.ended {
		fitting := *p // it came with a frame of this connection, but clients count differently
		ch.c.enc.fit(&fitting, ch.c, false, 0)
		o.buf = wire.AppendMethod(o.buf, ch.id, &wire.BasicReturn{
			ReplyCode: uint16(wire.NoRoute), ReplyText: wire.NoRoute.String(), Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		})
		o.buf = wire.AppendContent(o.buf, ch.id, &fitting, body, ch.c.frameMax)
	}
	o.done(before)
}
