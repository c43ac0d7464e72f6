package amqp

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// encoder turns stored records into messages, in memory that it uses again.
// conn.out.mu guards it.
type encoder struct {
	props   wire.Properties
	deliver wire.BasicDeliver
	getOk   wire.BasicGetOk
	table   []byte // headers of the message
	text    []byte // texts made up for it

	exchange, key string
	route         []byte // the address, when it is not the key
	correlation   []byte
	exact         []byte  // the header table as it was sent
	deaths        []byte  // history of a dead message, by the broker
	died          []death // the other headers about that
	hasExchange   bool
	hasQoS        bool
	hasRoute      bool
	hasExact      bool
	tombstone     bool
}

// appendDelivery appends all frames of a delivery.
func (e *encoder) appendDelivery(b []byte, k *consumer, tag uint64, d *kernel.Delivery) []byte {
	e.read(d.Record, k.topic)
	e.finish(k, d)
	e.deliver = wire.BasicDeliver{
		ConsumerTag: k.tag, DeliveryTag: tag, Redelivered: d.Redelivered, Exchange: e.exchange, RoutingKey: e.key,
	}
	b = wire.AppendMethod(b, k.ch.id, &e.deliver)
	b = wire.AppendContent(b, k.ch.id, &e.props, d.Record.Value, k.ch.c.frameMax)
	e.trim()
	return b
}

// appendGetOk appends all frames of an answer to basic.get.
func (e *encoder) appendGetOk(b []byte, k *consumer, tag uint64, d *kernel.Delivery, ready int64) []byte {
	e.read(d.Record, k.topic)
	e.finish(k, d)
	e.getOk = wire.BasicGetOk{
		DeliveryTag: tag, Redelivered: d.Redelivered, Exchange: e.exchange, RoutingKey: e.key, MessageCount: count32(ready),
	}
	b = wire.AppendMethod(b, k.ch.id, &e.getOk)
	b = wire.AppendContent(b, k.ch.id, &e.props, d.Record.Value, k.ch.c.frameMax)
	e.trim()
	return b
}

// trim lets go of what a message with many headers took.
func (e *encoder) trim() {
	if cap(e.table) > keptText {
		e.table, e.props.Headers = nil, nil
	}
	if cap(e.text) > keptText {
		e.text = nil
	}
}

// read fills props, exchange and key from a record. They alias the record.
func (e *encoder) read(v *kernel.View, topic string) {
	e.props = wire.Properties{Flags: wire.HasDeliveryMode, DeliveryMode: deliveryPersistent}
	e.table, e.text = e.table[:0], e.text[:0]
	e.exchange, e.route, e.correlation, e.exact, e.deaths = "", nil, nil, nil, nil
	e.died = e.died[:0]
	e.hasExchange, e.hasQoS, e.hasRoute, e.hasExact = false, false, false, false

	it := v.Headers()
	own := v.IsOwn()
	for name, value, ok := it.Next(); ok; name, value, ok = it.Next() {
		switch {
		case own && e.death(alias(name), value):
		case own || !bytes.HasPrefix(name, bytesOf(kernel.HeaderReserved)):
			e.header(alias(name), value)
		}
	}
	e.address(v, topic)
	e.correlate()
	if e.tombstone = v.Value == nil; e.tombstone {
		e.table = wire.AppendBoolField(e.table, headerTombstone, true)
	}
	if e.deaths != nil {
		e.history()
	}
	switch {
	case e.hasExact:
		e.props.Flags |= wire.HasHeaders
		e.props.Headers = e.exact
	case len(e.table) > 0:
		e.props.Flags |= wire.HasHeaders
		e.props.Headers = e.table
	}
}

