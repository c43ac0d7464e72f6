package mqtt

import (
	"bytes"
	"strconv"
	"unsafe"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// message is one record taken apart for the way out (docs/properties.md). It
// is scratch space, used again for the next record; its slices alias the
// record or its own buffers.
type message struct {
	v5       bool
	topic    []byte
	payload  []byte
	qos      byte
	retain   bool
	origin   []byte // client id of the publisher, where it is kept
	expires  int64  // ms since 1970, 0 = never
	expiryAt int    // where in props the Message Expiry Interval is; -1 = none
	props    []byte // version 5 properties

	exchange, route []byte
	key             []byte // of the record
	hasExchange     bool
	hasQoS          bool
	seen            uint64 // single properties written, by identifier
	name            []byte // buffer of a rewritten topic name
}

// fromView takes a stored record apart. topic is the topic it is read from.
func (m *message) fromView(v *kernel.View, topic string, v5 bool) {
	m.reset(v5)
	m.key = v.Key
	it, own := v.Headers(), v.IsOwn()
	for name, value, ok := it.Next(); ok; name, value, ok = it.Next() {
		if own || !reserved(name) { // else a client invented it
			m.header(name, value)
		}
	}
	m.payload = v.Value
	m.address(topic)
}

// fromRecord takes a record apart that is on its way to session-less
// subscribers under a topic name.
func (m *message) fromRecord(r *kernel.Record, name string, v5 bool) {
	m.reset(v5)
	m.key = r.Key
	for i := range r.Headers {
		m.header(bytesOf(r.Headers[i].Key), r.Headers[i].Value)
	}
	m.payload = r.Value
	if m.route == nil && !m.hasExchange && !m.hasQoS {
		m.userKey()
	}
	m.setTopic(bytesOf(name), name)
}

// keptProps is how many bytes of properties a connection keeps room for.
const keptProps = 16 << 10

func (m *message) reset(v5 bool) {
	*m = message{v5: v5, qos: 1, expiryAt: -1, props: m.props[:0], name: m.name[:0]}
}

// reserved reports whether a header's name is one that the broker writes.
func reserved(name []byte) bool {
	return len(name) >= 3 && name[0] == 'm' && name[1] == 'q' && name[2] == '.'
}

// header takes one header. A single property given a second time becomes a
// user property, for records that Kafka clients made.
func (m *message) header(name, value []byte) {
	if reserved(name) {
		m.internal(name, value)
		return
	}
	if !m.v5 {
		return
	}
	var id byte
	switch string(name) {
	case kernel.HeaderContentType:
		id = wire.PropContentType
	case kernel.HeaderReplyToTopic:
		id = wire.PropResponseTopic
	case kernel.HeaderCorrelationID:
		if len(value) <= 65535 && value != nil && m.once(wire.PropCorrelationData) {
			m.props = wire.AppendText(m.props, wire.PropCorrelationData, value)
			return
		}
	}
	if id == wire.PropResponseTopic && (len(value) == 0 || bytes.ContainsAny(value, "+#")) {
		id = 0
	}
	if id != 0 && wire.ValidText(value) && m.once(id) {
		m.props = wire.AppendText(m.props, id, value)
		return
	}
	m.user(name, value)
}

func (m *message) once(id byte) bool {
	first := m.seen&(1<<id) == 0
	m.seen |= 1 << id
	return first
}

// internal takes a header whose name begins with "mq.".
func (m *message) internal(name, value []byte) {
	switch string(name) {
	case kernel.HeaderExchange:
		m.exchange, m.hasExchange = value, true
	case kernel.HeaderRoute:
		m.route = value
		m.userKey() // an MQTT publisher's was here among the user properties
	case kernel.HeaderQoS:
		m.hasQoS = true
		if len(value) == 1 && (value[0] == '0' || value[0] == '2') {
			m.qos = value[0] - '0'
		}
	case kernel.HeaderRetain:
		m.retain = len(value) == 1 && value[0] == '1'
	case kernel.HeaderOrigin:
		m.origin = value
	case kernel.HeaderUTF8:
		if m.v5 && m.once(wire.PropPayloadFormat) {
			m.props = wire.AppendFlag(m.props, wire.PropPayloadFormat, 1)
		}
	case kernel.HeaderExpiresAt:
		ms, err := strconv.ParseInt(stringOf(value), 10, 64)
		if err != nil || ms <= 0 || m.expires != 0 {
			return
		}
		m.expires = ms
		if m.v5 {
			m.expiryAt = len(m.props) + 1
			m.props = wire.AppendFour(m.props, wire.PropMessageExpiry, 0) // patched when it goes out
		}
	default:
		if n, ok := bytes.CutPrefix(name, []byte(kernel.HeaderUser)); ok && m.v5 {
			m.user(n, value)
		}
	}
}

// user appends a user property; what is not text cannot be shown.
func (m *message) user(name, value []byte) {
	if wire.ValidText(name) && wire.ValidText(value) {
		m.props = wire.AppendUser(m.props, name, value)
	}
}

// userKey shows the record's key as a user property.
func (m *message) userKey() {
	if m.v5 && m.key != nil {
		m.user(bytesOf(kernel.HeaderKey), m.key)
	}
}

// address finds the topic name under which a stored record is shown.
func (m *message) address(topic string) {
	addr := m.key
	if m.route != nil {
		addr = m.route
	}
	switch {
	case m.hasExchange && len(m.exchange) > 0:
		m.name = append(m.name[:0], addr...)
		for i, b := range m.name {
			if b == '.' {
				m.name[i] = '/'
			}
		}
		addr = m.name
	case !m.hasExchange && !m.hasQoS: // from a log producer: the key is no address
		if m.route == nil {
			m.userKey()
		}
		addr = bytesOf(topic)
	}
	m.setTopic(addr, topic)
}

// setTopic sets the topic name, or fallback where addr is none that a PUBLISH
// may carry. Wildcard characters in it become '*'.
func (m *message) setTopic(addr []byte, fallback string) {
	if len(addr) == 0 || !wire.ValidText(addr) {
		addr = bytesOf(fallback)
	}
	if bytes.IndexByte(addr, '+') < 0 && bytes.IndexByte(addr, '#') < 0 {
		m.topic = addr
		return
	}
	m.name = append(m.name[:0], addr...)
	for i, b := range m.name {
		if b == '+' || b == '#' {
			m.name[i] = '*'
		}
	}
	m.topic = m.name
}

// expired reports whether the message may not be delivered any more.
func (m *message) expired(now int64) bool { return m.expires != 0 && m.expires <= now }

// patchExpiry writes what remains of a Message Expiry Interval, in seconds, at
// least 1.
func patchExpiry(at []byte, expires, now int64) {
	left := max(1, (expires-now+999)/1000)
	n := uint32(min(left, 1<<32-1))
	at[0], at[1], at[2], at[3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
}

// bytesOf and stringOf convert without copying; neither result is ever changed
// or kept beyond the use of its source.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
