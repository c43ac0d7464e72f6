package amqp

import (
	"bytes"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// Headers that the broker adds to what it delivers.
const (
	headerDeliveries = "x-delivery-count"  // how often a message of a quorum queue came back
	headerCut        = "x-headers-dropped" // there were more headers than the client's frames hold

	// ownSize is what they take in a table, with the mark of a tombstone.
	ownSize = 1 + len(headerDeliveries) + 1 + 8 + 1 + len(headerCut) + 1 + 1 + 1 + len(headerTombstone) + 1 + 1
)

// finish makes of what read left what this consumer gets.
func (e *encoder) finish(k *consumer, d *kernel.Delivery) {
	failed := int32(0)
	if k.m.Type() == kernel.Quorum {
		failed = d.Failed
		e.count(&e.props, failed)
	}
	e.fit(&e.props, k.ch.c, !e.hasExchange, failed)
}

// count adds how often a message came back, if it did, in place of what its
// publisher may have called so.
func (e *encoder) count(p *wire.Properties, failed int32) {
	if failed == 0 && (p.Flags&wire.HasHeaders == 0 || !bytes.Contains(p.Headers, []byte(headerDeliveries))) {
		return
	}
	if e.hasExact {
		e.table = append(e.table[:0], e.exact...)
	}
	e.table = keepFields(e.table, func(name, _ []byte) bool { return string(name) != headerDeliveries })
	if failed > 0 {
		e.table = wire.AppendLongField(e.table, headerDeliveries, int64(failed))
	}
	p.Flags |= wire.HasHeaders
	p.Headers = e.table
}

// fit makes the header frame of p small enough for the connection: it cannot be
// split, and what exceeds frame_max ends the client. Of a message from another
// protocol the headers that do not fit are left out, one by one in their order;
// the table of an AMQP publisher, which may rely on all of it, as a whole.
// Properties always fit: they are at most 255 bytes each. The caller holds
// out.mu.
func (e *encoder) fit(p *wire.Properties, c *conn, foreign bool, failed int32) {
	over := p.HeaderFrameSize() - c.frameMax
	if over <= 0 {
		return
	}
	if foreign {
		e.table = fitting(append(e.table[:0], p.Headers...), len(p.Headers)-over)
	} else {
		e.table = e.table[:0]
	}
	if foreign && e.tombstone {
		e.table = wire.AppendBoolField(e.table, headerTombstone, true)
	}
	if failed > 0 {
		e.table = wire.AppendLongField(e.table, headerDeliveries, int64(failed))
	}
	e.table = wire.AppendBoolField(e.table, headerCut, true)
	p.Headers = e.table
	c.count.Cut.Add(1)
	if !c.cut {
		c.cut = true
		c.log.Warn().Stringer("peer", c.nc.RemoteAddr()).Str("user", c.user).Int("frame_max", c.frameMax).
			Msg("AMQP client gets messages without headers that its frames do not hold")
	}
}

// fitting keeps of a table what fits into room bytes with the broker's own
// headers, which the caller adds anew.
func fitting(table []byte, room int) []byte {
	room -= ownSize
	return keepFields(table, func(name, entry []byte) bool {
		if len(entry) > room || string(name) == headerDeliveries || string(name) == headerTombstone {
			return false
		}
		room -= len(entry)
		return true
	})
}

// keepFields removes from the content of a table, in place, the entries that
// keep does not want.
func keepFields(content []byte, keep func(name, entry []byte) bool) []byte {
	kept, rest := content[:0], content
	for w := wire.WalkTable(content); w.Next(); {
		entry := rest[:len(rest)-len(w.Rest())]
		rest = w.Rest()
		if keep(w.Name, entry) {
			kept = append(kept, entry...)
		}
	}
	return kept
}