// header takes one stored header.
func (e *encoder) header(name string, value []byte) {
	switch name {
	case kernel.HeaderExchange:
		e.exchange, e.hasExchange = alias(value), true
	case kernel.HeaderRoute:
		e.route, e.hasRoute = value, true
	case kernel.HeaderQoS:
		e.qos(value)
	case kernel.HeaderExpiresAt:
		e.expiration(value)
	case kernel.HeaderRetain:
		e.table = wire.AppendBoolField(e.table, headerRetain, true)
	case kernel.HeaderTable:
		e.exact, e.hasExact = value, true
	case kernel.HeaderCorrelationID:
		e.correlation = value
	case kernel.HeaderPriority:
		if n, err := strconv.ParseUint(alias(value), 10, 8); err == nil {
			e.props.Flags |= wire.HasPriority
			e.props.Priority = uint8(n)
			return
		}
		e.field(name, value)
	case kernel.HeaderTimestamp:
		if n, err := strconv.ParseUint(alias(value), 10, 64); err == nil {
			e.props.Flags |= wire.HasTimestamp
			e.props.Timestamp = n
			return
		}
		e.field(name, value)
	default:
		e.named(name, value)
	}
}

// named takes a header that is a text property or one of the client's own.
func (e *encoder) named(name string, value []byte) {
	if len(name) > len(kernel.HeaderReserved) && name[:len(kernel.HeaderReserved)] == kernel.HeaderReserved {
		if own, ok := bytes.CutPrefix(bytesOf(name), bytesOf(kernel.HeaderUser)); ok {
			e.field(alias(own), value)
		}
		return // others are not shown
	}
	if taken(name) && len(value) <= maxShort && value != nil && utf8.Valid(value) {
		for i := range textProperties {
			if t := &textProperties[i]; t.name == name {
				e.props.Flags |= t.flag
				*t.of(&e.props) = value
				return
			}
		}
	}
	e.field(name, value)
}

const maxShort = 255 // bytes of a short string

// field adds an entry to the header table.
func (e *encoder) field(name string, value []byte) {
	switch {
	case value == nil:
		e.table = wire.AppendVoidField(e.table, name)
	case utf8.Valid(value):
		e.table = wire.AppendLongstrField(e.table, name, value)
	default:
		e.table = wire.AppendBytesField(e.table, name, value)
	}
}

func (e *encoder) qos(value []byte) {
	e.hasQoS = true
	switch {
	case len(value) == 0:
		e.props.Flags &^= wire.HasDeliveryMode
	case value[0] == '0':
		e.props.DeliveryMode = deliveryTransient
	}
}

// expiration is what remains of the time to live.
func (e *encoder) expiration(value []byte) {
	at, err := strconv.ParseInt(alias(value), 10, 64)
	if err != nil {
		return
	}
	start := len(e.text)
	e.text = strconv.AppendInt(e.text, max(at-kernel.Millis(), 0), 10)
	e.props.Flags |= wire.HasExpiration
	e.props.Expiration = e.text[start:len(e.text):len(e.text)]
}

// address sets exchange and routing key, by where the message came from.
func (e *encoder) address(v *kernel.View, topic string) {
	switch {
	case e.hasExchange && e.hasRoute:
		e.key = alias(e.route)
		e.recordKey(v.Key)
	case e.hasExchange:
		e.key = alias(v.Key)
	case e.hasQoS:
		name := v.Key
		if e.hasRoute {
			name = e.route
			e.recordKey(v.Key)
		}
		start := len(e.text)
		e.text = append(e.text, name...)
		made := e.text[start:]
		for i := range made {
			if made[i] == '/' {
				made[i] = '.'
			}
		}
		e.exchange, e.key = kernel.ExchangeTopic, alias(made)
	default:
		e.key = topic
		e.recordKey(v.Key)
	}
}

// recordKey shows the record's key, which is not the address.
func (e *encoder) recordKey(key []byte) {
	if key != nil {
		e.field(kernel.HeaderKey, key)
	}
}

// correlate places the correlation id: what came over AMQP fits, other bytes
// may not.
func (e *encoder) correlate() {
	id := e.correlation
	if id == nil {
		return
	}
	if len(id) <= maxShort && (e.hasExchange || utf8.Valid(id)) {
		e.props.Flags |= wire.HasCorrelationID
		e.props.CorrelationID = id
		return
	}
	e.field(headerCorrelation, id)
}
