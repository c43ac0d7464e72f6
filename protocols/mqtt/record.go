package mqtt

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

var (
	value1    = []byte("1")
	valuesQoS = [3][]byte{[]byte("0"), value1, []byte("2")}
	empty     = []byte{}
)

// inbound turns publishes into records (docs/properties.md). It is scratch
// space for one publish at a time; the record aliases the packet.
type inbound struct {
	now    int64 // ms since 1970, when the last bytes came
	rec    kernel.Record
	number [20]byte
	alias  uint16 // Topic Alias, if hasAlias
	// hasAlias: the packet carried one.
	hasAlias bool
	// routeAt is where in rec.Headers the address is to be put, 0 = nowhere: the
	// place of the user property x-kafka-key that has set the key.
	routeAt int
	id      []byte // deduplication id, nil = none
	// will: the expiry is kept in expiry, as it begins later; 0 = none.
	will   bool
	expiry time.Duration
}

// begin starts a record.
func (in *inbound) begin(payload []byte, qos byte) {
	if payload == nil {
		payload = empty // null would be a tombstone
	}
	in.rec.Value = payload
	in.rec.Timestamp = in.now
	in.rec.Headers = in.rec.Headers[:0]
	in.hasAlias, in.routeAt, in.id = false, 0, nil
	in.add(kernel.HeaderQoS, valuesQoS[qos])
}

// properties takes over and checks the properties of a PUBLISH or will. user is
// who is logged in: only that name may stand in header user-id.
func (in *inbound) properties(p *wire.Properties, user string) error {
	for p.Next() {
		switch p.ID {
		case wire.PropPayloadFormat:
			if p.Num == 1 {
				in.add(kernel.HeaderUTF8, value1)
			}
		case wire.PropMessageExpiry:
			if in.will {
				in.expiry = max(time.Duration(p.Num)*time.Second, 1)
				continue
			}
			at := in.now + int64(p.Num)*1000
			in.add(kernel.HeaderExpiresAt, strconv.AppendInt(in.number[:0], at, 10))
		case wire.PropContentType:
			in.add(kernel.HeaderContentType, p.Data)
		case wire.PropResponseTopic:
			if err := checkResponseTopic(p.Data); err != nil {
				return err
			}
			in.add(kernel.HeaderReplyToTopic, p.Data)
		case wire.PropCorrelationData:
			in.add(kernel.HeaderCorrelationID, p.Data)
		case wire.PropTopicAlias:
			in.alias, in.hasAlias = uint16(p.Num), true
		case wire.PropSubscriptionIdentifier:
			return fault(wire.ProtocolError, "subscription identifier in a PUBLISH from a client")
		case wire.PropUser:
			in.userProperty(p.Data, p.Val, user)
		}
	}
	return p.Err()
}

func checkResponseTopic(t []byte) error {
	for _, b := range t {
		if b == '+' || b == '#' {
			return fault(wire.ProtocolError, "response topic contains a wildcard")
		}
	}
	return nil
}

// userProperty takes one user property. The first x-kafka-key sets the key; a
// name that cannot be stored as it is gets a prefix.
func (in *inbound) userProperty(name, value []byte, user string) {
	switch string(name) {
	case kernel.HeaderKey:
		if in.routeAt == 0 {
			in.rec.Key, in.routeAt = value, len(in.rec.Headers)
			if value == nil {
				in.rec.Key = empty
			}
			in.add(kernel.HeaderRoute, nil)
			return
		}
		in.add(kernel.HeaderUser+string(name), value)
		return
	case kernel.HeaderContentType, kernel.HeaderCorrelationID, kernel.HeaderReplyToTopic:
		in.add(kernel.HeaderUser+string(name), value)
		return
	case kernel.HeaderDedup:
		if in.id == nil {
			in.id = value
		}
	case kernel.HeaderUserID:
		if string(value) != user {
			in.add(kernel.HeaderUser+string(name), value)
			return
		}
	}
	if reserved(name) || kernel.IsDeathHeader(stringOf(name)) {
		in.add(kernel.HeaderUser+string(name), value)
		return
	}
	in.add(stringOf(name), value)
}

// finish gives the record its address.
func (in *inbound) finish(topic string) {
	if in.routeAt == 0 { // the first header is the QoS
		in.rec.Key = bytesOf(topic)
		return
	}
	in.rec.Headers[in.routeAt].Value = bytesOf(topic)
}

// own makes the record one that does not alias the packet.
func (in *inbound) own() {
	in.rec.Key, in.rec.Value, in.id = slices.Clone(in.rec.Key), slices.Clone(in.rec.Value), slices.Clone(in.id)
	for i := range in.rec.Headers {
		h := &in.rec.Headers[i]
		h.Key, h.Value = strings.Clone(h.Key), slices.Clone(h.Value)
	}
}

func (in *inbound) add(name string, value []byte) {
	in.rec.Headers = append(in.rec.Headers, kernel.Header{Key: name, Value: value})
}
