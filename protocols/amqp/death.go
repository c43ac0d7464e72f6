package amqp

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// death is a header about the first or the last death of a message.
type death struct {
	name  string
	value []byte
}

// death takes a header about how the message died, if it is one. Only the broker
// writes them in its own records.
func (e *encoder) death(name string, value []byte) bool {
	if len(name) < len(kernel.HeaderDeath) || name[:2] != "x-" || !kernel.IsDeathHeader(name) {
		return false
	}
	if name == kernel.HeaderDeath {
		e.deaths = value
	} else {
		e.died = append(e.died, death{name, value})
	}
	return true
}

// history puts the deaths of a message into its header table, in place of what its
// publisher may have called so, as clients of RabbitMQ know them.
func (e *encoder) history() {
	if e.hasExact {
		e.table = append(e.table[:0], e.exact...)
		e.hasExact = false
	}
	e.table = keepFields(e.table, func(name, _ []byte) bool { return !kernel.IsDeathHeader(string(name)) })
	var list wire.Array
	for _, d := range kernel.ReadDeaths(e.deaths) {
		keys := make(wire.Array, len(d.RoutingKeys))
		for i, k := range d.RoutingKeys {
			keys[i] = k
		}
		t := wire.Table{
			{Name: "count", Value: d.Count},
			{Name: "reason", Value: string(d.Reason)},
			{Name: "queue", Value: d.Queue},
			{Name: "time", Value: wire.Timestamp(max(d.Time, 0))},
			{Name: "exchange", Value: d.Exchange},
			{Name: "routing-keys", Value: keys},
		}
		if d.Expiration != "" {
			t = append(t, wire.Field{Name: "original-expiration", Value: d.Expiration})
		}
		list = append(list, t)
	}
	e.table = append(e.table, wire.AppendTable(nil, wire.Table{{Name: kernel.HeaderDeath, Value: list}})[4:]...) // without its length
	for _, d := range e.died {
		e.table = wire.AppendLongstrField(e.table, d.name, d.value)
	}
}
